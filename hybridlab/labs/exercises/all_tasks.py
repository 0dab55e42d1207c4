"""All exercises: the question, the check of an answer, and hints for a wrong answer.

A task's numbers are computed by the package, never typed. Its check returns the reply to one answer: whether it is
right, and one sentence. Hints come one at a time, the next with every wrong answer. The `TASKS` of a notebook are in
the `tasks` of its folder; the solutions are in `labs.exercises.all_solutions`.
"""

from importlib import import_module

from hybridlab.labs.exercises.task import Task

ROOMS = ("start", "one_device", "naive", "gpipe", "one_f_one_b", "interleaved", "zero_bubble", "asynchronous")
ROOMS += ("slices",)
ROOMS += ("collectives", "data_parallel", "zero", "out_of_core")
ROOMS += ("megatron", "matmul", "experts", "context", "convolution", "axonn", "layouts")
ROOMS += ("hybrid", "choosing", "sc21", "search", "capstone")


def of_all_rooms(file: str, name: str) -> dict:
    """The entries of all packages, joined: for each package, the table `name` in its `file`."""
    rooms = (import_module(f"hybridlab.labs.{room}.{file}") for room in ROOMS)
    return {task: one for room in rooms for task, one in getattr(room, name).items()}


TASKS: dict[str, Task] = of_all_rooms("tasks", "TASKS")
