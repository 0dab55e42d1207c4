"""Solutions of notebook 14."""

import hybridlab as hl
from hybridlab.labs.exercises.solution import Solution
from hybridlab.labs.zero_bubble.halves import beside


def _text(name: str, ranks: int = 4) -> str:
    return hl.schedule(name, ranks=ranks, microbatches=8).to_csv()


CUT = beside(hl.schedule("1f1b", ranks=4, microbatches=8))
H1 = hl.schedule("zb_h1", ranks=4, microbatches=8)
BETTER = CUT.with_programs([*CUT.program[:2], *H1.program[2:]])  # only the last two ranks wait with W
LONGER = CUT.with_programs([*CUT.program[:3], [*CUT.program[3][1:], CUT.program[3][0]]])

SOLUTIONS: dict[str, Solution] = {
    "zero_bubble.h1": Solution(
        'labs.answer("zero_bubble.h1", 3 * (1 + $I - $W))',
        "Of the idle time (p-1)(F+I+W) of 1F1B, moving W fills twice (p-1)W.",
        ((3, "equal costs"), (9, "That is 1F1B"), (6.6, "has not been moved"), (5, "Too large")),
        also=(4.2,),
    ),
    "zero_bubble.clipped": Solution(
        'labs.answer("zero_bubble.clipped", ($ranks - 1) / (3 * $microbatches + $ranks - 1))',
        "The last rank starts p-1 units late, and with the clipping all wait for it: p-1 idle units on each rank.",
        ((7 / 72, "idle / ideal"), (7 / 31, "That is 1F1B"), (0, "Too small"), (0.5, "Too large")),
        also=(7 / 79, 0.0886),
    ),
    "zero_bubble.pair": Solution(
        """\
zb_v = hl.simulate(hl.schedule("zb_v", ranks=4, microbatches=8), hl.Costs(F=0.5, I=0.5, W=0.5)).length
dualpipe = hl.schedule("dualpipe", ranks=4, microbatches=8)
at_2, at_3 = (hl.simulate(dualpipe, hl.Costs(fused=pair)).length for pair in (2, 3))
labs.answer("zero_bubble.pair", 3 - (at_3 - zb_v) / (at_3 - at_2))""",
        "DualPipe's length falls with what a fused pair saves; where its line meets ZB-V, a pair takes 2.875.",
        ((3, "nothing is gained"), (2, "Too small"), (2.95, "Too large")),
        also=(2.875, 2.88),
    ),
    "zero_bubble.puzzle": Solution(
        f'''mine = """
{H1.to_csv().strip()}
""".strip()

labs.answer("zero_bubble.puzzle", mine)''',
        "I is done as soon as its gradient has come, so the rank before it can go on; W waits for idle time, but not "
        "longer than the limit of memory allows.",
        (
            (CUT, "it takes 30 units. Beat 30; 27 can be reached"),
            (_text("1f1b"), "it takes 33 units"),
            (_text("zb_h2"), "27 units, but rank 0 holds 7 activations until W; 4 are allowed"),
            (LONGER, "waits"),
            (_text("zb_h1", 2), "Keep 4 ranks, 4 stages and 8 microbatches"),
            (_text("zb_v"), "Keep 4 ranks, 4 stages"),
            (CUT.to_csv().replace("3W7", "3W6"), "stands twice"),
            (CUT.to_csv().replace(",3W7", ""), "rank 3 never makes"),
            ("no schedule", "is no action"),
            ("nowhere.csv", "No such file"),
        ),
        also=(H1, H1.to_csv(), BETTER),
    ),
}
