"""A student's own numbers: a name or a number chooses the seed; without one, seed 0 gives the numbers of the
notebooks.
"""

import hashlib
import re

from hybridlab.labs.exercises import answers_file
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.task import Task

LARGEST = 10**18  # number of a student


def seed_of(student: str | int | None) -> int:
    """The seed of a student: a number is its own seed, a name gives one, and no student has 0.

    >>> seed_of(None), seed_of(17), seed_of("Ada") == seed_of(" ada "), seed_of("Ada") != seed_of("Bob")
    (0, 17, True, True)
    """
    if student is None or isinstance(student, int):
        return student or 0
    name = " ".join(student.split()).lower()
    return 1 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def seed() -> int:
    """The seed that counts on this machine."""
    return seed_of(answers_file.read()["student"])


def task(name: str) -> Task:
    """A task with this student's numbers.

    raises  ValueError when there is no such task
    """
    if name not in TASKS:
        raise ValueError(f"there is no exercise {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name].of(seed()) if TASKS[name].variants else TASKS[name]


def student(who: str | int) -> None:
    """Say who you are, with a name or a number; it chooses the numbers of some exercises, and is stored on
    this machine.

    0 means no student: the numbers of the notebooks. Exercises whose numbers change must be answered again.

    raises  ValueError for anything else
    """
    if isinstance(who, bool) or not isinstance(who, str | int) or (isinstance(who, int) and not 0 <= who < LARGEST):
        raise ValueError("a student is a name or a number, 0 or more: write labs.student('Ada') or labs.student(17)")
    if isinstance(who, str) and (not 0 < len(who.strip()) <= 80 or re.search("[\ud800-\udfff]", who)):
        raise ValueError("a name has 1 to 80 characters: write, for example, labs.student('Ada')")
    with answers_file.changing() as kept:
        before, kept["student"] = seed_of(kept["student"]), who or None
        after = seed_of(kept["student"])
        again = [name for name in kept["tasks"] if name in TASKS and _numbers(name, before) != _numbers(name, after)]
        for name in again:
            kept["tasks"][name]["right"] = False
    varied = sum(task.variants is not None for task in TASKS.values())
    print(f"{varied} exercises now have your own numbers." if after else "The numbers are those of the notebooks.")
    if again:
        print(f"Answer again: {', '.join(again)}.")


def _numbers(name: str, seed: int) -> dict:
    return TASKS[name].of(seed).numbers
