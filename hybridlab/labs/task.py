"""A task: one exercise, with the check of an answer; and the check that most of them need, for one number."""

import math
from collections.abc import Callable
from dataclasses import dataclass

Verdict = tuple[bool, str]


@dataclass(frozen=True)
class Task:
    """One exercise: the question, the check of an answer, and graded hints."""

    question: str
    check: Callable[[object], Verdict]
    hints: tuple[str, ...]


def number(
    expected: Callable[[], float], unit: str = "", within: float = 0.01, slips=()
) -> Callable[[object], Verdict]:
    """A check for one number, right within a relative tolerance; `slips` are (wrong value, what was mixed up)."""

    def check(answer):
        right = expected()
        try:
            given = math.nan if isinstance(answer, bool) else float(answer)  # True is no 1 here: it answers nothing
        except (TypeError, ValueError, OverflowError):
            given = math.nan
        if not math.isfinite(given):
            return False, f"Answer with one number{f' in {unit}' if unit else ''}."
        if abs(given - right) <= within * max(abs(right), 1e-12):
            return True, f"{_shown(right)}{f' {unit}' if unit else ''}."
        for value, mixed_up in slips:
            if abs(given - value) <= within * max(abs(value), 1e-12):
                return False, mixed_up
        return False, "Too large." if given > right else "Too small."

    return check


def _shown(value):
    return f"{value:.4g}"
