"""Compute what Muon adds to a step: the operations of Newton–Schulz on the hidden matrices, and gathers of momentum.

A matrix of m rows and n columns, m ≤ n, takes 20 m²n + 10 m³ operations, about 5h / tokens of a step for a width of h.
With ZeRO, each matrix has one owner, so a rank updates 1/owners of them, or at least one. Along tp and x, ranks gather
the momentum, in single precision, and all compute the same (`muon="gather"`): these axes divide nothing. Matmuls are
taken to be as fast as others in 16 bits, as in programs that orthogonalize in bfloat16.

Relatives: `modes.full_matrices`, which runs it; `performance`, `bytes_of_rank`; `heaviest.in_matrices`, the memory.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.kinds import of_kinds, ranks_of
from hybridlab.predict.plans.plan import OPTIMIZERS, Plan
from hybridlab.predict.plans.rates import Rates

MUON, WIDTH = OPTIMIZERS.index("muon"), 4  # bytes of a number that is gathered


class Matrix(NamedTuple):
    """A hidden matrix of a block, in full.

    rows, columns
    t, x       the ranks along tp and x that shard it
    many       on a rank: 1, or its experts;  routed  whether it belongs to an expert that ranks along ep do not share
    copied     the elements that a gather along tp brings, for each element: more if neighbours have the same keys
    by_rows    whether tp shards its rows, and x its columns
    """

    rows: int
    columns: int
    t: Amount
    x: Amount
    many: Amount = 1
    routed: bool = False
    copied: Amount = 1
    by_rows: bool = True

    @property
    def operations(self) -> int:
        """The operations of Newton–Schulz on one matrix.

        >>> Matrix(rows=8, columns=4, t=1, x=1).operations == 20 * 4**2 * 8 + 10 * 4**3
        True
        """
        m, n = sorted((self.rows, self.columns))
        return 20 * m**2 * n + 10 * m**3

    def gathered(self) -> tuple[Amount, Amount]:
        """Elements that one matrix's gathers bring, along tp and along x: the first of both brings a part."""
        size = self.rows * self.columns
        along_t, along_x = (size / self.x, size) if self.by_rows else (size, size / self.t)
        return where(self.t > 1, along_t * self.copied, 0), where(self.x > 1, along_x, 0)


def matrices(shape: Shape, plan: Plan) -> list[Matrix]:
    """The hidden matrices of one block.

    >>> one = Shape(width=8, heads=2)
    >>> sum(each.rows * each.columns for each in matrices(one, Plan())) == 12 * 8**2
    True
    """
    h, t, x, found = shape.width, plan.t, plan.x, []
    if shape.heads:
        copied, read = t / np.minimum(t, shape.key_heads), shape.latent or h
        wide = np.where(shape.latent > 0, 1, x)  # x does not shard the matrices from latents to heads
        found += [Matrix(shape.query_width, shape.query_latent or h, t, np.where(shape.query_latent > 0, 1, x))]
        found += [Matrix(shape.value_width, read, t, wide, copied=copied)] * 2
        found += [Matrix(one, h, 1, x) for one in (shape.query_latent, shape.latent) if one]
        found += [Matrix(h, shape.found_width, t, x, by_rows=False)]
    mlp = [Matrix(shape.inside, h, t, x)] * (2 if shape.style == "llama" else 1)
    mlp += [Matrix(h, shape.inside, t, x, by_rows=False)]
    found += mlp * (shape.mlps if shape.experts == 1 else shape.shared)
    if shape.experts > 1:
        here = {"t": plan.expert_shards, "many": shape.experts / plan.expert_ways, "routed": True}
        found += [one._replace(**here) for one in mlp]
    return found


def owned(plan: Plan) -> tuple[Amount, Amount]:
    """The fractions of matrices that a rank updates: of its experts' matrices, and of all other matrices."""
    its, others = (1 / where(plan.zero > 0, ways, 1) for ways in plan.updaters)
    return its, others


def gathered(shape: Shape, plan: Plan) -> Amount:
    """Bytes of the gathers of a block's momenta on a rank, on average over the matrices that it may own."""
    its, others = owned(plan)
    every = matrices(shape, plan)
    return WIDTH * added(one.many * added(one.gathered()) * where(one.routed, its, others) for one in every)


def seconds(shape: Shape, plan: Plan, rates: Rates) -> Amount:
    """The seconds of a step in which the busiest rank orthogonalizes its momenta and gathers them; 0 for another
    optimizer. The busiest rank has at least the mean, and at least one of the largest matrices."""
    if not np.any(plan.optimizer):
        return 0.0
    kinds, found = [_of_block(*one, rates) for one in of_kinds(shape, plan)], 0.0
    for place, ways in enumerate(plan.updaters):
        usual, plain = kinds[0][place], kinds[-1][place]
        every = (rank.sum(usual.every, plain.every) for rank in ranks_of(shape, plan).between)
        most = np.max(np.broadcast_arrays(*every), axis=0)
        share = np.maximum(most / ways, np.maximum(usual.largest, plain.largest))
        found = found + where(plan.zero > 0, share, most)
    return where(np.equal(plan.optimizer, MUON), found, 0.0)


class Taken(NamedTuple):
    """Seconds of a block's matrices: of all of them, and of the largest one."""

    every: Amount
    largest: Amount


def _of_block(shape: Shape, plan: Plan, rates: Rates) -> tuple[Taken, Taken]:
    """The matrices of a block: those of its experts, and all others."""
    near, found = (rates.near(plan, "t"), rates.near(plan, "x")), {True: Taken(0.0, 0.0), False: Taken(0.0, 0.0)}
    for one in matrices(shape, plan):
        sent = (rates.sum(ways, at, WIDTH * size) / 2 for ways, at, size in zip((one.t, one.x), near, one.gathered()))
        each, before = one.operations / rates.multiply + added(sent), found[one.routed]
        found[one.routed] = Taken(before.every + one.many * each, np.maximum(before.largest, each))
    return found[True], found[False]
