"""Grading submissions: every answer is checked again, each file in a separate process, with a time limit.

The files come from `labs.export`. They contain no verdicts. If a submission crashes, hangs, prints without
end or is damaged, only its own row is lost.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

import hybridlab
from hybridlab.labs.exercises import graded_before
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.confined import UNSAFE
from hybridlab.labs.exercises.graded_before import FOLDER
from hybridlab.labs.exercises.progress import by_notebook
from hybridlab.labs.exercises.submission import load
from hybridlab.labs.exercises.task import TOO_SLOW
from hybridlab.world.explain.faults import OUT_OF_MEMORY, name_of_signal
from hybridlab.world.explain.supervise import NO_PROGRESS, NO_REPORT

HOME = str(Path(hybridlab.__file__).parent.parent)
SECONDS = 300.0  # for one submission
LONGEST = 86_400.0  # the longest time that may be given
CONFINED = ("-m", "hybridlab.labs.exercises.confined")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # needed for namespaces
SWEEP = 3.0  # seconds in which it ends the processes that it has started
LONGEST_OUTPUT = 1_000_000  # the most bytes that are read from the output of a submission's process
LONGEST_LINE = 3000  # letters of a reply, in each of its lines
MOST_NAMED = 20  # files that are not read, by name
BUSY = (NO_PROGRESS, NO_REPORT, TOO_SLOW, OUT_OF_MEMORY, "MemoryError")  # in replies that a busy machine can cause
MARKS = {True: "+", False: "-", None: "?"}
NOT_TAMPER_PROOF = (
    "The answers ran on this machine as this user{}. That keeps mistakes apart. It does not stop a submission that "
    "sets out to deceive: this is not tamper-proof. Where grades count, read the code, or grade in a container."
)


@dataclass
class Row:
    """One submission: its file, the student named in it, {task: (right, reply)}, and the reason if it was not
    graded."""

    file: str
    student: str = ""
    tasks: dict[str, tuple[bool | None, str]] = field(default_factory=dict)
    problem: str = ""
    behind: tuple[str, ...] = ()  # the restrictions that kept it apart from the rest of this machine
    made_with: str = ""  # the version of this package

    @property
    def right(self) -> int:
        return sum(right is True for right, _ in self.tasks.values())


def grade(
    folder: str | Path,
    seconds: float = SECONDS,
    on_row: Callable[[Row], object] = lambda row: None,
    jobs: int = 1,
    tasks: Sequence[str] | None = None,
    again: bool = True,
) -> list[Row]:
    """A row for every submission (*.json, not hidden) in a folder, in the order of their names.

    folder   of the submissions
    seconds  time limit for one of them
    on_row   is called with each row when it is ready
    jobs     the number of submissions that are checked at the same time
    tasks    the exercises that count; None: all
    again    whether to check submissions again that were graded before (`graded_before`)

    raises  ValueError when there is no such folder, or no submission in it
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs} is invalid: at least one submission must be checked at a time. Give 1 or more.")
    if not 0 < seconds <= LONGEST:
        raise ValueError(f"{seconds:g} seconds is not a valid time limit: give more than 0, and at most a day")
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is {'a file' if folder.is_file() else 'not a folder'}: name the folder of submissions"
        )
    files = submissions(folder)
    if not files:
        other = f"; {told}" if (told := _not_read(folder)) else ""
        raise ValueError(
            f"there is no submission in {folder}: let students write one with labs.export('name.json'){other}"
        )
    read = [(file, _read(file)) for file in files]  # read all submissions before the first can change another one
    rows = {}
    with ThreadPoolExecutor(jobs) as pool:
        begun = {pool.submit(_row, file, _only(one, tasks), seconds, again): file for file, one in read}
        for done in as_completed(begun):
            rows[begun[done]] = done.result()
            on_row(rows[begun[done]])
    return _told_apart([rows[file] for file, _ in read])


def _told_apart(rows: list[Row]) -> list[Row]:
    """The rows; if several files have the same name once it is printable, the later ones get a number: each row has its
    own page."""
    taken: set[str] = set()
    for row in rows:
        stem, end = row.file.removesuffix(".json"), ".json" if row.file.endswith(".json") else ""
        names = (f"{stem} ({number}){end}" if number > 1 else row.file for number in range(1, len(rows) + 1))
        row.file = next(name for name in names if name.removesuffix(".json") not in taken)
        taken.add(row.file.removesuffix(".json"))
    return rows


def _only(submission: dict | str, tasks: Sequence[str] | None) -> dict | str:
    """A submission with the answers that count."""
    if tasks is None or isinstance(submission, str):
        return submission
    return submission | {"answers": {name: one for name, one in submission["answers"].items() if name in tasks}}


def _row(file: Path, submission: dict | str, seconds: float, again: bool) -> Row:
    """The row of a submission: a kept one, or a new one."""
    if isinstance(submission, str):
        return _graded(file, submission, seconds)
    name = graded_before.key(submission, seconds)
    if not again and (before := _kept(graded_before.found(file.parent, name), file)):
        return before
    row = _graded(file, submission, seconds)
    if not row.problem and not any(word in reply for _, reply in row.tasks.values() for word in BUSY):
        graded_before.keep(file.parent, name, asdict(row))
    return row


def _kept(fields, file: Path) -> Row | None:
    """A row that was kept; None if there is none, or it is damaged."""
    try:
        tasks = {task: (right, str(reply)) for task, (right, reply) in fields["tasks"].items() if right in MARKS}
        return Row(**fields | {"file": _printable(file.name), "tasks": tasks, "behind": tuple(fields["behind"])})
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def submissions(folder: Path) -> list[Path]:
    """The files that are graded."""
    return sorted(file for file in folder.glob("*.json") if not file.name.startswith("."))


def _read(file: Path) -> dict | str:
    """A submission, or the mistake in its file."""
    if file.is_symlink():
        return "a link to another file: hand in the file itself"
    try:
        return load(file)
    except ValueError as error:
        return str(error)


def _graded(file: Path, submission: dict | str, seconds: float) -> Row:
    name = _printable(file.name)
    if isinstance(submission, str):
        return Row(name, problem=_printable(submission, 300))
    student = submission["student"]
    row = Row(name, "" if student is None else _printable(str(student)).strip())
    versions = submission.get("versions")
    row.made_with = _printable(str(versions.get("hybridlab", ""))) if isinstance(versions, dict) else ""
    has, *lines = _alone(submission, seconds, row)
    row.behind = tuple(has)
    for line in lines:
        try:
            task, right, reply = json.loads(line)
            if right is not None and not isinstance(right, bool):
                raise TypeError
            if task in submission["answers"] and task not in row.tasks:
                row.tasks[task] = right, "\n".join(_printable(line, LONGEST_LINE) for line in str(reply).split("\n"))
        except (ValueError, TypeError):
            row.problem = row.problem or "its process returned something other than verdicts"
    missing = [_printable(task) for task in submission["answers"] if task in TASKS and task not in row.tasks]
    if missing:
        row.problem = f"{row.problem or 'its process ended early'}; at {missing[0]}"
    return row


def _printable(text: str, most: int = 80) -> str:
    """The text with only characters that a terminal prints."""
    return "".join(one if one.isprintable() else "�" for one in text)[:most]


def _alone(submission: dict, seconds: float, row: Row) -> list:
    """The restrictions of the sandbox (see `confined`), then the lines of a fresh interpreter that checks one
    submission there; an error becomes the row's problem. No process of the submission survives."""
    files = tempfile.TemporaryFile, tempfile.TemporaryFile
    with tempfile.TemporaryDirectory(prefix="hybridlab-grade-") as room, files[0]() as given, files[1]() as told:
        given.write(json.dumps(submission).encode())
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, *CONFINED, room, str(os.getpid())],
            stdin=given,
            stdout=told,
            stderr=subprocess.DEVNULL,
            cwd=room,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join([HOME, *filter(None, sys.path)])},
            start_new_session=True,
        )
        try:
            row.problem = _ended(process.wait(seconds))
        except subprocess.TimeoutExpired:
            row.problem = f"stopped after {seconds:g} s"
        finally:
            _kill(process)
        told.seek(0)
        has, *lines = told.read(LONGEST_OUTPUT).decode("utf-8", "replace").splitlines() or ["[]"]
    return [json.loads(has), *lines]


def _ended(code: int) -> str:
    if code == UNSAFE:
        return (
            "not graded: you are root, and this system gives no namespaces, so it could write anything; grade as a user"
        )
    if code > 128:
        return f"its process was killed by {name_of_signal(code - 128)}"
    return f"its process ended with code {code}" if code else ""


def _kill(process):
    """End the process and all its descendants."""
    if process.poll() is None:
        process.terminate()  # it ends its children before it ends
        try:
            process.wait(SWEEP)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


# --- the table --------------------------------------------------------------------------------------------------


def table(rows: list[Row], tasks: Sequence[str] = tuple(TASKS)) -> str:
    """Students × tasks: + right, - not, ? cannot be repeated, . not answered; notebook by notebook."""
    books = {book: kept for book, its in by_notebook().items() if (kept := [task for task in its if task in tasks])}
    heads = [(book[:2], max(len(tasks), 2)) for book, tasks in books.items()]
    names = [row.student or row.file for row in rows]
    wide = max(map(len, ["student", *names]))
    lines = [f"{'student':<{wide}}  {'  '.join(f'{head:<{room}}' for head, room in heads)}  right"]
    for name, row in zip(names, rows):
        marks = ["".join(_mark(row, task) for task in tasks) for tasks in books.values()]
        shown = "  ".join(f"{its:<{room}}" for its, (_, room) in zip(marks, heads))
        lines.append(f"{name:<{wide}}  {shown}  {row.right:>3} of {len(tasks)}")
        lines += [f"{'':<{wide}}  {row.file}: {row.problem}"] if row.problem else []
    legend = [f"{book[:2]}  {' '.join(task.partition('.')[2] for task in tasks)}" for book, tasks in books.items()]
    marks = "+ right, - not right, ? cannot be repeated, . not answered; from left to right:"
    return "\n".join([*lines, "", marks, *legend])


def _mark(row: Row, task: str) -> str:
    return MARKS[row.tasks[task][0]] if task in row.tasks else "."


def remarks(folder: str | Path, rows: list[Row]) -> list[str]:
    """Remarks for a teacher: files that were not read, students with two files, other versions."""
    told, names, versions = [_not_read(Path(folder))], {}, {}
    for row in rows:
        names.setdefault(" ".join(row.student.split()).lower(), []).append(row)
        versions.setdefault(row.made_with, []).append(row.file)
    for name, its in names.items():
        if name and len(its) > 1:
            told.append(f"two files or more of {its[0].student}: {', '.join(row.file for row in its)}")
    for version, files in versions.items():
        if version not in ("", hybridlab.__version__):
            told.append(f"made with hybridlab {version}, graded with {hybridlab.__version__}: {', '.join(files)}")
    return [one for one in told if one]


def _not_read(folder: Path) -> str:
    """The other files in the folder."""
    read = {file.name for file in submissions(folder)}
    others = sorted(one.name + "/" * one.is_dir() for one in folder.iterdir() if one.name not in {*read, FOLDER})
    more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    names = ", ".join(map(_printable, others[:MOST_NAMED]))
    return f"not read: {names}{more} (a submission is a file *.json in this folder itself)" if others else ""


def as_json(rows: list[Row], told: list[str], tasks: Sequence[str] = tuple(TASKS)) -> dict:
    """The output of --json."""
    students = [asdict(row) | {"right": row.right} for row in rows]
    for one in students:
        one["tasks"] = {task: {"right": right, "reply": reply} for task, (right, reply) in one["tasks"].items()}
    return {"students": students, "of": len(tasks), "remarks": told, "note": note(rows)}


def note(rows: list[Row]) -> str:
    """The restrictions on the submissions, and those that were not available."""
    behind = [row.behind for row in rows if row.behind]
    shared = [what for what in behind[0] if all(what in one for one in behind)] if behind else []
    return NOT_TAMPER_PROOF.format(f", with {', '.join(shared)}; system calls are not filtered" if shared else "")
