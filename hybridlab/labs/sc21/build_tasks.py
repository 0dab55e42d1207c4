"""Functions that students write in notebook 42: parameters and operations, and one step as a sum of nine terms."""

import math
from functools import cache, partial

from hybridlab.labs.exercises.task import Number, Task
from hybridlab.labs.sc21.table import PRINTED, ROWS
from hybridlab.labs.trials.cases import OnCases
from hybridlab.predict.papers.sc21 import A100
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.performance import FITTED

HAND = "145.6B"  # the row of sc21.step
NEAR = 1e-4  # the formula for P leaves out the last norm, 2h

task = partial(Task, notebook="42_sc21")


class AllRows:
    """The one case of sc21.formulas: every row of table 1, on one rank."""

    ranks = 1

    def __str__(self):
        return "table 1"


def sizes(label: str) -> dict[str, int]:
    """The sizes of a row for the formulas: B, l, h, s, V.

    >>> sizes("1.7B")
    {'B': 512, 'l': 24, 'h': 2304, 's': 2048, 'V': 51200}
    """
    shape, batch = ROWS[label].shape, ROWS[label].batch
    return dict(B=batch, l=shape.layers, h=shape.width, s=shape.context, V=shape.vocabulary)


def play(comm, answer, case) -> list[tuple[float, float]]:
    """(P, F) of each row, by the student's two functions."""
    my_parameters, my_flops = answer
    made = []
    for label in ROWS:
        B, *others = sizes(label).values()
        made.append((float(my_parameters(*others)), float(my_flops(B, *others))))
    return made


def _slips_of_P(B, l, h, s, V) -> dict[float, str]:
    blocks = 12 * l * h * h
    return {
        blocks: "these are the matrices of the layers alone: add biases and norms, tokens and positions.",
        blocks + 13 * l * h: "tokens and positions have vectors too: (V + s)·h.",
        blocks + (V + s) * h: "biases and norms are missing: 13h in each layer.",
        blocks + 13 * l * h + V * h: "positions have vectors too: s·h.",
        blocks + 13 * l * h + (2 * V + s) * h: "the head is tied: it uses the token vectors again and adds nothing.",
    }


def _slips_of_F(B, l, h, s, V) -> dict[float, str]:
    tokens = B * s
    layers, attention, head = 96 * tokens * l * h * h, 16 * tokens * s * l * h, 6 * tokens * h * V
    return {
        layers: "attention's scores and the head are missing.",
        layers + attention: "the head is missing: 6BshV.",
        layers + head: "attention's scores are missing: queries times keys, and weights times values.",
        0.75 * (layers + attention) + head: "that is without recomputation, which repeats the forward.",
        layers + attention + 8 * tokens * h * V: "the head is not recomputed: its factor is 6, not 8.",
        (layers + attention + head) / B: "that is for one sequence: multiply by B.",
    }


def judge(case, homes) -> str:
    """The first wrong P or F of a student, in words; empty if all are right."""
    for label, (P, F) in zip(ROWS, homes[0]):
        given, shape = sizes(label), ROWS[label].shape
        right = {"P": shape.parameters, "F": flops(shape, ROWS[label].batch, "full").total}
        for name, made, slips in (("P", P, _slips_of_P(**given)), ("F", F, _slips_of_F(**given))):
            if math.isclose(made, right[name], rel_tol=NEAR):
                continue
            mixed_up = next((told for value, told in slips.items() if math.isclose(made, value, rel_tol=NEAR)), "")
            off = made / right[name] - 1
            return f"{name} of the row {label} is off by {off:+.2%}{': ' if mixed_up else '.'}{mixed_up}"
    return ""


def _ten_rows() -> str:
    first, last = (f"{PRINTED[label]['params_billion']:g}" for label in (next(iter(ROWS)), list(ROWS)[-1]))
    return (
        f"All ten rows are right, from {first} to {last} billion. F/(n·X), with the printed rate X, is the time of a "
        f"step: {_implied('1.7B'):.1f} s in the first row, {_implied('1008B'):.1f} s in the last."
    )


def _implied(label: str) -> float:
    """The seconds of a step that the printed rate of a row implies.

    >>> round(_implied("145.6B"), 1)
    24.8
    """
    row = ROWS[label]
    return flops(row.shape, row.batch, "full").total / (row.plan.devices * row.printed * 1e12)


@cache
def by_hand(multiply=FITTED.multiply, memory=FITTED.memory, bubble=1.0, forwards=4, m=None) -> float:
    """Seconds of the row's step by the nine terms of the notebook, without latencies; or with one number changed.

    >>> round(by_hand(), 1), round(float(ROWS[HAND].step.total), 1)
    (24.7, 24.8)
    """
    row, machine = ROWS[HAND], A100
    (p, t, d, b, v, *_), (_, l, h, s, V) = row.plan, sizes(HAND).values()
    a, m = row.shape.heads, m or row.plan.microbatches(row.batch)
    peak, bandwidth = multiply * machine.peak, memory * machine.bandwidth
    stream, ring = 2 * b * s * h, (t - 1) / t
    gemm = forwards * 24 * b * s * h * h * (1 + s / (6 * h)) / (t * peak)
    mem = forwards * 2 * b * s * h * (10 + 24 / t + 5 * a * s / (h * t)) / bandwidth
    tp = 6 * 2 * ring * stream / machine.inside
    stage = l / p * (gemm + mem + tp + FITTED.launch)
    hop = stream / t / machine.across + ring * stream / machine.inside
    head = b * s * V / t * (6 * h / peak + 16 / bandwidth)
    weights = (12 * l * h * h / p + V * h) / t
    once = 2 * (d - 1) / d * 2 * weights / machine.across + 30 * weights / bandwidth
    filling = bubble * (p - 1) / v * (stage + 2 * v * hop)
    return m * stage + m * head + 2 * m * v * hop + filling + once


TASKS: dict[str, Task] = {
    "sc21.formulas": task(
        "Write the two formulas as functions: `my_parameters(l, h, s, V)`, and `my_flops(B, l, h, s, V)`, the "
        "operations of a step with full recomputation. Your code is tested on the ten rows of table 1.",
        OnCases(play, judge, (AllRows(),), _ten_rows(), names=("my_parameters", "my_flops")),
        (
            "P: 12h² + 13h for each of l layers, and a vector for each token and each position. F: a forward has two "
            "operations for each weight and token. A step has the forward, the recomputed forward, and a backward that "
            "costs two forwards.",
            "The layers: 4 · 24·B·s·l·h². Attention: 4 · 4·B·s²·l·h. The head is not recomputed: 3 · 2·B·s·h·V.",
            "P = 12lh² + 13lh + (V + s)h and F = 96Bslh² + 16Bs²lh + 6BshV.",
        ),
        objective="Write formulas for the parameters and operations of a GPT, and compare them with a published table.",
        difficulty=2,
        minutes=8,
    ),
    "sc21.step": task(
        "Compute the step of the row 145.6B from the nine terms: l = 80, h = 12288, a = 96, s = 2048, V = 51200, "
        "p = t = 8, d = 24, b = 2, v = 2, B = 2304. How many seconds does it take? Your answer may be off by 1 %.",
        Number(
            lambda: float(ROWS[HAND].step.total),
            "seconds",
            within=0.01,
            slips=[
                (by_hand(bubble=0), "The bubble is missing: (p-1)/v stage times."),
                (by_hand(bubble=2), "Is the bubble divided by v?"),
                (
                    by_hand(forwards=3),
                    "Either your answer leaves out the recomputed forward, or it assumes GEMMs at the full peak; they "
                    "reach only 72.5 % of it.",
                ),
                (
                    by_hand(multiply=1, memory=1),
                    "Neither GEMMs nor memory reach their peaks; they reach 72.5 % and 83.7 %.",
                ),
                (by_hand(m=96), "m = B/(b·d): how many sequences does a microbatch have?"),
            ],
        ),
        (
            "m = 2304/(2 · 24) = 48, and l/p = 10. "
            "The GEMMs of a layer take 96bsh²(1 + s/6h)/(t · 0.725 · 312e12) = 33.7 ms.",
            "For one microbatch, a layer takes 33.7 ms of GEMMs, 5.4 of memory, 3.5 of all-reduces and 3.3 of "
            "launches. Multiply by m · l/p = 480. Then add the bubble, seven stage times divided by v = 2.",
            "Add 16.2 + 2.6 + 1.7 + 1.6 for the layers, 0.4 for the head, 0.2 for hops, 1.6 for the bubble and 0.4 for "
            "gradients; the optimizer is almost nothing.",
        ),
        objective="Compute a published step by hand, term by term.",
        difficulty=3,
        minutes=10,
    ),
}
