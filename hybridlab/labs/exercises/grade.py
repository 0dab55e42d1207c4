"""Submissions graded: every answer is checked again, each file in a process of its own, with a time limit.

The files come from `labs.export`. No verdict in them is believed; there is none. A submission that crashes, hangs,
prints without end or is damaged costs its own row.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import hybridlab
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.progress import by_notebook
from hybridlab.labs.exercises.submission import load

HOME = str(Path(hybridlab.__file__).parent.parent)
SECONDS = 300.0  # for one submission
LONGEST_OUTPUT = 1_000_000  # bytes that are read of what a submission's process tells
MARKS = {True: "+", False: "-", None: "?"}
NOT_TAMPER_PROOF = (
    "The answers ran on this machine as this user. That keeps honest mistakes apart. It does not stop a submission "
    "that sets out to deceive: this is not tamper-proof. Where grades count, read the code, or grade in a container."
)


@dataclass
class Row:
    """One submission: its file, who says it is theirs, {task: (right, reply)}, and what kept it from being graded."""

    file: str
    student: str = ""
    tasks: dict[str, tuple[bool | None, str]] = field(default_factory=dict)
    problem: str = ""

    @property
    def right(self) -> int:
        return sum(right is True for right, _ in self.tasks.values())


def grade(folder: str | Path, seconds: float = SECONDS, on_row=lambda row: None) -> list[Row]:
    """A row for every submission (*.json) in a folder, in the order of their names; `on_row` sees each as it is ready.

    raises  ValueError when there is no such folder, or no submission in it
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is {'a file' if folder.is_file() else 'no folder'}: name the folder of submissions")
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"there is no submission in {folder}: students write one with labs.export('name.json')")
    rows = []
    for file in files:
        rows.append(_graded(file, seconds))
        on_row(rows[-1])
    return rows


def _graded(file: Path, seconds: float) -> Row:
    try:
        submission = load(file)
    except ValueError as error:
        return Row(file.name, problem=str(error))
    student = submission["student"]
    row = Row(file.name, "" if student is None else "".join(filter(str.isprintable, str(student)))[:80])
    lines, row.problem = _alone(file, seconds)
    for line in lines:
        try:
            task, right, reply = json.loads(line)
            row.tasks[task] = None if right is None else bool(right), str(reply)
        except (ValueError, TypeError):
            row.problem = row.problem or "its process has told something else than verdicts"
    missing = [task for task in submission["answers"] if task in TASKS and task not in row.tasks]
    if missing:
        row.problem = f"{row.problem or 'its process ended early'}; at {missing[0]}"
    return row


def _alone(file: Path, seconds: float) -> tuple[list[str], str]:
    """(lines, what went wrong) of a fresh interpreter that checks one file; nothing of it lives on."""
    with tempfile.TemporaryDirectory(prefix="hybridlab-grade-") as room, tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "hybridlab.labs.exercises.regrade", str(file.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.DEVNULL,
            cwd=room,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([HOME, *filter(None, sys.path)])},
            start_new_session=True,
        )
        try:
            problem = _ended(process.wait(seconds))
        except subprocess.TimeoutExpired:
            problem = f"stopped after {seconds:g} s"
        finally:
            _kill(process)
        told.seek(0)
        lines = told.read(LONGEST_OUTPUT).decode("utf-8", "replace").splitlines()
    return lines, problem


def _ended(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended with code {code}" if code else ""


def _kill(process):
    """End the process and its session; its ranks end with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


# --- the table --------------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """Students × tasks: + right, - not, ? cannot be repeated, . not answered; notebook by notebook."""
    books = by_notebook()
    heads = [(book[:2], max(len(tasks), 2)) for book, tasks in books.items()]
    names = [row.student or row.file for row in rows]
    wide = max(map(len, ["student", *names]))
    lines = [f"{'student':<{wide}}  {'  '.join(f'{head:<{room}}' for head, room in heads)}  right"]
    for name, row in zip(names, rows):
        marks = ["".join(_mark(row, task) for task in tasks) for tasks in books.values()]
        shown = "  ".join(f"{its:<{room}}" for its, (_, room) in zip(marks, heads))
        lines.append(f"{name:<{wide}}  {shown}  {row.right:>3} of {len(TASKS)}")
        lines += [f"{'':<{wide}}  {row.file}: {row.problem}"] if row.problem else []
    legend = [f"{book[:2]}  {' '.join(task.partition('.')[2] for task in tasks)}" for book, tasks in books.items()]
    marks = "+ right, - not right, ? cannot be repeated, . not answered; from left to right:"
    return "\n".join([*lines, "", marks, *legend])


def _mark(row: Row, task: str) -> str:
    return MARKS[row.tasks[task][0]] if task in row.tasks else "."


def as_json(rows: list[Row]) -> dict:
    """What --json prints."""
    students = [asdict(row) | {"right": row.right} for row in rows]
    for one in students:
        one["tasks"] = {task: {"right": right, "reply": reply} for task, (right, reply) in one["tasks"].items()}
    return {"students": students, "of": len(TASKS), "note": NOT_TAMPER_PROOF}
