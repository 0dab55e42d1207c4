"""Solutions of notebook 41."""

from hybridlab.labs.exercises.solution import Solution
from hybridlab.predict.plans.plan import Plan

SOLUTIONS: dict[str, Solution] = {
    "choosing.node": Solution(
        'labs.answer("choosing.node", 4)',
        "All-reduces along tp stay on the fast links, and the pipeline is as short as that allows.",
        ((8, "spans two nodes"), (2, "large bubble"), (16, "four nodes"), (32, "eight nodes"), (64, "large")),
        also=("4", 4.0),
    ),
    "choosing.fits": Solution(
        'labs.answer("choosing.fits", dict(sequence=True))',
        "Activations are larger than all states, and sequence parallelism removes seven eighths of those of norms and "
        "residuals.",
        (
            (dict(zero=1), "does not fit"),
            (dict(zero=2), "does not fit"),
            (dict(scatter=True), "does not fit"),
            (dict(zero=4), "no ZeRO stage 4"),
            (dict(sequence=True, zero=1), "one switch"),
            (dict(sequence=1), "one switch"),
            ("sequence", "one switch"),
        ),
    ),
    "choosing.microbatch": Solution(
        """\
p, sequences, tF = $stages, $sequences, {1: 5.0, 2: 8.2, 4: 14.6, 8: 27.6, 16: 54.0}
seconds = {b: (sequences / b + p - 1) * 3 * tF[b] for b in tF}
labs.answer("choosing.microbatch", min(seconds, key=seconds.get))""",
        "A larger microbatch makes a sequence cheaper but the bubble larger; the best size is in between.",
        ((16, "large bubble"), (1, "expensive"), (8, "Too large"), ("b", "one number")),
        also=(2, "2"),
    ),
    "choosing.scenario": Solution(
        'labs.answer("choosing.scenario", dict(p=1, t=1, d=32, b=1, zero=3, recompute="selective"))',
        "With ZeRO 3 all copies share the states, so neither stages nor tensor parallelism are needed; without the "
        "scores half the memory is enough.",
        (
            (dict(p=1, t=1, d=32, b=1, zero=3), "fast enough, but it needs more than 40 GB"),
            (dict(p=1, t=1, d=32, b=1, zero=3, recompute="full"), "it fits, but it takes longer than 12.8 s"),
            (dict(p=1, t=1, d=32, b=8, recompute="full"), "too slow, and too large"),
            (dict(p=8, t=8, d=1, b=1), "p·t·d = 64, but there are 32 devices"),
            (dict(p=1, t=32, d=1, b=1), "t = 32 must divide the 48 heads"),
            (dict(p=1, t=1, d=32, b=1, zero=4), "not a stage of ZeRO"),
            (dict(p=1, t=1, d=32, b=1, recompute="half"), "choose one of none, selective, full"),
            (dict(p=1, t=1, d=32, b=1, q=1), "a plan has no 'q'"),
            (dict(p="1", t=1, d=32), "p='1' is not a number: give one"),
            ((1, 1, 32, 1), "Answer with dict"),
        ),
        also=(
            Plan(p=2, t=1, d=16, b=1, zero=3, recompute=1),
            dict(p=1, t=2, d=16, b=1, zero=3, recompute="selective", sequence=True),
        ),
    ),
}
