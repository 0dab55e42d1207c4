"""The solutions of all exercises, for tests and for the instructor's edition. Students should read them last."""

from hybridlab.labs.exercises.all_tasks import of_all_rooms
from hybridlab.labs.exercises.solution import Solution

SOLUTIONS: dict[str, Solution] = of_all_rooms("solutions", "SOLUTIONS")
