"""Solutions of notebook 15."""

from hybridlab.labs.exercises.solution import Cell, Solution


def _version(rule: str) -> Cell:
    return Cell(f"""\
def my_version(rank, ranks, microbatch):
    return {rule}

labs.answer("pipedream.delay", my_version)""")


SOLUTIONS: dict[str, Solution] = {
    "pipedream.versions": Solution(
        'labs.answer("pipedream.versions", [6 - r for r in range(6)])',
        "While a microbatch goes from rank r to the end and back, p-r forwards begin there, each with a newer version.",
        (
            ([1, 2, 3, 4, 5, 6], "other way round"),
            ([5, 4, 3, 2, 1, 0], "The version before them"),
            ([6] * 6, "vertical sync"),
            ([6, 5, 4, 3, 2, 2], "rank 5"),
            ([6, 5], "6 numbers"),
        ),
        also=([6, 5, 4, 3, 2, 1], ("6", 5, 4, 3, 2, 1)),
    ),
    "pipedream.delay": Solution(
        _version("max(0, microbatch - (ranks - 1 - rank))"),
        "Of the microbatches before this one, p-1-r are still on their way; the others have made updates.",
        (
            (_version("microbatch - (ranks - 1 - rank)"), "rank 0 of 4, microbatch 0 it says -3; the schedule says 0"),
            (_version("microbatch"), "rank 0 of 4, microbatch 1"),
            (Cell('labs.answer("pipedream.delay", lambda rank: 0)'), "raised TypeError"),
            (0, "your function itself"),
        ),
    ),
    "pipedream.memory": Solution(
        'labs.answer("pipedream.memory", sum($ranks - r for r in range($ranks)) - 2 * $ranks)',
        "Stashing keeps p-r versions on rank r, 2BW two on every rank.",
        ((36, "what stashing takes"), (16, "what 2BW takes"), (6, "first rank alone"), (48, "p-r")),
        also=(20, "20"),
    ),
    "pipedream.throughput": Solution(
        'labs.answer("pipedream.throughput", 4 * (4 + 3) / (16 + 3))',
        "With a flush the pipeline is filled and drained four times, without one once.",
        ((1.75, "fills and drains too"), (19 / 16, "no bubble at all"), (4, "Too large")),
        also=(84 / 57, 1.474),
    ),
    "pipedream.wrong_way": Solution(
        'labs.answer("pipedream.wrong_way", (1.0, -1.0))',
        "The mixed gradient is old b times new b: below zero when their signs differ, while both true ones are above.",
        (((1, 0.9), "same sign"), ((0, 1), "zero"), (-1, "two numbers"), ((1, 0), "zero")),
        also=((1, -1), [-0.5, 2]),
    ),
}
