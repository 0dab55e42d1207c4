"""The hunt for wrong gradients, `megatron.hunt`: a small layer on two ranks that divide the positions, with mistakes.

Each rank normalizes its half of the positions, so it has only partial sums of the norm's gradients. A program that
does not add them, or adds gradients that are already full, trains on wrong gradients while the loss is right. A
student's check by finite differences is run on the right gradients and on every mistake.
"""

from collections.abc import Callable

import numpy as np

from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import Gave

POSITIONS, FEATURES, OUTPUTS = 6, 3, 2
HALVES = slice(0, POSITIONS // 2), slice(POSITIONS // 2, POSITIONS)  # the positions of each of two ranks

Weights = dict[str, np.ndarray]


def _drawn() -> tuple[np.ndarray, np.ndarray, Weights]:
    draw = np.random.default_rng(0).normal
    weights = {"norm.weight": 1 + draw(size=FEATURES), "norm.bias": draw(size=FEATURES)}
    return (
        draw(size=(POSITIONS, FEATURES)),
        draw(size=(POSITIONS, OUTPUTS)),
        weights | {"matrix": draw(size=(FEATURES, OUTPUTS))},
    )


def _parts(weights: Weights):
    """The tensors from which the gradients are computed: normalized positions, the matrix's input, and twice the
    errors.
    """
    x, targets, _ = _drawn()
    normal = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    inside = normal * weights["norm.weight"] + weights["norm.bias"]
    return normal, inside, inside @ weights["matrix"] - targets


def loss(weights: Weights) -> float:
    """Half of the summed squared errors over all positions.

    >>> loss(weights()) > 0
    True
    """
    return float((_parts(weights)[2] ** 2).sum() / 2)


def weights() -> Weights:
    """The weights of the layer, new arrays each time."""
    return _drawn()[2]


def _summed(positions=slice(None)) -> Weights:
    """The gradients from some of the positions."""
    its = weights()
    normal, inside, error = _parts(its)
    back = error @ its["matrix"].T
    return {
        "norm.weight": (normal * back)[positions].sum(axis=0),
        "norm.bias": back[positions].sum(axis=0),
        "matrix": inside[positions].T @ error[positions],
    }


def _one_sign(right: Weights) -> Weights:
    matrix = right["matrix"].copy()
    matrix[-1, -1] *= -1
    return right | {"matrix": matrix}


def _exchanged(right: Weights) -> Weights:
    """The gradients with two entries of the matrix's gradient exchanged: its sum and its norm stay the same."""
    matrix = right["matrix"].copy()
    matrix[0] = matrix[0, ::-1]
    return right | {"matrix": matrix}


MISTAKES: dict[str, Callable[[Weights], Weights]] = {
    "all gradients are right": lambda right: right,
    "the norm learned from the first rank's positions only": lambda right: (
        _summed(HALVES[0]) | {"matrix": right["matrix"]}
    ),
    "the bias of the norm was added on both ranks": lambda right: right | {"norm.bias": 2 * right["norm.bias"]},
    "the matrix has half of its gradient": lambda right: right | {"matrix": right["matrix"] / 2},
    "one entry of the matrix has the other sign": _one_sign,
    "two entries of the matrix have changed places": _exchanged,
    "the norm's weight lacks a hundredth": lambda right: right | {"norm.weight": 0.99 * right["norm.weight"]},
}


def gradients(mistake: str = "all gradients are right") -> Weights:
    """The gradients on two ranks that make one of the `MISTAKES`."""
    return MISTAKES[mistake](_summed())


def wrong(mistake: str) -> set[str]:
    """The names of the gradients that a mistake makes wrong.

    >>> sorted(wrong("the norm learned from the first rank's positions only"))
    ['norm.bias', 'norm.weight']
    """
    right, theirs = _summed(), gradients(mistake)
    return {name for name in right if not np.allclose(right[name], theirs[name])}


def cases() -> tuple[tuple, ...]:
    """The arguments of each trial: (loss, weights, gradients)."""
    return tuple((loss, weights(), gradients(mistake)) for mistake in MISTAKES)


def judged(gave: list[Gave]) -> Verdict:
    """Whether a check has named the wrong gradients of every mistake, and no right one."""
    for mistake, call in zip(MISTAKES, gave):
        where = f"Where {mistake}"
        if call.raised:
            return False, f"{where}, it raised {call.raised}."
        if not isinstance(call.value, list | tuple) or not all(isinstance(name, str) for name in call.value):
            return False, f"{where}, it returned {str(call.value)[:40]}: return a set of names."
        found, meant = set(call.value), wrong(mistake)
        if missed := sorted(meant - found):
            return False, f"{where}, it does not name {missed[0]}."
        if accused := sorted(found - meant):
            return False, f"{where}, it names {accused[0]}, whose gradient is right."
    return True, f"It accepts the right gradients, and names the wrong ones of all {len(MISTAKES) - 1} mistakes."
