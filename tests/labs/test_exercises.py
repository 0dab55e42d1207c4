"""Every exercise is fed its solution, answers that are known to be wrong, other forms of both, and nonsense.

The answers stand in `hybridlab.labs.exercises.all_solutions`; each piece of nonsense is tried on every exercise. Code
runs on ranks: `make test` judges each task's solution and its first wrong answer, if they are quick enough, and
`make test-long` the others. Values are all judged in `make test`.
"""

import linecache
import math
import re
import time
from pathlib import Path

import nbformat
import pytest

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs.exercises.all_solutions import SOLUTIONS
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.failures import hints_for
from hybridlab.labs.exercises.solution import Cell
from hybridlab.labs.exercises.task import Number
from hybridlab.labs.trials import trial
from hybridlab.labs.trials.cases import OnCases
from hybridlab.labs.trials.clinic import Clinic
from hybridlab.labs.trials.trial import Function, OnRanks

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("first_attempt")]
long = pytest.mark.long  # many cases

BOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
SEEDS = range(50)
VARIED = [name for name, task in TASKS.items() if task.variants]
NONSENSE = ["", "abc", [], {}, ["a", "b"], [[1], [2]], object(), float, print, 1j, b"x", 10**400]
NONSENSE += [[10**400, 1], float("nan"), float("inf"), [float("nan")] * 4, [float("inf")] * 3, [object()] * 6, -1]
NONSENSE += [(10**400, 1), (float("nan"),) * 2, (float("inf"),) * 2, (float("inf"),) * 6, (-1, -1), True]
TAKES_SECONDS = "capstone.start", "1f1b.blocking"  # a plan is run dry; a program is found that hangs
NO = object()  # answers nothing
EMPTY = [None, {"zero": None}, [None] * 4, (None, 1), ("b", None)]


def is_code(task):
    kinds = OnRanks | Function | Clinic | OnCases
    return isinstance(TASKS[task].check, kinds) or task == "collectives.broken"


def marked(task, *case, soon=False):
    """A case of a test; what runs on ranks is marked so, and waits, unless it is `soon`."""
    cell = any(isinstance(one, Cell) for one in case) or any(map(callable, case))
    on_ranks = cell and is_code(task)
    waits = on_ranks and not soon or task in TAKES_SECONDS
    return pytest.param(task, *case, marks=[pytest.mark.ranks] * on_ranks + [long] * waits)


def given(task, answer):
    """The reply to an answer: a value, or a cell with the names of its notebook."""
    return run_cell(answer) if isinstance(answer, Cell) else labs.answer(task, answer)


def run_cell(cell):
    """The reply to a cell, run as a notebook would: its source is known, and its names are those of __main__."""
    import torch
    from torch.nn import functional

    from hybridlab.core.where.layout import even
    from hybridlab.core.where.spans import Sight, overlap, wanted
    from hybridlab.labs import capstone
    from hybridlab.labs.convolution.on_ranks import rows
    from hybridlab.labs.data_parallel import pictures
    from hybridlab.labs.data_parallel.tasks import tied_part
    from hybridlab.labs.engine import toy
    from hybridlab.labs.megatron import latents
    from hybridlab.modes.parts import token_order
    from hybridlab.world.talk import typed
    from hybridlab.world.talk.windows import turned

    file = f"<cell {abs(hash(cell))}>"
    linecache.cache[file] = len(cell), None, cell.splitlines(keepends=True), file
    *body, last = cell.split("\nlabs.answer(")
    names = dict(__name__="__main__", hl=hl, labs=labs, torch=torch, pictures=pictures, tied_part=tied_part, toy=toy)
    names |= dict(capstone=capstone, math=math, even=even, typed=typed, token_order=token_order, turned=turned)
    names |= dict(latents=latents, functional=functional, Sight=Sight, overlap=overlap, wanted=wanted, rows=rows)
    if not body:
        return eval(cell, names)
    exec(compile(cell[: -len("labs.answer(" + last)], file, "exec"), names)
    return eval("labs.answer(" + last, names)


def solution(task, seed=0):
    return SOLUTIONS[task].with_numbers(TASKS[task].of(seed).numbers)


def test_every_task_has_a_solution_that_answers_it():
    assert SOLUTIONS.keys() == TASKS.keys()
    for task, one in SOLUTIONS.items():
        assert one.cell.rstrip().splitlines()[-1].startswith(("labs.answer(", "})", "])")), task
        assert f'labs.answer("{task}", ' in one.cell and one.wrong and re.fullmatch(r"[^!]+\.", one.why), task


@pytest.mark.parametrize("task, answer", [marked(task, solution(task), soon=True) for task in TASKS])
def test_the_solution_is_right(task, answer):
    reply = given(task, answer)
    assert reply.right and reply.sentence and not reply.hint, reply


@pytest.mark.parametrize("task, answer", [marked(task, also) for task, one in SOLUTIONS.items() for also in one.also])
def test_other_right_answers_are_right(task, answer):
    assert given(task, answer).right


WRONG = [marked(task, *case, soon=case is one.wrong[0]) for task, one in SOLUTIONS.items() for case in one.wrong]


@pytest.mark.parametrize("task, answer, piece", WRONG)
def test_wrong_answers_are_told_what_is_off(task, answer, piece, monkeypatch):
    if piece == "no result after":  # however little that is
        monkeypatch.setitem(trial.run.__kwdefaults__, "seconds", 1.0)
    reply = given(task, answer)
    assert not reply.right and piece in reply.sentence, reply
    assert reply.hint == hints_for(TASKS[task], reply.sentence)[0], reply


@long
@pytest.mark.parametrize("task", [pytest.param(t, marks=[pytest.mark.ranks] * is_code(t)) for t in TASKS])
def test_nonsense_is_answered_and_never_right(task):
    for one in NONSENSE:
        reply = labs.answer(task, one)
        assert not reply.right and reply.sentence and reply.hint, one
        assert "Not yet" in repr(reply) and "Not yet" in reply._repr_html_()


@long
@pytest.mark.parametrize("task", TASKS)
def test_three_hints_come_one_by_one_and_the_last_stays(task):
    hints = TASKS[task].hints
    assert len(hints) == len(set(hints)) == 3
    assert [labs.answer(task, NO).hint for _ in range(4)] == [*hints, hints[-1]]


@long
@pytest.mark.parametrize("task", [task for task in TASKS if isinstance(TASKS[task].check, Number)])
def test_after_a_right_answer_the_hints_begin_again(task):
    for _ in range(2):
        labs.answer(task, NO)
    assert run_cell(solution(task)).right
    assert labs.answer(task, NO).hint == TASKS[task].hints[0]


@long
@pytest.mark.parametrize("task", TASKS)
def test_what_is_still_empty_is_no_try_and_brings_no_hint(task):
    before = labs.progress()
    for one in EMPTY:
        reply = labs.answer(task, one)
        assert not reply.right and "then run the cell again" in reply.sentence and not reply.hint, one
    assert labs.progress() == before


@long
@pytest.mark.parametrize("task", TASKS)
def test_questions_hints_and_objectives_are_sentences(task):
    for text in (repr(labs.question(task)), *TASKS[task].hints, TASKS[task].objective):
        assert text.rstrip(")")[-1] in ".?" or "comm." in text, text  # a line of code for ranks ends as code does
        assert "!" not in text
        assert "`" not in text and not re.search(r"(?<![\w*])\*\w+\*(?![\w*])", text), "a reader would see the marks"
    assert 1 <= TASKS[task].difficulty <= 3 and 1 <= TASKS[task].minutes <= 15 and "\n" not in TASKS[task].objective


@long
def test_a_number_is_judged_at_once():
    """The first answer may compute what is right; all later ones compare."""
    for name, task in TASKS.items():
        if isinstance(task.check, Number):
            task.check.right
            start = time.process_time()
            labs.answer(name, 1e6)
            assert time.process_time() - start < 0.2, name


# --- numbers that vary ------------------------------------------------------------------------------------------


@pytest.fixture
def somebody():
    """The test may say who it is; afterwards it is nobody."""
    yield
    labs.student(0)


def test_enough_tasks_vary_over_the_course():
    assert len(VARIED) >= 8 and len({TASKS[name].notebook for name in VARIED}) >= 6


@long
@pytest.mark.parametrize("name", VARIED)
def test_with_every_seed_the_solution_is_right_and_the_slips_are_wrong_and_distinct(name, somebody):
    for seed in SEEDS:
        task = TASKS[name].of(seed)
        labs.student(seed)
        assert run_cell(solution(name, seed)).right, (seed, task.numbers)
        assert len(set(task.hints)) == 3 and all(hint.endswith((".", "?")) for hint in task.hints), task.hints
        values = [value for value, _ in task.check.slips]
        for place, (value, told) in enumerate(task.check.slips):
            assert task.check(value) == (False, told), (seed, task.numbers, value)
            assert not any(task.check.same(value, other) for other in values[:place]), (seed, task.numbers)


@long
@pytest.mark.parametrize("name", VARIED)
def test_the_question_names_its_numbers_and_they_vary(name):
    tasks = [TASKS[name].of(seed) for seed in SEEDS]
    assert tasks[0].question == TASKS[name].question and len({task.question for task in tasks}) > 2
    for task in tasks:
        words = re.findall(r"\d+(?:\.\d+)?", task.question)
        assert {f"{value}" for value in task.numbers.values()} <= set(words), task.question


@long
@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.starter])
def test_what_the_notebook_ships_to_be_changed_is_no_try_and_brings_no_hint(name):
    (book,) = (book for book in BOOKS if book.stem == TASKS[name].notebook)
    (cell,) = (
        cell.source for cell in nbformat.read(book, as_version=4).cells if f'labs.answer("{name}"' in cell.source
    )
    before = labs.progress()
    reply = run_cell(cell)
    assert not reply.right and reply.sentence and not reply.hint and labs.progress() == before
    assert run_cell(solution(name)).right


# --- headings of the notebooks -----------------------------------------------------------------------------------


def starred():
    """(heading, stars, minutes, task) of every exercise heading; one that speaks of several tasks has several."""
    for book in BOOKS:
        waiting = []
        for cell in nbformat.read(book, as_version=4).cells:
            line = cell.source.partition("\n")[0]
            if cell.cell_type == "markdown" and line.startswith("#"):
                told = re.findall(r"(★+) (\d+) minutes", line)
                waiting = [(line, len(stars), int(minutes)) for stars, minutes in told]
            asked = re.search(r'labs\.question\("([^"]+)"\)', cell.source) if cell.cell_type == "code" else None
            if asked and waiting:
                yield *waiting.pop(0), asked[1], book.stem


def test_headings_say_what_the_tasks_say():
    found = list(starred())
    assert len(found) > 40
    for heading, stars, minutes, task, book in found:
        assert (stars, minutes, book) == (TASKS[task].difficulty, TASKS[task].minutes, TASKS[task].notebook), heading
