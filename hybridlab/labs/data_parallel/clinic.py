"""The broken program of notebook 21: two ranks train and do not agree; symptoms, cause, check of a repair.

A rank program returns (x, targets, weights): its rows, and its weights before the first step and after every step.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.labs.trials.clinic import Cause

ROWS, FEATURES, STEPS = 8, 4, 3
RATE = 0.1
NEAR = 1e-5
CAUSES = {
    "a": "Then the changes of the two ranks would differ, and they are equal in every step.",
    "b": "Then all ranks would take the same step, which is too large: their weights would stay equal.",
    "c": "",
    "d": "Then the ranks would not differ at all. The gradient would be wrong, but equally wrong on both.",
}
CAUSE = Cause(CAUSES, "The weights differ before the first step, and equal gradients never remove that difference.")


def symptoms(homes) -> list[str]:
    """After each step: the largest difference of two ranks' weights, and whether the step changed them equally."""
    first, second = (np.array(weights) for _, _, weights in homes)
    told = []
    for step, apart in enumerate(np.abs(first - second).max(axis=1)[1:], start=1):
        alike = np.allclose(*(rank[step] - rank[step - 1] for rank in (first, second)), atol=NEAR)
        told.append(f"after step {step} the weights differ by up to {apart:.3f}; it changed both alike: {alike}")
    return told


class Case(NamedTuple):
    """The number of ranks that run the program."""

    ranks: int

    def __str__(self) -> str:
        return f"{self.ranks} ranks"


def play(comm, answer, case):
    """On each rank: the student's program, as plain lists."""
    return answer(comm)


def judge(case, homes) -> str:
    """The mistake that remains in the program, in words; empty if there is none."""
    try:
        parts = [[np.array(one, dtype=float) for one in home] for home in homes]
        x, targets, weights = (np.stack(one) for one in zip(*parts, strict=True))
        x, targets = x.reshape(case.ranks, ROWS, FEATURES), targets.reshape(case.ranks, ROWS)
        weights = weights.reshape(case.ranks, STEPS + 1, FEATURES)
    except (TypeError, ValueError):
        return "return x, targets and weights as the program does, and do not change rows, features and steps."
    if not np.allclose(weights[:, 0], weights[0, 0], atol=NEAR):
        apart = np.abs(weights[:, 0] - weights[0, 0]).max()
        return f"before the first step the weights of the ranks still differ by up to {apart:.3f}."
    if any(np.array_equal(x[0], other) for other in x[1:]):
        return "now all ranks see the same rows: the batch has become smaller. Only the first weights may be the same."
    if not np.allclose(weights, _one_device(x, targets, weights[0, 0]), atol=NEAR):
        return "the weights begin equal, but one device that sees all rows gets different weights."
    return ""


def _one_device(x, targets, weight) -> np.ndarray:
    """The weights before the first step and after every step of one device, which uses the mean over all rows."""
    x, targets, found = x.reshape(-1, FEATURES), targets.reshape(-1), [weight]
    for _ in range(STEPS):
        found.append(found[-1] - RATE * 2 * (x @ found[-1] - targets) @ x / len(x))
    return np.stack(found)
