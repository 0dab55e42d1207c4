"""Notebook 13: the head as the longest stage of a pipeline, on the last rank or in pieces on all ranks."""

import hybridlab as hl

RANKS, LAYERS, MICROBATCHES = 8, 32, 32
WAYS = ("on the last stage", "blocks moved", "in pieces on all stages")


def in_blocks(vocabulary: int, width: int) -> float:
    """The forward of the head, in units of a block's forward: V·h weights over 12·h².

    >>> round(in_blocks(128_256, 4096), 1)
    2.6
    """
    return vocabulary / (12 * width)


def head_last(blocks: list[int], head: float) -> hl.Costs:
    """Stages with these numbers of blocks, and the full head on the last one; a block's forward is one unit.

    >>> head_last([2, 1], 0.5)
    Costs(F=(2, 1.5), B=(4, 3.0))
    """
    F = (*blocks[:-1], blocks[-1] + head)
    return hl.Costs(F=F, B=tuple(2 * one for one in F))


def head_in_pieces(ranks: int, blocks: float, head: float) -> hl.Costs:
    """Stages with these numbers of blocks, and a piece of the head on each rank; their join takes no time.

    >>> head_in_pieces(2, 2, 0.5)
    Costs(F=(2, 2, 0.25, 0.25, 0), B=(4, 4, 0.5, 0.5, 0))
    """
    F = (*[blocks] * ranks, *[head / ranks] * ranks, 0)
    return hl.Costs(F=F, B=tuple(2 * one for one in F))


def overheads(head: float) -> list[float]:
    """Idle time over ideal time for each of `WAYS`; the blocks are divided so that the step is shortest.

    >>> [f"{one:.0%}" for one in overheads(2.6)]
    ['73%', '33%', '22%']
    """
    p, m = RANKS, MICROBATCHES
    plain, pieces = hl.schedule("1f1b", p, m), hl.schedule("vocabulary_1f1b", p, m)
    lengths = [hl.simulate(plain, head_last(_blocks(last), head)).length for last in range(LAYERS // p + 1)]
    spread = hl.simulate(pieces, head_in_pieces(p, LAYERS / p, head)).length
    return [one / (3 * m * (LAYERS + head) / p) - 1 for one in (lengths[-1], min(lengths), spread)]


def _blocks(last: int) -> list[int]:
    """The number of blocks of each stage: `last` on the last one, and the others divided as evenly as possible."""
    each, more = divmod(LAYERS - last, RANKS - 1)
    return [each + (stage < more) for stage in range(RANKS - 1)] + [last]
