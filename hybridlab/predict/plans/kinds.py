"""Count the blocks of both kinds on the ranks of a pipeline, if a shape has blocks without experts (`Shape.plain`).

Time and memory are sums over the blocks of a rank, so the slowest and the fullest rank are among those that no other
rank exceeds in both kinds. These few are the candidates here, with the first rank and the last.

Relatives: `predict.plans.partition` (equal blocks), `predict.plans.performance`, `predict.plans.footprint`.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.partition import dealt, lengths
from hybridlab.predict.plans.plan import Plan


class Rank(NamedTuple):
    """The blocks of a rank, those among them without experts, and its place in the pipeline."""

    blocks: Amount
    plain: Amount
    place: Amount

    def sum(self, other: Amount, plain: Amount) -> Amount:
        """The sum of a quantity over the rank's blocks, from its values for a usual block and for a plain one."""
        usual = self.blocks * other
        return usual + self.plain * (plain - other) if np.any(self.plain) else usual

    def mean(self, other: Amount, plain: Amount) -> Amount:
        """The mean of a quantity over the rank's blocks, from its values for a usual block and for a plain one."""
        return other + self.plain / np.maximum(self.blocks, 1) * (plain - other) if np.any(self.plain) else other


class Ranks(NamedTuple):
    """The first rank, the middle ranks that may be the slowest or need the most memory, and the last rank.

    least  blocks of the shortest stage
    """

    first: Rank
    between: tuple[Rank, ...]
    last: Rank
    least: Amount


def of_kinds(shape: Shape, plan: Plan) -> list[tuple[Shape, Plan]]:
    """The kinds of blocks: for each, a shape with only this kind, and the plan with the fields that apply to it."""
    return [(shape.others, plan), *([(shape.plain_ones, plan._replace(fold=False))] if shape.plain else [])]


def ranks_of(shape: Shape, plan: Plan) -> Ranks:
    """The ranks of a plan, or of many plans, by their blocks.

    >>> for one in ranks_of(Shape(layers=8, experts=4, plain=(0, 1, 2)), Plan(p=4)).between: print(*one)
    2 2 0
    2 1 1
    2 0 2
    """
    stage = lengths(shape.layers, plan.p, plan.v)
    if not shape.plain:
        longest = Rank(stage.longest, 0, stage.place)
        return Ranks(Rank(stage.first, 0, 0), (longest,), Rank(stage.last, 0, plan.p - 1), stage.least)
    sizes = np.stack(np.broadcast_arrays(plan.p, plan.v), -1)
    unique, back = np.unique(sizes.reshape(-1, 2), axis=0, return_inverse=True)
    found = [_ranks(shape.layers, shape.plain, int(p), int(v)) for p, v in unique]
    most = max(map(len, found))
    padded = np.array([one[:1] * (most - len(one)) + one for one in found])  # plans, candidates, fields
    every = padded[back.ravel()].reshape(*sizes.shape[:-1], most, 3)
    *between, first, last = (Rank(*(every[..., one, field][()] for field in range(3))) for one in range(most))
    return Ranks(first, tuple(between), last, stage.least)


def stages_of(shape: Shape, plan: Plan) -> list[Rank]:
    """The blocks of each stage of one plan; a stage's number is its place.

    >>> [tuple(one) for one in stages_of(Shape(layers=4, experts=4, plain=(0,)), Plan(p=2))]
    [(2, 1, 0), (2, 0, 1)]
    """
    return [Rank(*one) for one in _stages(shape.layers, shape.plain, plan.p * plan.v)]


def _stages(layers: int, plain: tuple[int, ...], stages: int) -> list[tuple[int, int, int]]:
    bounds = np.cumsum([0, *dealt(layers, stages)])
    few = np.diff(np.searchsorted(plain, bounds))
    return list(zip(np.diff(bounds).tolist(), few.tolist(), range(stages)))


@cache
def _ranks(layers: int, plain: tuple[int, ...], p: int, v: int) -> list[tuple[int, int, int]]:
    """(blocks, plain ones, place) of the candidates, and then of the first rank and of the last."""
    blocks, few, _ = np.array(_stages(layers, plain, p * v)).reshape(v, p, 3).sum(0).T.tolist()
    every = list(zip(blocks, few, range(p)))
    exceeds = lambda one, other: (
        one[1] >= other[1] and one[0] - one[1] >= other[0] - other[1] and (one[:2] != other[:2] or one[2] < other[2])
    )
    return [one for one in every if not any(exceeds(other, one) for other in every)] + [every[0], every[-1]]
