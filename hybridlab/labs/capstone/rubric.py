"""How the page of the capstone is read, by a person: what each point is given for. The checks before it are automatic.

The instructor's edition shows it behind the exercise.
"""

RUBRIC = (  # what is read, points, and what earns them
    ("the budget", 1, "seconds of a step follow from days, tokens and batch, and the unit is said"),
    ("the plan", 2, "every size has its reason: t by the node, p and v by memory and bubble, d by what is left"),
    (
        "memory",
        2,
        "the largest part is named; the dry run's number stands beside the formula's, and the gap is explained",
    ),
    ("the rival", 2, "the nearest rival, and the terms by which it loses; they add up to the difference"),
    ("the proof", 2, "what ran small on real ranks, what that proves, and that it proves nothing about time"),
    ("the doubt", 1, "the assumption that would be measured first, and what result would change the plan"),
)


def rows() -> tuple[tuple, list[tuple]]:
    """(columns, rows) of the rubric.

    >>> sum(points for _, points, _ in rows()[1])
    10
    """
    return ("what is read", "points", "what earns them"), list(RUBRIC)


def told() -> str:
    """The rubric in one paragraph."""
    return " ".join(f"{what} ({points}): {why}." for what, points, why in RUBRIC)
