"""Count the weights of the largest fragment of a rank: streaming local steps exchange one fragment at a time.

Layer l is in fragment l mod P, where the embedding is layer 0, a block is one layer or several, and the head is last.
So a fragment has at most one block more than another. But ranks with several chunks skip the layers of other ranks:
then all blocks of a rank may be in the same fragment, for example with v = 4 chunks on p = 2 ranks, and P = 2.

Relatives: `predict.bytes.local_steps.Rounds`; `predict.plans.heaviest`, the same for all weights of a rank;
`predict.plans.bytes_of_rank`, which has the exact bytes of a rank.
"""

from functools import cache

import numpy as np

from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.equal_parts import layers_of
from hybridlab.predict.plans.heaviest import Load, ends_of, heaviest, of_block
from hybridlab.predict.plans.kinds import of_kinds
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.plan import Plan


def largest_fragment(shape: Shape, plan: Plan) -> Load:
    """The weights of the largest fragment of all ranks; without fragments, those of the fullest rank.

    A model's few blocks without experts are counted like the others.

    >>> one = Shape(layers=4, width=8, heads=2, vocabulary=4)
    >>> block = sum(one.block)
    >>> for plan in (Plan(p=2), Plan(p=2, sync_every=2, fragments=2), Plan(p=2, v=2, sync_every=2, fragments=2)):
    ...     print(round(float(largest_fragment(one, plan).total / block), 2))
    2.33
    1.33
    2.0
    """
    parts = int(np.max(plan.fragments))
    if parts == 1:
        return heaviest(shape, plan)
    together = (layers_of(shape, plan) - 1) % parts == 0
    between, first, last = ends_of(shape, plan, apart=np.logical_not(together))
    of_first, most, of_last = _blocks(shape, plan, parts)
    block, largest = of_block(*of_kinds(shape, plan)[0]), Load(0, 0)
    for blocks, end in ((of_first, first), (most, between), (of_last, last)):
        one = Load(blocks * block.routed, (blocks * block.other + end) / plan.x)
        larger = one.total > largest.total
        largest = Load(*(where(larger, *both) for both in zip(one, largest)))
    return largest


def others(shape: Shape, plan: Plan) -> Load:
    """The weights of each other fragment of the fullest rank, if they are equal."""
    every = zip(heaviest(shape, plan), largest_fragment(shape, plan))
    return Load(*(np.maximum(all_ - one, 0) / np.maximum(plan.fragments - 1, 1) for all_, one in every))


def under_way(shape: Shape, plan: Plan) -> Amount:
    """The weights whose moves are sent at the same time, during a step."""
    many = plan.rounds.under_way
    return where(many, largest_fragment(shape, plan).total + (many - 1) * others(shape, plan).total, 0)


def _blocks(shape: Shape, plan: Plan, parts: int) -> np.ndarray:
    """(blocks on the first rank in the embedding's fragment, most blocks of a fragment on any rank, blocks on the last
    rank in the head's fragment), each for every plan."""
    sizes = np.stack(np.broadcast_arrays(plan.p, plan.v), -1)
    unique, back = np.unique(sizes.reshape(-1, 2), axis=0, return_inverse=True)
    ends = 0, 0 if shape.tied else layers_of(shape, Plan()) - 1  # a tied matrix is in the embedding's fragment
    found = np.array([_counted(shape.layers, _weights(shape), int(p), int(v), parts, ends) for p, v in unique])
    return np.moveaxis(found[back.ravel()].reshape(*sizes.shape[:-1], 3), -1, 0)


def _weights(shape: Shape) -> tuple[float, ...]:
    """The parts of a block that are layers: the fraction of its weights in each."""
    if not shape.parallel:
        return (1.0,)
    one = shape.block
    beside = shape.mlps * one.mlp / one.every(shape.mlps)
    return (1 - beside, beside, 0.0)


@cache
def _counted(layers: int, weights: tuple[float, ...], p: int, v: int, parts: int, ends: tuple[int, int]):
    """The numbers of `_blocks` for one plan; parts of blocks count as fractions.

    ends  layers in the fragments of the embedding and of the head
    """
    held, block = np.zeros((p, parts)), 0
    for stage, blocks in enumerate(dealt(layers, p * v)):
        for number in range(block, block + blocks):
            for place, weight in enumerate(weights, start=1 + number * len(weights)):
                held[stage % p, place % parts] += weight
        block += blocks
    first, last = (layer % parts for layer in ends)
    return held[0, first], held.max(), held[-1, last]
