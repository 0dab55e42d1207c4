"""Solutions of notebook 42."""

from hybridlab.labs.exercises.solution import Solution
from hybridlab.labs.sc21.build_solutions import BUILD_SOLUTIONS

SIZES = {"18.4B": "quicker", "39.1B": "slower", "76.1B": "impossible", "310.1B": "impossible"}

SOLUTIONS: dict[str, Solution] = {
    **BUILD_SOLUTIONS,
    "sc21.parameters": Solution(
        """\
l, h, V, s = $layers, 12288, 51200, 2048
labs.answer("sc21.parameters", 12 * l * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * l * h)) / 1e9)""",
        "Each block has 12h² + 13h parameters, each token and each position has a vector, and a tied head adds none.",
        (
            (130.460, "matrices of the blocks"),
            (131.755, "one matrix"),
            (131_125_469_184, "in billions"),
            (200, "large"),
            (17.46, "small"),
        ),
        also=(131.1, "131.125"),
    ),
    "sc21.days": Solution(
        'labs.answer("sc21.days", 12 * 128 * 25600**2 * (1 + 13 / (12 * 25600) + 53248 / (12 * 128 * 25600)) / 1e9)',
        "The model of the last row has 1008 billion parameters. They give 83.9 days, which are printed as 84.",
        ((1000, "83.2"), (1009.5, "but 84 is rounded"), (450, "tokens"), (2000, "large"), (900, "small")),
        also=(1008, 1008.04),
    ),
    "sc21.row": Solution(
        """\
from hybridlab.labs import sc21
labs.answer("sc21.row", sc21.unseen("gpt-529.6b", gpus=560, p=35, batch=2240).predicted())""",
        "There are only two copies, so each pipeline has 1120 microbatches and almost no bubble.",
        ((145.9, "mean of table 1"), (163, "2520 GPUs"), (200, "large"), (100, "small")),
        also=(171, 168, 174.5),
    ),
    "sc21.sizes": Solution(
        """\
labs.answer("sc21.sizes", {
    "18.4B": "quicker", "39.1B": "slower", "76.1B": "impossible", "310.1B": "impossible",
})""",
        "39.1B would have too large a bubble. In an interleaved schedule m must be a multiple of p. For 18.4B we do "
        "not know the reason.",
        (
            ({**SIZES, "39.1B": "quicker"}, "m = 6, p = 2"),
            ({**SIZES, "76.1B": "slower"}, "m = 14, p = 4, v = 3"),
            ({"39.1B": "slower"}, "You name 1 of the rows"),
            ({**SIZES, "40B": "slower"}, "There is no row '40B'"),
            ({**SIZES, "39.1B": "bubble"}, "Answer with"),
            (["18.4B"], "Answer with"),
        ),
        also=(SIZES,),
    ),
}
