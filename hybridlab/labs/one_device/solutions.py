"""Solutions of notebook 02."""

from hybridlab.labs.exercises.solution import Solution

SOLUTIONS: dict[str, Solution] = {
    "one_device.parameters": Solution(
        """\
l, h, s, V = $layers, 12288, 2048, 51200
labs.answer("one_device.parameters", (l * (12 * h * h + 13 * h) + (V + s) * h + 2 * h) / 1e9)""",
        "There are blocks of 12 h² + 13 h, an embedding of tokens and one of positions, and the last norm. The head "
        "has no separate matrix.",
        (
            (173.97, "blocks alone"),
            (175.24, "twice"),
            (57.98, "attention alone"),
            (115.96, "MLPs alone"),
            (349.2, "gigabytes"),
            (170, "Too small"),
            (175, "Too large"),
        ),
        also=(174.6, "174.6"),
    ),
    "one_device.cards": Solution(
        """\
import math

labs.answer("one_device.cards", math.ceil(16 * 175 / $card))""",
        "16 bytes for each parameter, 2800 GB, over the size of a card, rounded up.",
        (
            (5, "the weights alone"),
            (8, "eight cards"),
            (9, "Adam keeps"),
            (27, "Adam alone takes 12 bytes"),
            (100, "Too large"),
        ),
        also=(35, 35.0),
    ),
    "one_device.bound": Solution(
        'labs.answer("one_device.bound", "BCD")',
        "B, C and D have 1, 62 and 64 FLOPs per byte, below the ridge at 153; only A is above it.",
        (
            ("BC", "D is memory-bound"),
            ("ABCD", "A is arithmetic-bound"),
            ("B", "C is memory-bound"),
            ("E", "letters from A to D"),
        ),
        also=(["B", "C", "D"], "b, c, d", {"D", "C", "B"}),
    ),
    "one_device.seconds": Solution(
        """\
B, s, l, h, V = $batch, 2048, 24, 2304, 51200
labs.answer("one_device.seconds", 72 * B * s * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h)) / 156e12)""",
        "The model's operations divided by the FLOP/s that the card reaches; nothing is recomputed.",
        (
            (0.787, "forward alone"),
            (1.574, "backward alone"),
            (1.18, "full peak"),
            (3.098, "every forward twice"),
            (2.082, "attention scores"),
            (2361, "milliseconds"),
            (5, "Too large"),
        ),
        also=(2.36,),
    ),
}
