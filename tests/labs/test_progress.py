"""Answers in writing, progress kept in one file, and what is exported of it."""

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import hybridlab as hl
from hybridlab import labs
from hybridlab.labs import megatron
from hybridlab.labs.exercises import answers_file
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.source import source_of
from hybridlab.labs.exercises.student import seed_of
from hybridlab.labs.exercises.submission import load
from hybridlab.labs.exercises.written import read, write


@pytest.fixture
def folder(tmp_path, monkeypatch, first_attempt):
    """A folder of its own for the record, in which nothing was answered."""
    monkeypatch.setenv("HYBRIDLAB_PROGRESS", str(tmp_path))
    monkeypatch.setattr(answers_file, "_told", set())
    return tmp_path


# --- where it is kept -------------------------------------------------------------------------------------------


def test_a_test_keeps_nothing_unless_it_names_a_folder(monkeypatch):
    monkeypatch.delenv("HYBRIDLAB_PROGRESS", raising=False)
    assert answers_file.place() is None, "pytest, and so nbval, must not touch a student's file"
    monkeypatch.delenv("PYTEST_VERSION")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert str(answers_file.place()) == "/data/hybridlab/progress.json"
    monkeypatch.setenv("HYBRIDLAB_PROGRESS", "off")
    assert answers_file.place() is None


def test_an_answer_is_kept_and_a_wrong_one_does_not_replace_a_right_one(folder):
    for value in (9, 5, 3):
        labs.answer("naive.slots", value)
    assert answers_file.read()["tasks"] == {"naive.slots": {"right": True, "tries": 3, "answer": 5}}
    assert [file.name for file in folder.iterdir() if not file.name.startswith(".")] == ["progress.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"form": 1}', '{"form": 9, "tasks": {}}', '{"form": 1, "tasks": {"a": 1}}', "\x00"]
)
def test_a_damaged_file_is_set_aside_and_said_once(folder, text, capsys):
    (folder / "progress.json").write_text(text)
    labs.answer("naive.slots", 5)
    labs.answer("naive.slots", 5)
    assert (folder / "progress-damaged-1.json").read_text() == text
    assert answers_file.read()["tasks"]["naive.slots"]["tries"] == 2
    assert capsys.readouterr().err.count("could not be read: it is saved as") == 1


def test_a_second_damaged_file_does_not_replace_the_first(folder):
    for text in ("one", "two"):
        (folder / "progress.json").write_text(text)
        labs.progress()
    assert [(folder / f"progress-damaged-{n}.json").read_text() for n in (1, 2)] == ["one", "two"]


def test_a_folder_that_cannot_be_written_costs_a_sentence(folder, monkeypatch, capsys):
    (folder / "file").write_text("")
    monkeypatch.setenv("HYBRIDLAB_PROGRESS", str(folder / "file"))
    assert labs.answer("naive.slots", 5).right and labs.answer("naive.slots", 5).right
    assert capsys.readouterr().err.count("progress is not saved") == 1


def _answer_many(which):
    for value in range(20):
        labs.answer(which, value)


@pytest.mark.ranks
def test_two_kernels_lose_no_answer_of_each_other(folder):
    """Both write twenty times into one file."""
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=_answer_many, args=(task,)) for task in ("naive.slots", "tour.bubble")]
    [one.start() for one in both], [one.join() for one in both]
    assert {name: one["tries"] for name, one in answers_file.read()["tasks"].items()} == {
        "naive.slots": 20,
        "tour.bubble": 20,
    }


def test_a_write_that_fails_leaves_the_old_file(folder, monkeypatch, capsys):
    labs.answer("naive.slots", 5)
    before = (folder / "progress.json").read_text()
    monkeypatch.setattr(answers_file.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    labs.answer("naive.slots", 9)
    assert (folder / "progress.json").read_text() == before and "No space left" in capsys.readouterr().err


# --- progress, reset, student -----------------------------------------------------------------------------------


def test_progress_is_a_table_by_notebook_and_for_a_page(folder):
    labs.answer("naive.slots", 5)
    labs.answer("naive.speedup", 4)
    told = labs.progress()
    lines = repr(told).splitlines()
    (row,) = (line for line in lines if line.startswith("10_naive"))
    assert row.split()[1:3] == ["1", "7"] and "utilisation" in row and "speedup~" in row and "slots" not in row
    assert lines[-1].split()[:3] == ["all", "1", str(len(TASKS))]
    html = told._repr_html_()
    assert html.count("<tr>") == len(lines) and "<td>10_naive</td><td>1</td><td>7</td>" in html


def test_reset_forgets_one_task_or_all_and_hints_begin_again(folder):
    for task in ("naive.slots", "naive.speedup"):
        labs.answer(task, 1000), labs.answer(task, 1000)
    labs.reset("naive.slots")
    assert labs.answer("naive.slots", 1000).hint == TASKS["naive.slots"].hints[0]
    assert labs.answer("naive.speedup", 1000).hint == TASKS["naive.speedup"].hints[2]
    labs.student("Ada")
    labs.reset()
    assert labs.progress().tried == frozenset() and answers_file.read()["student"] == "Ada"
    with pytest.raises(ValueError, match="no exercise 'no.such'"):
        labs.reset("no.such")


def test_a_student_has_numbers_of_their_own_and_answers_them_again(folder, capsys):
    labs.answer("tour.bubble", 7 / 31), labs.answer("naive.speedup", 1)
    who = next(n for n in range(1, 99) if TASKS["tour.bubble"].of(n).numbers == {"ranks": 4, "microbatches": 40})
    labs.student(who)
    assert "Answer again: tour.bubble." in capsys.readouterr().out
    assert "1F1B runs on 4 ranks with 40 microbatches" in labs.question("tour.bubble")
    assert labs.progress().right == {"naive.speedup"}
    assert not labs.answer("tour.bubble", 7 / 31).right and labs.answer("tour.bubble", 3 / 43).right
    labs.student(0)
    assert "1F1B runs on 8 ranks with 24 microbatches" in labs.question("tour.bubble")


@pytest.mark.parametrize("who", [None, -1, True, 1.5, "", "  ", "x" * 81, "\ud800", 10**20])
def test_nobody_else_is_a_student(who):
    with pytest.raises(ValueError, match="labs.student"):
        labs.student(who)


# --- answers in writing -----------------------------------------------------------------------------------------

ANSWERS = [1, 0.25, True, None, "text", [1, "a"], {"gelu", "mask"}, {"tp": [[0, 1]], 3: None}, hl.Mesh(dp=2, pp=4), {}]


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_what_is_written_is_read_again(answer):
    assert read(json.loads(json.dumps(write(answer)))) == answer


@pytest.mark.slow
def test_numbers_of_other_packages_schedules_and_games_are_written():
    schedule = hl.schedule("1f1b", ranks=2, microbatches=2)
    assert write((np.float64(0.5), np.arange(3))) == [0.5, [0, 1, 2]]
    assert read(write(float("inf"))) == float("inf")
    assert read(write(schedule)).computing == schedule.computing
    game = hl.play(2, 2)
    assert write(game) == {"unwritten": "it was not finished"}
    for rank, kind in zip((0, 0, 1, 1, 1, 1, 0, 0), "FFFBFBBB"):
        game.choose(rank, kind)
    assert read(write(game)).computing == schedule.computing


def test_of_several_lambdas_on_one_line_the_right_one_is_written():
    one, two, outer = (lambda x: x + 1), (lambda x: x * 3 if x else 0), (lambda x: (lambda y: y - 1)(x))
    assert [source_of(f).load()(5) for f in (one, two, outer)] == [6, 15, 4]


@pytest.mark.parametrize("answer", [object(), 1j, b"x", [object()], "x" * 300_000], ids=range(5))
def test_what_cannot_be_written_is_told(answer):
    written = write(answer)
    assert list(written) == ["unwritten"]
    with pytest.raises(ValueError, match="the answer could not be stored"):
        read(written)


def test_a_function_of_a_package_is_an_import():
    assert read(write(print)).load() is print and "import" in source_of(seed_of).text


PUBLIC = [
    ("Mesh", lambda: hl.Mesh, "from hybridlab import Mesh as it"),
    ("typed", lambda: hl.typed, "from hybridlab import typed as it"),
    ("even", lambda: hl.spans.even, "from hybridlab.front.spans import even as it"),
    ("step", lambda: hl.plans.step, "from hybridlab.front.plans import step as it"),
    ("token_order", lambda: hl.parallel.token_order, "from hybridlab.front.parallel import token_order as it"),
    ("there_and_back", lambda: megatron.there_and_back, "from hybridlab.labs.megatron import there_and_back as it"),
    ("seed_of", lambda: seed_of, "from hybridlab.labs.exercises.student import seed_of as it"),
    ("torch", lambda: torch.nn, "import torch.nn as it"),
]


@pytest.mark.parametrize("value, line", [one[1:] for one in PUBLIC], ids=[one[0] for one in PUBLIC])
def test_what_is_public_is_imported_from_where_it_is_public(value, line):
    it = value()
    source = source_of(lambda: it)
    assert line in source.text.splitlines() and source.load()() is it


def test_other_json_is_refused():
    for damaged in ({"function": 1}, {"mesh": 2}, {"what": 1}, {"set": [[1]]}, {"dict": [1]}, {"float": "x"}):
        with pytest.raises(ValueError, match="not an answer written by labs.export"):
            read(damaged)


# --- sources, as of a notebook ----------------------------------------------------------------------------------

NOTEBOOK = '''
import math
import numpy as np
from itertools import product as pairs
factor = 3

def helper(x):
    return factor * x

def mine(x):
    """Uses a module, an alias, a helper, and itself."""
    if x < 0:
        return mine(-x)
    return helper(x) + math.floor(np.float64(0.5)) + len(list(pairs([1], [2])))

class Base:
    def twice(self, x):
        return 2 * helper(x)

class Two(Base):
    @classmethod
    def apply(cls, x):
        return cls().twice(x)

small = lambda x: helper(x) - 1; other = lambda y: y

def outer(step):
    def inner(x):
        return x + step
    return inner

stepping = outer(5)
room = object()
def unwritable(x):
    return room
'''


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The names of cells that were run in __main__, their source known as IPython makes it known."""
    import linecache

    linecache.cache["<cell>"] = len(NOTEBOOK), None, NOTEBOOK.splitlines(keepends=True), "<cell>"
    names = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, "<cell>", "exec"), names)
    return names


@pytest.mark.ranks
@pytest.mark.parametrize("name, result", [("mine", 13), ("small", 11), ("stepping", 9)])
def test_a_function_comes_with_all_that_it_uses(notebook, name, result):
    source = source_of(notebook[name])
    there = textwrap.dedent(f"""
        from hybridlab.labs.exercises.source import Source
        print(Source({source.text!r}, {source.name!r}).load()(4))
    """)
    out = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True).stdout
    assert int(out) == result


def test_a_class_comes_with_its_bases(notebook):
    source = source_of(notebook["Two"].apply)
    assert source.name == "Two.apply" and source.load()(4) == 24


def test_what_a_function_needs_and_cannot_take_along_is_named(notebook):
    with pytest.raises(ValueError, match=r"it uses room \(object\), which cannot be stored"):
        source_of(notebook["unwritable"])


# --- export -----------------------------------------------------------------------------------------------------


def test_a_submission_holds_answers_and_nothing_about_the_machine(folder, tmp_path, capsys):
    labs.student("Ada Lovelace")
    labs.answer("naive.speedup", 1)
    labs.answer("megatron.gelu", {"gelu"})
    labs.answer("naive.slots", object())
    file = labs.export(tmp_path / "ada.json")
    assert "naive.slots is not in it: an object cannot be stored" in capsys.readouterr().out
    text, found = file.read_text(), load(file)
    assert found["answers"]["naive.speedup"] == 1 and found["answers"]["megatron.gelu"] == {"set": ["gelu"]}
    assert set(found) == {"form", "student", "seed", "versions", "answers"}
    assert (found["student"], found["seed"]) == ("Ada Lovelace", seed_of("ada  lovelace"))
    import getpass
    import socket

    assert not any(
        word in text for word in (os.getcwd(), str(tmp_path), socket.gethostname(), f'"{getpass.getuser()}"')
    )


def test_nothing_is_no_submission_and_a_bad_place_is_told(folder):
    with pytest.raises(ValueError, match="nothing to export"):
        labs.export(folder / "x.json")
    labs.answer("naive.speedup", 1)
    with pytest.raises(ValueError, match="cannot write /nowhere"):
        labs.export("/nowhere/x.json")


DAMAGED = {
    "": "damaged", "[" * 100_000: "damaged", "[]": "not a submission", '{"form": 2}': "not a submission",
    '{"form": 1, "student": 1.5, "seed": 0, "answers": {}}': "neither a name nor a number",
    '{"form": 1, "student": "Ada", "seed": 0, "answers": {}}': "its seed does not belong to its student",
}  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_file_that_is_no_submission_is_told_in_a_sentence(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=DAMAGED[text]):
        load(tmp_path / "x.json")
