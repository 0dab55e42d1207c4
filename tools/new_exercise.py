"""Write the stubs of a new exercise: a task, its solution with a wrong answer, cells and a test.

    python -m tools.new_exercise gpipe.idle            asks for one number
    python -m tools.new_exercise matmul.sum --ranks    asks for a program on ranks, compared with one device

The stubs already work: change their text, numbers and cases. The cells are placed after the last exercise of the
notebook; move them to the right place.
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat

from hybridlab.labs.exercises.all_tasks import ROOMS, TASKS
from tools.course import HOUSE

NUMBER = """\
    "{name}": {task}(
        "{words}: two ranks do three forwards each. How many are that together?",
        Number(lambda: 2 * 3, "forwards", slips=[(3, "That is one rank alone.")]),
        ("What does each of them do?", "Both do as many.", "Two times three."),
        objective="{words}: say here what one can do afterwards.",
        difficulty=1,
        minutes=2,
    ),
"""
PROGRAM = """\
    "{name}": {task}(
        "Write {my}(comm, x): x is this rank's partial sum, ranks are along i. Return the sum over all ranks, "
        f"the same on each of them. Your code is tested on {{{cases}[0]}}, then on others.",
        OnCases({attempt}, first_found, {cases}, "Sum and gradient are those of one device."),
        (
            "Which collective adds what all ranks have?",
            "hl.typed.all_reduce makes the sum, and knows its gradient.",
            'return hl.typed.all_reduce(comm, x, "i", to="I").',
        ),
        objective="{words}: say here what one can do afterwards.",
        difficulty=2,
        minutes=8,
    ),
"""
TRIAL_HEAD = '"""The code that students write here, run on ranks and compared with one device."""\n\n'
TRIAL = '''

class {noun}(NamedTuple):
    """The number of ranks along i, and the length of each partial sum."""

    size: int
    length: int

    @property
    def ranks(self) -> Mesh:
        return Mesh(i=self.size)

    def __str__(self):
        """
        >>> print({noun}(2, 4))
        2 ranks with 4 numbers each
        """
        return f"{{self.size}} ranks with {{self.length}} numbers each"


{cases} = ({noun}(2, 4), {noun}(3, 5))


@against_one_device
def {attempt}(run, answer, case):
    """The student's function on this rank: answer(comm, x) with this rank's partial sum."""
    parts, g = dense((case.size, case.length), 0), dense((case.length,), 1)
    x = parts[run.comm.rank].clone().requires_grad_()
    run.begin()
    y = answer(run.comm, x)
    own = [(x.detach(), "returned its own partial sum: which ranks have the others?")]
    run.result(y, parts.sum(0), "the sum", own, "does it contain each partial sum exactly once?")
    run.backward(y, g, "the sum", {{"x": (x, g, (), "what do all ranks do with the sum?")}})
'''
SOLVED_NUMBER = """\
    "{name}": Solution(
        'labs.answer("{name}", 2 * 3)',
        "Both ranks do three.",
        ((3, "one rank alone"), (7, "Too large")),
    ),
"""
SOLVED_PROGRAM = """\
    "{name}": Solution(
        \"\"\"\\
def {my}(comm, x):
    return hl.typed.all_reduce(comm, x, "i", to="I")


labs.answer("{name}", {my})\"\"\",
        "Each rank has a partial sum, and all ranks use the full sum in the same way.",
        (
            (Cell('def {my}(comm, x):\\n    return x\\n\\n\\nlabs.answer("{name}", {my})'), "its own partial sum"),
            (3, "your function itself"),
        ),
    ),
"""
TEST_NUMBER = """

def test_{short}_is_what_its_formula_says():
    from hybridlab.labs.exercises.all_tasks import TASKS

    assert TASKS["{name}"].check.right == 6
"""
TEST_PROGRAM = """

def test_{short}_is_tested_in_cases_that_the_question_does_not_name():
    from hybridlab.labs.{room}.trial import {cases}

    assert len({{str(case) for case in {cases}}}) > 1 and len({{case.ranks.size for case in {cases}}}) > 1
"""
EXERCISE = "from hybridlab.labs.exercises.{} import {}"
NEEDED = {  # the imports of a task, a trial and a solution, in addition to those of the room
    "tasks": {False: [EXERCISE.format("task", "Number")],
              True: ["from hybridlab.labs.trials.cases import OnCases, first_found",
                     "from hybridlab.labs.{room}.trial import {cases}, {attempt}"]},
    "trial": {True: ["from typing import NamedTuple", "from hybridlab.core.where.mesh import Mesh",
                     "from hybridlab.labs.trials.against import against_one_device, dense"]},
    "solutions": {False: [EXERCISE.format("solution", "Solution")],
                  True: [EXERCISE.format("solution", "Cell, Solution")]},
}  # fmt: skip


def write(name: str, ranks: bool = False, house: Path = HOUSE) -> list[Path]:
    """Write the stubs of an exercise; the files that were written.

    name   room's word, point, its own: "gpipe.idle"
    ranks  a program on ranks instead of one number
    house  the folder of the checkout

    raises  ValueError for a name that exists, or an unknown room
    """
    room, notebook = room_of(name)
    word, short = name.split(".")
    labs = house / "hybridlab" / "labs" / room
    tasks = labs / "tasks.py"
    about = dict(name=name, room=room, short=short, my=f"my_{short}", noun=short.title().replace("_", ""))
    about |= dict(cases=short.upper(), attempt=f"try_{short}", words=short.replace("_", " ").capitalize())
    about["task"] = f"{word}_task" if f"{word}_task" in tasks.read_text(encoding="utf-8") else "task"
    _insert(tasks, "TASKS", (PROGRAM if ranks else NUMBER).format(**about), _imports("tasks", ranks, about))
    solved = (SOLVED_PROGRAM if ranks else SOLVED_NUMBER).format(**about)
    _insert(labs / "solutions.py", "SOLUTIONS", solved, _imports("solutions", ranks, about))
    written = [tasks, labs / "solutions.py"]
    if ranks:
        written += _trial(labs, TRIAL.format(**about), _imports("trial", ranks, about))
    test = house / "tests" / "labs" / f"test_labs_{room}.py"
    head = test.read_text(encoding="utf-8") if test.exists() else f'"""The exercises of labs.{room}."""\n'
    test.write_text(head + (TEST_PROGRAM if ranks else TEST_NUMBER).format(**about), encoding="utf-8")
    written.append(test)
    ruff = [sys.executable, "-m", "ruff"]
    for step in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        subprocess.run([*ruff, *step, *map(str, written)], cwd=house, check=True)
    return [*written, _cells(house / "notebooks" / f"{notebook}.ipynb", about, ranks)]


def room_of(name: str) -> tuple[str, str]:
    """(the room, the notebook) of a new exercise.

    raises  ValueError if it exists already, or if no exercise has this room

    >>> room_of("1f1b.new")
    ('one_f_one_b', '12_1f1b')
    """
    word, point, short = name.partition(".")
    if name in TASKS:
        raise ValueError(f"there is an exercise {name} already: choose another name")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", short):
        raise ValueError(
            f"{name!r} is not the name of an exercise: write its folder, a dot and a word, as in gpipe.idle"
        )
    notebooks = {task.partition(".")[0]: one.notebook for task, one in TASKS.items()}
    if word not in notebooks:
        raise ValueError(f"no room has exercises called {word}: choose one of {', '.join(notebooks)}")
    other = next(task for task in TASKS if task.startswith(f"{word}."))
    room = next(room for room in ROOMS if other in sys.modules[f"hybridlab.labs.{room}.tasks"].TASKS)
    return room, notebooks[word]


def _imports(file: str, ranks: bool, about: dict) -> str:
    return "".join(f"{line}\n" for line in NEEDED[file].get(ranks, [])).format(**about)


def _insert(file: Path, table: str, entry: str, imports: str):
    """Put an entry at the end of a table, and imports before the first; a sorter merges them with the others."""
    text = file.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and node.target.id == table:
            end = node.end_lineno - 1  # the line of its brace
    lines = text.splitlines(keepends=True)
    lines[end:end] = [entry]
    file.write_text(_with(imports, "".join(lines)), encoding="utf-8")


def _with(imports: str, text: str) -> str:
    """A module's text with more imports after its docstring."""
    docstring = ast.parse(text).body[0].end_lineno
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:docstring], "\n", imports, *lines[docstring + 1 :]])


def _trial(labs: Path, stub: str, imports: str) -> list[Path]:
    """The stub at the end of the room's trial; a new file is named in the room's docstring."""
    trial, plate = labs / "trial.py", labs / "__init__.py"
    is_new = not trial.exists()
    text = TRIAL_HEAD if is_new else trial.read_text("utf-8")
    trial.write_text(_with(imports, text.rstrip("\n") + "\n\n") + stub.lstrip("\n"), encoding="utf-8")
    if not is_new:
        return [trial]
    told = plate.read_text(encoding="utf-8")
    end = told.index('"""', 3)
    told = f"{told[:end].rstrip()}\n\n`trial` runs the students' code on ranks.\n{told[end:]}"
    plate.write_text(told, encoding="utf-8")
    return [trial, plate]


def _cells(path: Path, about: dict, ranks: bool) -> Path:
    """A heading, the question and the cell for the answer, after the last exercise of the notebook."""
    book = nbformat.read(path, as_version=4)
    name, key = about["name"], about["name"].replace(".", "-").replace("_", "-")
    heading = f"## Exercise: {about['words'].lower()}  {'★★ 8' if ranks else '★ 2'} minutes"
    shipped = f'def {about["my"]}(comm, x):\n    ...  # the sum\n\nlabs.answer("{name}", {about["my"]})'
    new = nbformat.v4
    made = [
        new.new_markdown_cell(heading, id=f"{key}-exercise"),
        new.new_code_cell(f'labs.question("{name}")', id=f"{key}-question"),
        new.new_code_cell(
            shipped if ranks else f'labs.answer("{name}", None)', id=f"{key}-answer", metadata={"tags": ["exercise"]}
        ),
    ]
    last = max(place for place, cell in enumerate(book.cells) if "exercise" in cell.metadata.get("tags", ()))
    book.cells[last + 1 : last + 1] = made
    path.write_text(nbformat.writes(book) + "\n", encoding="utf-8")
    return path


def main():
    parser = argparse.ArgumentParser(prog="python -m tools.new_exercise", description=__doc__.partition("\n")[0])
    parser.add_argument("name", help="the room's word, a point, its own name: gpipe.idle")
    parser.add_argument("--ranks", action="store_true", help="a program on ranks, instead of one number")
    given = parser.parse_args()
    try:
        written = write(given.name, given.ranks)
    except ValueError as error:
        sys.exit(f"{error}.")
    print("\n".join(f"wrote {path.relative_to(HOUSE)}" for path in written))
    print(f'Next: python -m pytest tests/labs/test_exercises.py -k "{given.name}" --slow --long -q')


if __name__ == "__main__":
    main()
