"""How a person grades the page of the capstone, point by point. The checks before it are automatic.

The instructor's edition shows it after the exercise.
"""

RUBRIC = (  # part of the page, points, and the condition for them
    ("the budget", 1, "the seconds of a step follow from days, tokens and batch, and the unit is given"),
    ("the plan", 2, "every size has a reason: t by the node, p and v by memory and bubble, d by the rest of the GPUs"),
    ("memory", 2, "the largest part is named; the dry run is compared with the formula, and the gap is explained"),
    ("the rival", 2, "the nearest rival, and the terms by which it loses; they add up to the difference"),
    ("the proof", 2, "the page describes the small run on real ranks, and what it proves: nothing about time"),
    ("the doubt", 1, "the assumption that would be measured first, and the result that would change the plan"),
)


def rows() -> tuple[tuple, list[tuple]]:
    """(columns, rows) of the rubric.

    >>> sum(points for _, points, _ in rows()[1])
    10
    """
    return ("part of the page", "points", "given if"), list(RUBRIC)


def told() -> str:
    """The rubric in one paragraph."""
    return " ".join(f"{what} ({points}): {why}." for what, points, why in RUBRIC)
