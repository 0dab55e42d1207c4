"""A net with branches for digits: parallel convolutions of 1×1, 3×3 and 5×5 pixels, joined by channels.

    stem ─┬─ 1×1 ────────────────┬─ join ── stem ─┬─ …  ── join ── scores
          ├─ 1×1 to few ── 3×3 ──┤                ├─ …
          └─ 1×1 to few ── 5×5 ──┘                └─ …

The branches take what the stem made, and not from each other, so that ranks can do them at the same time. They are
unequal: that of 3×3 multiplies most, as in the paper. The paper's fourth branch, which pools, is left out.

Shape suffixes
    B batch · C channels · Y rows of pixels, X columns

Source: Szegedy et al. 2015, arXiv:1409.4842; its branches on groups of ranks, LBANN's sub-graph parallelism.
Relatives: `conv`, whose layers these are; `graph` (who takes from whom); `scheduling.subgraph`.
"""

import torch
from torch import nn

from hybridlab.training.models.conv import Convolution, Scores
from hybridlab.training.models.layered import Layered

BRANCHES = 3


class Join(nn.Module):
    """What came from several branches as one picture: their channels, side by side."""

    def forward(self, *branches_BCYX):
        return torch.cat(branches_BCYX, 1)


class Inception(Layered):
    """Modules of five layers each (a stem, three branches and a join), then scores. Each stem but the first halves the
    picture.

    width   channels of the first stem; each further one has twice as many. The branch of 1×1 has as many as its stem,
            that of 3×3 twice and that of 5×5 half as many
    blocks  how many modules

    >>> Inception()(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32, width: int = 8, blocks: int = 3):
        layers, takes, enter = [], {}, 1
        for block in range(blocks):
            stem, leave = len(layers), width * 2**block
            layers.append(Convolution(enter, leave, stride=1 if not block else 2))
            layers += [branch(leave, leave * times // 2, size) for times, size in ((2, 1), (4, 3), (1, 5))]
            takes |= {stem + one: (stem,) for one in range(1, BRANCHES + 1)}
            takes[len(layers)] = tuple(range(stem + 1, len(layers)))
            layers.append(Join())
            enter = leave * 7 // 2
        super().__init__([*layers, Scores(enter)], takes=takes, seed=seed, dtype=dtype)


def branch(enter: int, leave: int, size: int) -> nn.Module:
    """One branch of a module: the convolution, and before one larger than 1×1, one of 1×1 to few channels."""
    few = max(1, leave // 2)
    return (
        Convolution(enter, leave, size=1)
        if size == 1
        else nn.Sequential(Convolution(enter, few, size=1), Convolution(few, leave, size=size))
    )
