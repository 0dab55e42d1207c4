"""Spatial: the elements that layers with a halo send, with pictures sharded into strips or tiles.

A rank lacks what its outputs see and it does not have. Dims are fetched one after the other, so a message is the
intersection of two boxes: what the sender has by then, and what the receiver wants. Gradients of a halo go home: the
same messages the other way round.

For strips and an odd kernel K without stride this is the textbook's halo: each of the p-1 borders is crossed by ⌊K/2⌋
rows each way, 2·(p-1)·⌊K/2⌋·N·C·W numbers for N samples, C channels and W columns. With a stride, or of strips of which
some are shorter than a halo, only the boxes know.

Source: Dryden et al. 2019, arXiv:1903.06681, section 3. Relatives: `core.where.spans`, what outputs see;
`modes.parts.halos`, which sends it; `modes.spatial_parallel`, which says it of a whole model.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

from hybridlab.core.where.spans import Span, overlap, wanted

Place = tuple[int, ...]


def moved(spans: Sequence, sights: Sequence) -> dict[tuple[Place, Place], int]:
    """{(sender, receiver): pixels} of one channel of one sample; places are coordinates on the grid of ranks.

    spans   for each dim, what each of the ranks along it has;  sights  for each dim, what outputs see

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
        held[dim] = want if len(have) > 1 else have  # what has been fetched travels on with the next dim
    return dict(+found)


def textbook(ranks: int, kernel: int, samples: int, channels: int, columns: int) -> int:
    """The numbers that all ranks together send for one convolution of strips, forward: 2·(p-1)·⌊K/2⌋·N·C·W.

    >>> textbook(ranks=4, kernel=3, samples=2, channels=16, columns=64)
    12288
    """
    return 2 * (ranks - 1) * (kernel // 2) * samples * channels * columns


def _length(span: Span) -> int:
    return span[1] - span[0]
