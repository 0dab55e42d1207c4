"""Submissions graded again: no verdict is believed, and one bad file costs one row."""

import contextlib
import json
import os
import time

import pytest

import hybridlab
from hybridlab.cli.main import main
from hybridlab.labs.exercises import grade as grading
from hybridlab.labs.exercises.all_solutions import SOLUTIONS
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.student import seed_of
from hybridlab.labs.exercises.submission import FORM

ORDER = """
def my_order(rank, ranks, microbatches):
    w = min(ranks - 1 - rank, microbatches)
    return "F" * w + "FB" * (microbatches - w) + "B" * w
"""


def function(source, name="f"):
    return {"function": {"name": name, "source": source}}


def submit(folder, file, answers, student=None, **more):
    whole = {"form": FORM, "student": student, "seed": seed_of(student), "versions": {}, "answers": answers} | more
    (folder / f"{file}.json").write_text(json.dumps(whole))


def graded(folder, seconds=60.0):
    return {row.file.removesuffix(".json"): row for row in grading.grade(folder, seconds)}


def alive():
    """Processes that still sit in the room of a submission: its own, its ranks and their parent."""
    rooms = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            rooms += [pid] if "hybridlab-grade-" in os.readlink(f"/proc/{pid}/cwd") else []
    return rooms


@pytest.mark.long
@pytest.mark.ranks
def test_answers_are_checked_again_and_bad_files_cost_their_own_row(tmp_path):
    noisy = 'print("x" * 10_000_000)\ndef f(*_):\n    print("y" * 10_000_000)\n    return "FB"\n'
    submit(tmp_path, "good", {"naive.slots": 5, "1f1b.order": function(ORDER, "my_order"), "no.such": 1}, "Ada")
    submit(tmp_path, "boast", {"naive.slots": 1000}, "Bob", verdicts={"naive.slots": True}, right=60)
    crash, broken = function("import os\nos._exit(3)"), function("def f(:")
    bad = {"1f1b.order": function(noisy), "start.swap": crash, "hybrid.builder": broken}
    submit(tmp_path, "bad", bad | {"pipedream.delay": {"unwritten": "it uses room"}, "naive.speedup": 1})
    (tmp_path / "damaged.json").write_text("{")
    (tmp_path / "notes.txt").write_text("not looked at")
    rows = graded(tmp_path)
    assert list(rows) == ["bad", "boast", "damaged", "good"]
    assert (
        rows["good"].student == "Ada"
        and rows["good"].right == 1 + (TASKS["naive.slots"].of(seed_of("Ada")).check(5)[0])
    )
    assert rows["good"].tasks["1f1b.order"][0] is True and "no.such" not in rows["good"].tasks
    assert rows["boast"].right == 0
    for task, piece in (
        ("1f1b.order", "Make it 4, 4, 8"),
        ("start.swap", "exit code 3"),
        ("hybrid.builder", "SyntaxError"),
    ):
        right, reply = rows["bad"].tasks[task]
        assert right is False and piece in reply, (task, reply)
    assert rows["bad"].tasks["pipedream.delay"] == (None, "the answer could not be stored: it uses room")
    assert rows["bad"].tasks["naive.speedup"][0] is True, "what comes after them is graded too"
    assert rows["damaged"].problem == "damaged, not JSON: export it again" and rows["damaged"].tasks == {}


@pytest.mark.long
@pytest.mark.ranks
def test_what_hangs_is_stopped_and_leaves_nothing_behind(tmp_path):
    """Each answer has ten seconds, and all of them together what the submission has."""
    slow = function("import time\ndef f(*_):\n    time.sleep(600)\n")
    submit(tmp_path, "slow", {"naive.speedup": 1, "1f1b.order": slow, "pipedream.delay": slow, "hybrid.builder": slow})
    start = time.monotonic()
    (row,) = grading.grade(tmp_path, seconds=13.0)
    assert time.monotonic() - start < 23
    assert row.tasks["naive.speedup"][0] is True and row.problem.startswith("stopped after 13 s; at ")
    assert all("no result after 10 s" in reply for right, reply in row.tasks.values() if not right)
    time.sleep(1)
    assert alive() == []


def test_the_table_has_a_row_for_each_student_and_a_mark_for_each_task():
    rows = [
        grading.Row("a.json", "Ada", {"naive.slots": (True, ""), "naive.speedup": (False, "")}),
        grading.Row("b.json", "", {"start.swap": (None, "")}, "stopped after 9 s; at start.swap"),
    ]
    head, ada, other, problem, *rest = grading.table(rows).splitlines()
    place = head.index(" 10 ") + 1
    assert ada.startswith("Ada") and ada[place : place + 7] == ".+.-..." and ada.endswith(f"1 of {len(TASKS)}")
    assert other.startswith("b.json") and "?" in other and problem.strip() == "b.json: stopped after 9 s; at start.swap"
    assert "10  utilisation slots engine speedup clinic balance bottleneck" in rest


@pytest.mark.ranks
def test_the_command_prints_the_table_and_says_what_it_is_not(tmp_path, capsys):
    submit(tmp_path, "ada", {"naive.slots": 5}, None)
    assert main(["grade", str(tmp_path), "--json"]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out.splitlines()[-1])
    assert "not tamper-proof" in told.out and "ada.json: 1 right" in told.err
    assert found["students"][0]["tasks"]["naive.slots"] == {"right": True, "reply": "5 slots."}
    assert found["students"][0]["right"] == 1 and "not tamper-proof" in found["note"]


@pytest.mark.long
@pytest.mark.ranks
def test_what_a_teacher_should_know_beside_the_table_is_told_in_a_line_each(tmp_path, capsys):
    submit(tmp_path, "ada", {}, "Ada")
    submit(tmp_path, "again", {}, " ada ", versions={"hybridlab": "0.0.9"})
    submit(tmp_path, "bob", {}, "Bob", versions={"hybridlab": hybridlab.__version__})
    submit(tmp_path, "odd", {}, versions=["0"])
    (tmp_path / "group").mkdir()
    for name in ("x.JSON", "x.ipynb", "x.zip", "x.txt", ".x.json", "._x.json"):
        (tmp_path / name).write_text("{}")
    assert main(["grade", str(tmp_path), "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[-1])
    assert [one["file"] for one in found["students"]] == ["ada.json", "again.json", "bob.json", "odd.json"]
    assert found["remarks"] == [
        "not read: ._x.json, .x.json, group/, x.JSON, x.ipynb, x.txt, x.zip (a submission is a file *.json in this "
        "folder itself)",
        "two files or more of Ada: ada.json, again.json",
        f"made with hybridlab 0.0.9, graded with {hybridlab.__version__}: again.json",
    ]
    assert set(found["remarks"]) <= set(lines)


def test_a_folder_without_a_submission_says_what_is_in_it(tmp_path):
    (tmp_path / ".x.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no submission in .*labs.export\('name.json'\); not read: .x.json \("):
        grading.grade(tmp_path)
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text("")
    with pytest.raises(ValueError, match="18.txt and 11 more"):
        grading.grade(tmp_path)


BAD = [("nowhere", "is not a folder: name the folder"), (".", "there is no submission in")]


@pytest.mark.parametrize("folder, piece", BAD)
def test_a_bad_folder_ends_in_one_sentence(tmp_path, folder, piece, capsys):
    assert main(["grade", str(tmp_path / folder)]) == 2
    assert piece in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.ranks
def test_all_solutions_in_one_submission_are_right_from_answer_to_grade(tmp_path, monkeypatch):
    """The way of an answer: cell, record, export, a process of its own."""
    from test_exercises import run_cell

    from hybridlab import labs

    monkeypatch.setenv("HYBRIDLAB_PROGRESS", str(tmp_path / "kept"))
    labs.student("Ada")
    seed = seed_of("Ada")
    for task, one in SOLUTIONS.items():
        assert run_cell(one.with_numbers(TASKS[task].of(seed).numbers)).right, task
    (tmp_path / "in").mkdir()
    labs.export(tmp_path / "in" / "ada.json")
    (row,) = grading.grade(tmp_path / "in")
    assert {task: told for task, told in row.tasks.items() if told[0] is not True} == {} and not row.problem
    assert row.right == len(TASKS)


CELLS = [
    "import torch\nimport hybridlab as hl\nfrom hybridlab import labs",
    "def phase(letter, count):\n    return letter * count",
    """\
def my_order(rank, ranks, microbatches):
    w = min(ranks - 1 - rank, microbatches)
    return phase("F", w) + phase("FB", microbatches - w) + phase("B", w)

labs.answer("1f1b.order", my_order)""",
    SOLUTIONS["megatron.pair"].cell,
    "labs.answer('hybrid.builder', lambda p, t, d: hl.Mesh(pp=p, dp=d, tp=t).groups('dp'))",
    "labs.answer('1f1b.order', lambda rank, ranks, microbatches: labs)",
    "print(labs.export('ada.json'))",
]


@pytest.mark.long
@pytest.mark.notebooks
def test_what_was_written_in_cells_of_a_notebook_is_graded_without_it(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("HYBRIDLAB_PROGRESS", str(tmp_path / "kept"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))  # as torch names one, once imported
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    replies = [cell.outputs[0].data["text/plain"][:5] for cell in book.cells[2:6]]
    assert replies == ["Right", "Right", "Right", "Not y"]
    (row,) = grading.grade(tmp_path)
    assert {task: right for task, (right, _) in row.tasks.items()} == dict.fromkeys(
        ("1f1b.order", "megatron.pair", "hybrid.builder"), True
    ), row
