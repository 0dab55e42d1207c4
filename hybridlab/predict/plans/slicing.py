"""Slicing: the lengths of the token slices of a row, which are equal or give equal costs.

Matrices cost every token the same; attention costs more at a later position. With α FLOPs of matrices for a token, and
β of attention for each position that it sees, tokens 0 to x cost αx + βx²/2 in a layer. So with equal lengths the last
slice takes longest, and all ranks wait for it. Slices of equal cost end at

    Sᵢ = (-α + √(α² + 2β·(i/n)(αT + βT²/2))) / β

Source: Sun et al. 2024, arXiv:2406.03488 (its "computation-wise partitioning"); for cost in general, the dynamic
program of Li et al. 2021, arXiv:2102.07988. Relatives: `scheduling.token_slices`.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import even
from hybridlab.doors import AMOUNT, COUNT, doors, span
from hybridlab.predict.time.costs import Costs

SLICING = ("equal", "cost")


def per_token(shape: Shape) -> tuple[int, int]:
    """(α, β) of a block: FLOPs of its matrices for one token, and of attention for one position that the token sees.

    shape  of the model

    >>> per_token(Shape(width=4096, heads=32)) == (24 * 4096**2, 4 * 4096)
    True
    """
    return 2 * shape.multiplied, 2 * (shape.query_width + shape.found_width)


def number_of(slices: int | Sequence[int] | None) -> int | None:
    """The number of slices, from a number or their lengths.

    slices  the number, the lengths, or None

    >>> number_of(4), number_of((12, 9, 7))
    (4, 3)
    """
    return len(slices) if isinstance(slices, Sequence) else slices


def lengths(shape: Shape, slices: int, slicing: str = "equal") -> tuple[int, ...]:
    """The lengths of the slices of a row, which add up to the context.

    shape    the shape of the model, with its context;  slices  n
    slicing  "equal": lengths that differ by at most 1; "cost": equal FLOPs in a block

    raises  ValueError if a slice would have no token, or slicing is invalid

    >>> lengths(Shape(width=4096, heads=32, context=32768), 4, "cost")
    (11132, 8407, 7044, 6185)
    """
    if slicing not in SLICING:
        raise ValueError(f"slicing={slicing!r} is invalid: it is not a known way. Choose one of {', '.join(SLICING)}")
    if slicing == "equal":
        found = [high - low for low, high in even(shape.context, slices)]
    else:
        ends = [round(_end(*per_token(shape), shape.context, i / slices)) for i in range(slices + 1)]
        found = [high - low for low, high in zip(ends, ends[1:])]
    if min(found) < 1:
        raise ValueError(
            f"slices={slices} is invalid: a row of {shape.context} tokens leaves a slice empty. Give fewer slices"
        )
    return tuple(found)


def _end(alpha: float, beta: float, tokens: int, fraction: Amount) -> Amount:
    """The position that has this fraction of a row's cost before it."""
    cost = fraction * (alpha * tokens + beta / 2 * tokens**2)
    return (np.sqrt(alpha**2 + 2 * beta * cost) - alpha) / beta if beta else cost / alpha


def first_of(shape: Shape, slices: Amount, number: Amount = 1) -> Amount:
    """The fraction of a row's tokens in its first slices of equal cost; one number, or arrays.

    shape   of the model, with its context
    slices  n;  number  of the first slices

    >>> round(float(first_of(Shape(width=4096, heads=32, context=32768), 4)), 3)
    0.34
    """
    return where(slices == 1, number, _end(*per_token(shape), shape.context, number / slices) / shape.context)


def rows_in_flight(shape: Shape, slices: Amount, many: Amount, rows: Amount = np.inf) -> Amount:
    """The largest number of tokens that a stage has in flight, in rows, when `many` slices of equal cost are in flight;
    one number, or arrays.

    shape   of the model, with its context
    slices  n;  many  slices in flight, n or more;  rows  that can be in flight

    The slices in flight are the first ones of the oldest row, full rows, and the first ones of the newest row. The
    first slices are the longest, so the most tokens are in flight when both rows have the same number of slices in
    flight, and full rows are few.

    >>> one = Shape(width=4096, heads=32, context=131072)
    >>> print(*(round(float(rows_in_flight(one, 4, many)), 3) for many in (4, 5, 7)))
    1.325 1.508 2.091
    """

    def beside(full: Amount) -> Amount:
        both = many - full * slices
        return full + first_of(shape, slices, -(-both // 2)) + first_of(shape, slices, both // 2)

    most = -(-many // slices)
    found = np.maximum(beside(np.maximum(most - 2, 0)), where(most < rows, beside(most - 1), 0))
    return where(slices == 1, many, found)


def shares(shape: Shape, lengths: Sequence[int]) -> list[float]:
    """The fraction of a row's FLOPs that each slice costs in a block.

    shape    of the model, with its context
    lengths  of the slices, which add up to the context

    >>> shares(Shape(width=4096, heads=32, context=32768), (16384, 16384))
    [0.4, 0.6]
    """
    alpha, beta = per_token(shape)
    upto = [alpha * tokens + beta * tokens**2 / 2 for tokens in accumulate((0, *lengths))]
    return [(high - low) / upto[-1] for low, high in pairwise(upto)]


def with_slices(stages: int, shares: Sequence[float], F: float = 1.0, B: float = 2.0, latency: float = 0.0) -> Costs:
    """The costs of a schedule of `token_slices` whose slices cost these shares of a row.

    stages   pipeline stages, chunks included;  F, B  of one stage on a whole row;  latency  the latency of a message

    >>> with_slices(2, (0.25, 0.75), F=4.0).F
    (1.0, 3.0, 1.0, 3.0)
    """
    every = [*shares] * stages
    return Costs(F=tuple(F * one for one in every), B=tuple(B * one for one in every), latency=latency)


_FEW = span(1, 1e6, "give 1 or more, and at most 1e+06")
lengths, shares, with_slices = doors(
    lengths, shares, with_slices, slices=_FEW, lengths=COUNT, stages=_FEW, shares=AMOUNT, F=AMOUNT, B=AMOUNT,
    latency=AMOUNT,
)  # fmt: skip
