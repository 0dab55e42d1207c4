"""Solutions of the functions that students write in notebook 42, and their mutants."""

from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.sc21.build_tasks import by_hand

FORMULAS = Cell("""\
def my_parameters(l, h, s, V):
    return 12 * l * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * l * h))

def my_flops(B, l, h, s, V):
    return 96 * B * s * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))

labs.answer("sc21.formulas", (my_parameters, my_flops))""")
STEP = """\
l, h, a, s, V, p, t, d, b, v, B = 80, 12288, 96, 2048, 51200, 8, 8, 24, 2, 2, 2304
m, peak, memory, inside, across = B // (b * d), 0.7249 * 312e12, 0.8365 * 2.039e12, 300e9, 25e9
gemm = 96 * b * s * h**2 * (1 + s / (6 * h)) / (t * peak)
mem = 8 * b * s * h * (10 + 24 / t + 5 * a * s / (h * t)) / memory
tp = 6 * 2 * (t - 1) / t * 2 * b * s * h / inside
head = b * s * V / t * (6 * h / peak + 16 / memory)
hop = 2 * b * s * h / t / across + (t - 1) / t * 2 * b * s * h / inside
stage = l / p * (gemm + mem + tp + 3.307e-3)
weights = (12 * l * h**2 / p + V * h) / t
once = 2 * (d - 1) / d * 2 * weights / across + 30 * weights / memory
labs.answer("sc21.step", m * (stage + head + 2 * v * hop) + (p - 1) / v * (stage + 2 * v * hop) + once)"""

BUILD_SOLUTIONS: dict[str, Solution] = {
    "sc21.formulas": Solution(
        FORMULAS,
        "Two formulas without any fitted number give the parameters and operations of all ten models.",
        (
            (FORMULAS.but("(1 + 13 / (12 * h) + (V + s) / (12 * l * h))", "1"), "the matrices of the layers alone"),
            (FORMULAS.but("(V + s) / (12", "(2 * V + s) / (12"), "the head is tied"),
            (FORMULAS.but("96 * B", "72 * B"), "F of the row 1.7B is off by"),
            (FORMULAS.but("96 * B", "72 * B").but("V / (16", "V / (12"), "without recomputation"),
            (FORMULAS.but("V / (16 * l * h)", "V / (12 * l * h)"), "not recomputed"),
            (FORMULAS.but("1 + s / (6 * h) + ", "1 + "), "scores are missing"),
            (FORMULAS.but("96 * B *", "96 *"), "multiply by B"),
            ((1, 2), "Answer with (my_parameters, my_flops)"),
        ),
    ),
    "sc21.step": Solution(
        STEP,
        "Sixteen of the 24.8 seconds are GEMMs at 72.5 % of the peak. The rest is mostly memory traffic, all-reduces, "
        "launches and the bubble.",
        (
            (by_hand(bubble=0), "bubble is missing"),
            (by_hand(bubble=2), "divided by v"),
            (by_hand(forwards=3), "leaves out the recomputed forward"),
            (by_hand(multiply=1), "they reach only 72.5 %"),
            (by_hand(multiply=1, memory=1), "Neither"),
            (by_hand(m=96), "how many sequences"),
            (90, "large"),
            (1, "small"),
        ),
        also=(24.8, by_hand()),
    ),
}  # fmt: skip
