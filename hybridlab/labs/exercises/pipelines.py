"""Shared by the exercises of GPipe and 1F1B: a prediction in units of F and B, and an answer of several numbers."""

import hybridlab as hl

UNIT = hl.Costs(F=1, B=2)


def predicted(name: str, ranks: int, microbatches: int, costs: hl.Costs = UNIT) -> hl.Timeline:
    """The simulated timeline of a schedule by its name.

    >>> predicted("gpipe", 4, 8).length
    33.0
    """
    return hl.simulate(hl.schedule(name, ranks=ranks, microbatches=microbatches), costs)


def several(answer, count: int) -> list[float] | None:
    """The answer as `count` finite numbers, or None.

    >>> several(("1", 2), 2)
    [1.0, 2.0]
    """
    try:
        numbers = [float(one) for one in answer]
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if len(numbers) == count and all(abs(one) < 1e9 for one in numbers) else None


def close(given, right) -> bool:
    """Whether each given number is within a hundredth of the right one."""
    return all(abs(a - b) <= 0.01 * abs(b) for a, b in zip(given, right))
