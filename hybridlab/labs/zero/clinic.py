"""The broken program of notebook 22: sharded gradients, several microbatches. Symptoms, cause, check of a repair.

A program is called as program(comm, model, steps, rate). `steps` holds the microbatches of this rank, step by step.
Afterwards `model` has the weights that SGD with momentum computes from the mean gradient.
"""

import math

from hybridlab.labs.zero.clinic_case import Case, Did

NEAR = 1e-5  # of weights
ALIKE = 1e-3  # of factors
CAUSES = {
    "a": "Then one microbatch would be wrong too: on 4 ranks its first change would be four times as large.",
    "b": "Then the first change would be twice as large with two microbatches, and with four microbatches four times.",
    "c": "Then the first step would change no weight, even with one microbatch.",
    "d": "",
}


def symptoms(pool, program, microbatches=(1, 2, 4)) -> list[tuple]:
    """(microbatches, first change over that of one device, largest error, largest difference of ranks at the end)."""
    from hybridlab.labs.zero import rank

    found = []
    for count in microbatches:
        homes = [Did(*home) for home in pool.run(rank.play_program, program, Case(pool.size, count))]
        off = max(home.gaps[-1] for home in homes)
        apart = max(max(each) - min(each) for each in zip(*(home.weights for home in homes)))
        found.append((count, f"{homes[0].first:.2f}", f"{off:.3f}", f"{apart:.3f}"))
    return found


def judge(case, homes) -> str:
    """The first mistake that is found on a rank, in words; empty if there is none."""
    told = (_told(case, Did(*home)) for home in homes)
    return next((f"rank {rank} {what}" for rank, what in enumerate(told) if what), "")


def _told(case, did) -> str:
    wrong = next((step for step, gap in enumerate(did.gaps, 1) if not gap <= NEAR), 0)
    if not wrong:
        more = "calls all_reduce: so it gets the full sum of the gradients, but needs only its shard."
        return f"has the right weights. But it {more}" if "all_reduce" in did.ops else ""
    if wrong > 1:
        return f"has the right weights after one step, but wrong ones after {wrong}: which state must a step reset?"
    if did.first == 0:
        return "changes no weight in the first step."
    told = f"changes its weights {did.first:.2f} times as much in the first step as one device does"
    counts = {"microbatches": case.microbatches, "ranks": case.ranks}
    what = next((what for what, n in counts.items() if n > 1 and math.isclose(did.first, n, rel_tol=ALIKE)), "")
    return f"{told}: divide by the number of {what}." if what else f"{told}."
