"""Compute the elements that layers with a halo send if images are sharded into strips or tiles.

A rank needs some pixels around its own for its outputs. Dims are fetched one after another, so a message is the
intersection of two boxes: the pixels that the sender has by then, and the pixels that the receiver needs. The gradients
of a halo use the same messages in the opposite direction.

For strips and an odd kernel size K with stride 1, this is the standard formula: ⌊K/2⌋ rows cross each of the p-1
borders in each direction, 2·(p-1)·⌊K/2⌋·N·C·W numbers for N samples, C channels and W columns. With a stride, or if
some strips are shorter than a halo, there is no such formula, and the boxes are needed.

Source: Dryden et al. 2019, arXiv:1903.06681, section 3. See also `core.where.spans` (the pixels that outputs need),
`modes.parts.halos` (sends them) and `modes.spatial_parallel` (the same for a full model).
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

from hybridlab.core.where.spans import Span, overlap, wanted

Place = tuple[int, ...]


def moved(spans: Sequence, sights: Sequence) -> dict[tuple[Place, Place], int]:
    """{(sender, receiver): pixels} of one channel of one sample; ranks are coordinates on the grid.

    spans   for each dim, the span of each rank along it;  sights  for each dim, the inputs of an output

    >>> from hybridlab.core.where.spans import Sight
    >>> moved([((0, 4), (4, 8)), ((0, 8),)], [Sight(3, 1, 1, 1)] * 2)
    {((1, 0), (0, 0)): 8, ((0, 0), (1, 0)): 8}
    """
    found, held = Counter(), list(spans)
    for dim, (have, sight) in enumerate(zip(spans, sights)):
        _, want = wanted(have, sight)
        for receiver in product(*map(range, map(len, spans))):
            others = [number for number in range(len(have)) if number != receiver[dim]]
            across = math.prod(_length(held[one][at]) for one, at in enumerate(receiver) if one != dim)
            for other in others:
                sender = (*receiver[:dim], other, *receiver[dim + 1 :])
                found[sender, receiver] += across * _length(overlap(have[other], want[receiver[dim]]))
        held[dim] = want if len(have) > 1 else have  # the next dim also sends the pixels fetched before
    return dict(+found)


def textbook(ranks: int, kernel: int, samples: int, channels: int, columns: int) -> int:
    """The numbers that all ranks together send in the forward of one convolution on strips: 2·(p-1)·⌊K/2⌋·N·C·W.

    >>> textbook(ranks=4, kernel=3, samples=2, channels=16, columns=64)
    12288
    """
    return 2 * (ranks - 1) * (kernel // 2) * samples * channels * columns


def _length(span: Span) -> int:
    return span[1] - span[0]
