"""A net with branches for digits: parallel convolutions of 1×1, 3×3 and 5×5 pixels, joined by channels.

    stem ─┬─ 1×1 ────────────────┬─ join ── stem ─┬─ …  ── join ── scores
          ├─ 1×1 to few ── 3×3 ──┤                ├─ …
          └─ 1×1 to few ── 5×5 ──┘                └─ …

The branches take the stem's output, but not each other's, so ranks can compute them at the same time. They have unequal
costs: the 3×3 branch has the most multiplications, as in the paper. The paper's fourth branch, which pools, is left
out.

Shape suffixes
    B batch · C channels · Y rows of pixels, X columns

Source: Szegedy et al. 2015, arXiv:1409.4842; its branches on groups of ranks, LBANN's sub-graph parallelism.
Relatives: `conv`, which has the same layers; `graph` (the inputs of each layer); `scheduling.subgraph`.
"""

import torch
from torch import nn

from hybridlab.training.models.conv import Convolution, Scores
from hybridlab.training.models.layered import Layered

BRANCHES = 3


class Join(nn.Module):
    """The outputs of several branches as one picture: their channels are concatenated."""

    def forward(self, *branches_BCYX):
        return torch.cat(branches_BCYX, 1)


class Inception(Layered):
    """Modules of five layers each (a stem, three branches and a join), then scores. Each stem but the first halves the
    picture.

    width   channels of the first stem; each further stem has twice as many. The 1×1 branch has as many as its stem, the
            3×3 branch twice as many, and the 5×5 branch half as many
    blocks  the number of modules

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
    """One branch of a module: its convolution, which comes after a 1×1 convolution to few channels if it is larger."""
    few = max(1, leave // 2)
    return (
        Convolution(enter, leave, size=1)
        if size == 1
        else nn.Sequential(Convolution(enter, few, size=1), Convolution(few, leave, size=size))
    )
