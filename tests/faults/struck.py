"""What `moments` strikes: commands, each with a folder of its own, and who takes part in them.

A command is a driver that this test starts. Its ranks belong to the driver, or to somebody whom the driver has started:
a notebook's kernel, or the process that checks a submission. The ranks are children of their warm parent.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import nbformat

from hybridlab.labs.exercises.student import seed_of
from hybridlab.labs.exercises.submission import FORM

ROOT = pathlib.Path(__file__).parents[2]
MARK = "HYBRIDLAB_MOMENT"  # in the surroundings of all that a try starts
TINY = ["--layers", "2", "--width", "16", "--heads", "2", "--context", "8", "--microbatches", "4"]
HYBRIDLAB = ["-m", "hybridlab"]
WARM, KERNEL, CHECKER = "hybridlab.world.processes.zygote", "ipykernel_launcher", "hybridlab.labs.exercises.regrade"
DEADLY = ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT")
ANYWHERE = [("rank", name) for name in (*DEADLY, "SIGSTOP")] + [("parent", "SIGKILL")]
ANYWHERE += [("driver", name) for name in ("SIGKILL", "SIGTERM", "SIGINT")]

STUDENTS = ("Ada", "Bob")
SUM = """
import torch

def my_sum(comm):
    x = torch.tensor([comm.rank + 1.0])
    comm.all_reduce(x)
    return x.item()
"""
CELLS = (
    "import hybridlab as hl",
    "small = dict(shape=hl.Shape(layers=2, width=16, heads=2, context=8), zero=1)\n"
    "print(hl.check(hl.Mesh(dp=2, pp=2), **small))",
    "with hl.ranks(3) as pool:\n    print(pool.run(lambda comm: [comm.barrier() for _ in range(100)] and comm.rank))",
)


class Command(NamedTuple):
    """What is started.

    words  behind the interpreter; {place} is the try's folder
    also   strikes beside those that every command suffers: (who, signal)
    """

    words: list[str]
    also: tuple[tuple[str, str], ...] = ()

    @property
    def strikes(self) -> list[tuple[str, str]]:
        return [*ANYWHERE, *self.also]


COMMANDS = {
    "check": Command([*HYBRIDLAB, "check", "--dp", "2", "--pp", "2", *TINY, "--zero", "1", "--optimizer", "adamw"]),
    "train": Command(
        [*HYBRIDLAB, "train", "--pp", "2", *TINY, "--steps", "60", "--every", "1", "--checkpoint", "{place}/kept"]
    ),
    "run": Command([*HYBRIDLAB, "run", "--ranks", "3", "--steps", "4"]),
    "grade": Command(
        [*HYBRIDLAB, "grade", "--json", "{place}/submissions"], (("submission", "SIGKILL"), ("submission", "SIGTERM"))
    ),
    "notebook": Command(
        ["-m", "jupyter", "execute", "{place}/cells.ipynb"], tuple(("kernel", name) for name in ("SIGKILL", "SIGINT"))
    ),
}


def begun(name: str, number: str, place: str):
    """The command, started; the folder of its checkpoints, and that of its temporary files."""
    folder = pathlib.Path(place)
    for one in ("room", "submissions", "runtime"):
        (folder / one).mkdir()
    _written(folder)
    process = subprocess.Popen(
        [sys.executable, *(word.replace("{place}", place) for word in COMMANDS[name].words)],
        cwd=ROOT,
        env=os.environ
        | {MARK: number, "TMPDIR": str(folder / "room"), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HYBRIDLAB_PROGRESS": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, folder / "kept", folder / "room"


def _written(folder: pathlib.Path):
    """Submissions and a notebook, as a course has them."""
    answer = {"function": {"name": "my_sum", "source": SUM}}
    for student in STUDENTS:
        whole = {"form": FORM, "student": student, "seed": seed_of(student), "versions": {}}
        whole["answers"] = {"start.all_reduce": answer}
        (folder / "submissions" / f"{student}.json").write_text(json.dumps(whole))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in CELLS])
    nbformat.write(book, folder / "cells.ipynb")


# --- who is there -----------------------------------------------------------------------------------------------


def marked(number: str) -> dict[int, str]:
    """{pid: command line} of everything that a try has started and that lives."""
    found = {}
    for one in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            folder = pathlib.Path("/proc", one)
            if f"{MARK}={number}\0".encode() in (folder / "environ").read_bytes():
                if "\nState:\tZ" not in (folder / "status").read_text():
                    found[int(one)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def there(driver: int, number: str, who: str) -> list[int]:
    """Who of a kind lives; ranks in order, which is that of their numbers."""
    if who == "driver":
        return [driver]
    every = marked(number)
    if who in ("kernel", "submission"):
        word = KERNEL if who == "kernel" else CHECKER
        return [pid for pid, line in every.items() if word in line]
    above = {pid: parent_of(pid) for pid, line in every.items() if WARM in line}
    parents = [pid for pid, its in above.items() if its not in above]
    return parents if who == "parent" else sorted(pid for pid, its in above.items() if its in parents)


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):  # it may end just now
        return int(pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    return 0
