"""Solutions of notebook 22."""

from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.zero import build_solutions

STRETCH = Cell("""\
def my_stretch(rank, length, inside, groups):
    size = length // (inside * groups)
    number = rank % inside * groups + rank // inside
    return number * size, (number + 1) * size

labs.answer("zero_fsdp.stretch", my_stretch)""")
NUMBER = "rank % inside * groups + rank // inside"

SOLUTIONS: dict[str, Solution] = {
    **build_solutions.SOLUTIONS,
    "zero_fsdp.stages": Solution(
        'labs.answer("zero_fsdp.stages", [7.5 * (whole + (16 - whole) / 64) for whole in (16, 4, 2, 0)])',
        "Each stage divides one more part by 64: the optimizer's 12 bytes, then the gradient's 2, then the weight's 2.",
        (
            ([120, 1.875, 1.875, 1.875], "Stage 1 shards only some"),
            ([1.88, 16.6, 31.4, 120], "The order is reversed"),
            ([1.88, 31.4, 16.6, 1.88], "Stage 0 shards nothing"),
            ([120, 31.4, 16.6, 1.64], "Stage 3 is too small"),
            ([120, 60, 16.6, 1.9], "Stage 1 is too large"),
            (
                [120, 31.40625, 16.875, 1.875],
                "Stage 2 divides 14 of the 16 bytes by 64; you added all 16 bytes / 64 to 2",
            ),
            ([120, 31.875, 16.64, 1.875], "Stage 1 divides 12 of the 16 bytes by 64"),
            ([120, 31.4, 16.7, 1.875], "Stage 2 is too large"),
        ),
        also=([120, 31.4, 16.6, 1.9], (120.0, 31.40625, 16.640625, 1.875)),
    ),
    "zero_fsdp.ratio": Solution(
        'labs.answer("zero_fsdp.ratio", 3 / 2)',
        "Two gathers and a reduce-scatter are three thirds; an all-reduce is two of them.",
        (
            (1, "taken apart"),
            (2, "thirds"),
            (3, "sends it twice"),
            (1.2, "Too small"),
            (9, "Too large"),
        ),
        also=(1.5,),
    ),
    "zero_fsdp.names": Solution(
        'labs.answer("zero_fsdp.names", ["FULL_SHARD", "NO_SHARD", "HYBRID_SHARD", "SHARD_GRAD_OP"])',
        "(a) frees weights after the forward and gathers them again; (d) keeps them until the backward.",
        (
            (["SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "FULL_SHARD"], "The other way round"),
            (["FULL_SHARD", "HYBRID_SHARD", "NO_SHARD", "SHARD_GRAD_OP"], "Row (b)"),
            (["FULL_SHARD"] * 4, "Each name"),
            (["FULL_SHARD", "NO_SHARD", "HYBRID_SHARD", "DDP"], "DDP is none of"),
        ),
    ),
    "zero_fsdp.hybrid": Solution(
        'labs.answer("zero_fsdp.hybrid", 4)',
        "With four owners 26.2 GB fit, and every gather stays inside its node; only the all-reduces of shards cross.",
        ((8, "every gather crosses"), (2, "more than the memory of a rank"), (3, "Answer with one of")),
    ),
    "zero_fsdp.stretch": Solution(
        STRETCH,
        "The part inside the group has number rank % inside. The rank's group, rank // inside, picks the shard of this "
        "part.",
        (
            (STRETCH.but(NUMBER, "rank"), "one flat gather over all ranks"),
            (STRETCH.but(NUMBER, "rank % inside * groups"), "another group updates it"),
            (STRETCH.but(NUMBER, "rank // inside * inside + inside - 1 - rank % inside"), "no sum of these numbers"),
            (STRETCH.but("inside * groups)", "inside)"), "share the optimizer's state"),
            (STRETCH.but("return number * size, (number + 1) * size", "return number"), "two whole numbers"),
            (7, "your function itself"),
        ),
    ),
    "zero_fsdp.design": Solution(
        'labs.answer("zero_fsdp.design", [3, 4, 2])',
        "Stage 3 for memory, four owners for traffic, and one unit gathered ahead hides the gathers.",
        (
            ([1, 4, 1], "too much memory"),
            ([3, 4, 6], "too much memory"),
            ([2, 8, 1], "too much memory"),
            ([3, 8, 2], "too much traffic"),
            ([3, 4, 1], "too long"),
            ([3, 3, 1], "owners 1, 2, 4 or 8"),
        ),
        also=((3, 4, 4),),
    ),
}
