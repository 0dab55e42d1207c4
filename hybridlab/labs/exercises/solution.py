"""A solution: the correct cell, the reason, and known wrong answers with their replies."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template


class Cell(str):
    """The text of a notebook's cell that answers an exercise: it ends with `labs.answer("task", …)`."""

    def but(self, right: str, wrong: str) -> "Cell":
        """The cell with one mistake: a mutant of a solution.

        raises  ValueError when the cell does not contain the text that is to be changed

        >>> Cell('labs.answer("a", 1 + 2)').but("+", "-")
        'labs.answer("a", 1 - 2)'
        """
        if right not in self:
            raise ValueError(f"the cell does not contain {right!r}")
        return Cell(self.replace(right, wrong))


@dataclass(frozen=True)
class Solution:
    """The cell that replaces a notebook's exercise cell, and one sentence that explains it.

    cell   may use names that the notebook has defined before; $name stands for a number that varies (`Task.numbers`)
    wrong  (an answer, or the Cell that gives it; a part of the reply to it), for the numbers of seed 0
    also   other answers that are right
    """

    cell: str
    why: str
    wrong: tuple[tuple[object, str], ...]
    also: tuple = ()

    def with_numbers(self, numbers: Mapping) -> Cell:
        """The cell for the numbers of one student; `TASKS[task].numbers` are those of the notebooks.

        >>> Solution('labs.answer("a", $ranks - 1)', "One rank less.", ()).with_numbers({"ranks": 4})
        'labs.answer("a", 4 - 1)'
        """
        return Cell(Template(self.cell).substitute(numbers) if numbers else self.cell)
