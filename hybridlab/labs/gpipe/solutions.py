"""Solutions of notebook 11."""

from hybridlab.labs.exercises.solution import Cell, Solution

SOLUTIONS: dict[str, Solution] = {
    "gpipe.bubbles": Solution(
        'labs.answer("gpipe.bubbles", (3 / 11, 3 / 8))',
        "Each rank is idle in p-1 = 3 slots and works in m = 8: three of eleven, or three for every eight.",
        (
            ((3 / 8, 3 / 11), "the other way round"),
            ((3 / 8, 3 / 8), "idle / ideal is right"),
            ((3 / 11, 3 / 11), "idle / total is right"),
            ((27.3, 37.5), "between 0 and 1"),
            ((0.5, 0.5), "Neither is right"),
            (3 / 11, "two numbers"),
        ),
        also=([0.273, 0.375], ("0.2727", "0.375")),
    ),
    "gpipe.microbatches": Solution(
        'labs.answer("gpipe.microbatches", (9 * 3, 9 * 7))',
        "(p-1)/(m+p-1) is a tenth when m is nine times p-1.",
        (
            ((30, 70), "idle / ideal is a tenth"),
            ((16, 32), "p = 4, m = 16: idle / total is 15.8%, too much"),
            ((27, 64), "p = 8, m = 64: idle / total is 9.9%, little enough, but"),
            ((63, 27), "p = 4, m = 63"),
            ((26.5, 63), "not possible"),
            ((0, 63), "not possible"),
            ((10**8, 63), "not possible"),
            (27, "two whole numbers"),
        ),
        also=((27, 63), [27.0, 63.0]),
    ),
    "gpipe.chart": Solution(
        'labs.answer("gpipe.chart", ("2B0", "3B0"))',
        "All ranks begin their backwards in slot 7, but 2B0 takes the gradient that 3B0 makes in that very slot.",
        (
            (("3B0", "2B0"), "The other way round: 2B0 takes what 3B0 makes"),
            (("1F0", "0F0"), "slot 1 after 0"),
            (("3B0", "3F3"), "takes nothing from 3F3"),
            (("9F9", "0F0"), "no box of this chart"),
            ("2B0", "two boxes"),
        ),
        also=(["0B0", "1B0"], (" 1B3 ", "2B3")),
    ),
    "gpipe.size": Solution(
        'labs.answer("gpipe.size", (64 // 8, 3 / 8))',
        "Twice the size makes half as many microbatches, and idle / ideal is (p-1)/m.",
        (
            ((32, 3 / 32), "larger pieces"),
            ((16, 3 / 16), "before b was doubled"),
            ((8, 3 / 11), "The other number is idle / total"),
            ((8, 0.5), "m is right"),
            ((7, 3 / 7), "with the new b"),
            (8, "two numbers"),
        ),
        also=([8, 0.375],),
    ),
    "gpipe.design": Solution(
        """\
def length(b):
    return 3 * (96 // b + 4 - 1) * (2 + b)

labs.answer("gpipe.design", min((b for b in range(1, 97) if 96 % b == 0), key=length))""",
        "A larger b pays the 2 units less often and makes the bubble larger; at b = 8 the product is smallest.",
        (
            (Cell('b = 1  # the smallest bubble\nlabs.answer("gpipe.design", b)'), "m = 96: idle / total 3.0%"),
            (1, "m = 96: idle / total 3.0%, a step takes 891 units; 450 are possible"),
            (96, "m = 1: idle / total 75.0%"),
            (12, "450 are possible"),
            (7, "7 does not divide 96"),
            (0, "0 does not divide"),
            (-8, "-8 does not divide"),
            (2.5, "one whole number"),
            ("8", "one whole number"),
        ),
        also=(8, 8.0),
    ),
    "gpipe.again": Solution(
        'labs.answer("gpipe.again", $microbatches * 1)',
        "Every rank does m forwards of one unit again, all ranks at the same time, and the idle time stays.",
        ((32, "all four ranks"), (11, "in eight of them"), (7, "Too small"), (41, "Too large")),
        also=(8, "8"),
    ),
}
