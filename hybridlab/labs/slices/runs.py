"""Notebook 16: the costs of slices of a row, seq1f1b predicted and really run with emulated work, and a sabotage."""

from collections.abc import Sequence

import hybridlab as hl

RANKS, ROWS, WIDTH, HEADS = 4, 8, 4096, 32
TOKENS = 32_768  # in a row
UNIT = 0.1  # seconds that the forward of a row takes on a rank; one of 4 slices takes a quarter of it
FEW, LATENCY = 3, 0.2  # for runs with slow messages: rows, and a message's latency in units (forwards of a row)


def _shape(tokens: int) -> hl.Shape:
    return hl.Shape(layers=1, width=WIDTH, heads=HEADS, context=tokens)


def lengths(slices: int, slicing: str = "cost", tokens: int = TOKENS) -> tuple[int, ...]:
    """The lengths of the slices of a row, in tokens.

    slices   the number of slices;  slicing  "equal" lengths, or lengths of equal "cost"
    tokens   the number of tokens in the row

    >>> lengths(4)
    (11132, 8407, 7044, 6185)
    """
    return hl.plans.slicing.lengths(_shape(tokens), slices, slicing)


def costs(cut: Sequence[int] | int, unit: float = 1.0, ranks: int = RANKS, latency: float = 0.0) -> hl.Costs:
    """The costs of a schedule in slices: a forward of a whole row takes one unit on a rank, its backward two.

    cut      the lengths of the slices in tokens, or the number of slices of equal cost
    unit     seconds, or 1;  ranks  the number of ranks;  latency  the latency of a message, in units

    >>> costs(2, ranks=1, latency=0.1)
    Costs(F=(0.5, 0.5), B=(1.0, 1.0), latency=0.1)
    """
    if isinstance(cut, int):
        shares = [1 / cut] * cut
    else:
        shares = hl.plans.slicing.shares(_shape(sum(cut)), cut)
    return hl.plans.slicing.with_slices(ranks, shares, F=unit, B=2 * unit, latency=latency * unit)


def idle(cut: Sequence[int] | int, latency: float = 0.0, ranks: int = RANKS, rows: int = ROWS) -> float:
    """The predicted bubble_overhead (idle over ideal) of seq1f1b; the arguments are those of `costs`.

    >>> idle(1), idle(4)
    (0.375, 0.09375)
    """
    n = cut if isinstance(cut, int) else len(cut)
    waits = costs(cut, ranks=ranks, latency=latency)
    return hl.simulate(hl.lower(_schedule(n, rows, ranks)), waits).bubble_overhead


def of_n(slices: int, latency: float = LATENCY, rows: int = FEW) -> hl.Timeline:
    """The predicted step of slices of equal cost, in seconds, if messages are slow."""
    return hl.simulate(hl.lower(_schedule(slices, rows)), costs(slices, UNIT, latency=latency))


def run(slices: int, latency: float = LATENCY, rows: int = FEW) -> hl.Timeline:
    """The same step on four real ranks with emulated work; every message takes at least `latency` units."""
    return hl.run(_schedule(slices, rows), costs=costs(slices, UNIT), latency=latency * UNIT, steps=1)


def _schedule(slices: int, rows: int, ranks: int = RANKS) -> hl.Schedule:
    return hl.schedule("seq1f1b", ranks=ranks, microbatches=rows, slices=slices)


def drop_the_caches_gradient():
    """For hl.check: no gradient reaches the keys and values of earlier slices."""
    from hybridlab.training.models.slices import Memory

    whole = Memory.__init__
    Memory.__init__ = lambda memory, past: whole(memory, tuple(x.detach() for x in past))
