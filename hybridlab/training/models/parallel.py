"""Parallel blocks of a transformer: attention and MLP both take the block's input.

    a block of GPT     x → x + attention(norm x) → that + mlp(norm of that)
    a parallel block   x → x + attention(norm x) + mlp(norm x)

So attention and MLP need not wait for each other. Here they are separate layers, two branches and a join, made of the
modules of a block (`Shape(parallel=True)`):

    ─┬─ attention, with the residual ─┬─ sum ─
     └─ MLP ──────────────────────────┘

The residual goes with the attention, so the join has two inputs and not three. Each branch has a separate norm, as in
GPT-NeoX; GPT-J and PaLM share one. Weights are those of a sequential block, with the names of these layers.

Shape suffixes
    those of GPT

Source: GPT-J, Wang and Komatsuzaki 2021; Chowdhery et al. 2022, arXiv:2204.02311, section 2; GPT-NeoX, Black et al.
2022, arXiv:2204.06745. Relatives: `graph` (the inputs of each layer); `scheduling.subgraph`.
"""

from torch import nn

from hybridlab.core.what.shape import PIECES


class Attending(nn.Module):
    """The branch of a block with its attention and the residual."""

    def __init__(self, block):
        super().__init__()
        self.norm, self.attention, self.dropout = block.attention_norm, block.attention, block.attention_dropout

    def forward(self, x_BTD):
        return x_BTD + self.dropout(self.attention(self.norm(x_BTD)))


class Beside(nn.Module):
    """The branch of a block with its MLP."""

    def __init__(self, block):
        super().__init__()
        self.norm, self.mlp, self.dropout = block.mlp_norm, block.mlp, block.mlp_dropout

    def forward(self, x_BTD):
        return self.dropout(self.mlp(self.norm(x_BTD)))


class Sum(nn.Module):
    """The join: the sum of the branches."""

    def forward(self, *branches_BTD):
        return sum(branches_BTD)


def in_branches(block) -> nn.ModuleList:
    """The three layers that replace a block, made of its modules."""
    return nn.ModuleList([Attending(block), Beside(block), Sum()])


def branching(blocks: int) -> dict[int, tuple[int, ...]]:
    """{layer: its inputs}, if they are not just the previous layer; 0 is the embedding.

    >>> branching(2)
    {2: (0,), 3: (1, 2), 5: (3,), 6: (4, 5)}
    """
    beside = range(2, PIECES * blocks, PIECES)
    return {layer: takes for mlp in beside for layer, takes in ((mlp, (mlp - 2,)), (mlp + 1, (mlp - 1, mlp)))}
