"""A task: one exercise with the check of an answer; and the most common check, for one number.

The numbers of some tasks vary from student to student. Such a task is written once, as a function of its numbers, and
question, check, slips and hints follow from them (`varying`). Seed 0 is the task that the notebooks show.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, cached_property

Verdict = tuple[bool, str]
TOO_SLOW = "Too slow: no result after"  # how the reply to an answer that takes too long begins
ROUNDED = 0.001  # a relative tolerance below this asks for an exact number


@dataclass(frozen=True)
class Task:
    """One exercise: the question, the check of an answer, and three hints; the last one is nearly the answer.

    objective   the skill after it, in one line
    difficulty  1 to 3; a notebook's heading shows as many stars
    notebook    the name of its file, without .ipynb
    numbers     the numbers that vary from student to student, with this student's values
    starter     the notebook's code that is to be changed; unchanged it does not count as a try
    about       {words of a reply: the hint about that mistake}, which comes before the three; see `failures`
    """

    question: str
    check: Callable[[object], Verdict]
    hints: tuple[str, str, str]
    _: KW_ONLY
    objective: str
    difficulty: int
    minutes: int
    notebook: str
    numbers: dict[str, float] = field(default_factory=dict)
    variants: Callable[[int], "Task"] | None = None
    starter: str | list[str] | None = None
    about: dict[str, str] = field(default_factory=dict)

    def of(self, seed: int) -> "Task":
        """The task as a student with this seed has it."""
        return self.variants(seed) if self.variants else self


def varying(make: Callable[..., Task], **choices) -> Task:
    """A task with numbers chosen by a seed: `make(**numbers)`, each number one of its `choices`, for seed 0 the first.

    >>> def ask(ranks):
    ...     about = dict(objective="Add.", difficulty=1, minutes=1, notebook="00_start")
    ...     return Task(f"1 + {ranks}?", Number(lambda: 1 + ranks), ("Count.", "Begin at 1.", f"{1 + ranks}."), **about)
    >>> task = varying(ask, ranks=(4, 5, 6))
    >>> task.question, {task.of(seed).question for seed in range(50)} == {"1 + 4?", "1 + 5?", "1 + 6?"}
    ('1 + 4?', True)
    """

    @cache
    def of(seed: int) -> Task:
        numbers = {name: values[_place(seed, make.__name__, name, len(values))] for name, values in choices.items()}
        return replace(make(**numbers), numbers=numbers)

    return replace(of(0), variants=of)


def _place(seed: int, task: str, number: str, count: int) -> int:
    """The index of the choice; the same on every machine and with every version of Python."""
    if seed == 0:
        return 0
    return int.from_bytes(hashlib.sha256(f"{seed} {task} {number}".encode()).digest()[:8], "big") % count


@dataclass(frozen=True)
class Number:
    """A check for one number, right within a relative tolerance; `slips` are (a known wrong value, the reply to it)."""

    expected: Callable[[], float]
    unit: str = ""
    within: float = 0.01
    slips: tuple[tuple[float, str], ...] | list = ()

    @cached_property
    def right(self) -> float:
        return self.expected()

    def __call__(self, answer) -> Verdict:
        unit = f" {self.unit}" if self.unit else ""
        try:
            given = math.nan if isinstance(answer, bool) else float(answer)  # True is not 1 here: it is not an answer
        except (TypeError, ValueError, OverflowError):
            given = math.nan
        if not math.isfinite(given):
            return False, f"Answer with one number{f' in{unit}' if unit else ''}."
        if self.is_right(given):
            return True, f"{self._told}{unit}."
        for value, mixed_up in self.slips:
            if self.same(given, value):
                return False, mixed_up
        return False, self.otherwise(given)

    def is_right(self, given: float) -> bool:
        """Whether this is the right number, within the tolerance or rounded to two decimals unless a slip is nearer."""
        if self.same(given, self.right):
            return True
        off = abs(given - self.right)
        rounded = rounds_to(given, self.right) and self.within >= ROUNDED
        return rounded and all(off < abs(given - value) for value, _ in self.slips)

    def otherwise(self, given: float) -> str:
        """The reply to a wrong number that is not a slip."""
        return "Too large." if given > self.right else "Too small."

    @property
    def _told(self) -> str:
        """The right number as text: a whole number in full, any other with four digits."""
        whole = math.isclose(self.right, round(self.right), rel_tol=1e-9)
        return f"{self.right:,.0f}" if whole else f"{self.right:.4g}"

    def same(self, given: float, value: float) -> bool:
        return abs(given - value) <= self.within * max(abs(value), 1e-12)


@dataclass(frozen=True)
class Smallest(Number):
    """A check for the smallest whole number that is enough; `expected` gives it, `short` is the reply just below it.

    >>> check = Smallest(lambda: 2474, short="Which whole number is enough?")
    >>> check(2474), check(2473), check(2473.5)[0], check(2475)
    ((True, '2,474.'), (False, 'Which whole number is enough?'), False, (False, 'Too large.'))
    """

    short: str = ""

    def is_right(self, given: float) -> bool:
        return given == self.right

    def otherwise(self, given: float) -> str:
        return self.short if self.right - 1 <= given < self.right else super().otherwise(given)


def rounds_to(given: float, value: float) -> bool:
    """Whether a number is another one rounded to two decimals, at least 0.01.

    >>> rounds_to(0.09, 7 / 79), rounds_to(0.53, 8 / 15), rounds_to(0.08, 7 / 79), rounds_to(0, 0.004)
    (True, True, False, False)
    """
    return given == round(value, 2) != 0
