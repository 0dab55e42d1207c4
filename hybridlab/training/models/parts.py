"""A block with experts as three layers: the part before its experts, the experts, and the part after them.

As one layer, a block has its all-to-alls inside. As three layers it has them between layers, where a schedule can
overlap them with another microbatch's work (`scheduling.dispatched`). The layers send a tuple:

    x_BTD        the residual stream, which stays on its rank
    rows_AD      tokens in the order of their experts; after the experts, their outputs: only these are exchanged
    weights_NC   of every token's choices
    beside_BTD   the shared experts' outputs for all tokens; missing if there are no shared experts
    order_A      see `modes.parts.token_order.in_order`
    counts_E     the number of rows of each expert; after the all-to-all, of the experts on this rank

The weights are those of the block: no name and no number changes. Relatives: `modes.parts.dispatch.Exchanges`, the
all-to-alls between them.
"""

import torch
from torch import nn

from hybridlab.core.what.shape import Shape
from hybridlab.modes.parts.token_order import combine, in_order


def in_parts(block) -> list[nn.Module]:
    """A block as three layers that share its modules."""
    return [Before(block), Inside(block), Behind(block)]


def between_parts(shape: Shape, rows: int, dtype) -> list[tuple]:
    """The outputs of the first two of the three layers, as examples that have shapes but no storage."""
    tokens = rows * shape.context
    here = lambda *size, dtype=dtype: torch.empty(size, dtype=dtype, device="meta")
    x_BTD, arrivals = here(rows, shape.context, shape.width), tokens * shape.chosen
    floats = x_BTD, here(arrivals, shape.width), here(tokens, shape.chosen), *[x_BTD] * bool(shape.shared)
    whole = here(arrivals, dtype=torch.int64), here(shape.experts, dtype=torch.int64)
    return [floats + whole] * 2


class Before(nn.Module):
    """Attention, the router, and the shared experts."""

    def __init__(self, block):
        super().__init__()
        self.attends = block.attends
        if self.attends:
            self.norm, self.attention, self.dropout = block.attention_norm, block.attention, block.attention_dropout
        self.mlp_norm, self.router, self.shared = block.mlp_norm, block.mlp.router, block.mlp.shared

    def forward(self, x_BTD):
        if self.attends:
            x_BTD = x_BTD + self.dropout(self.attention(self.norm(x_BTD)))
        y_BTD = self.mlp_norm(x_BTD)
        chosen_NC, weights_NC = (one.flatten(0, 1) for one in self.router(y_BTD))
        order_A, counts_E = in_order(chosen_NC, self.router.shape.experts)
        rows_AD = y_BTD.flatten(0, 1)[order_A // chosen_NC.shape[1]]
        beside = [sum(mlp(y_BTD) for mlp in self.shared)] if len(self.shared) else []
        return x_BTD, rows_AD, weights_NC, *beside, order_A, counts_E


class Inside(nn.Module):
    """The experts."""

    def __init__(self, block):
        super().__init__()
        self.experts = block.mlp.experts

    def forward(self, arrived):
        x_BTD, rows_AD, *others, counts_E = arrived
        return x_BTD, self.experts(rows_AD, counts_E.tolist()), *others, counts_E


class Behind(nn.Module):
    """Every token with the outputs of its experts added."""

    def __init__(self, block):
        super().__init__()
        self.dropout = block.mlp_dropout

    def forward(self, arrived):
        x_BTD, rows_AD, weights_NC, *beside, order_A, _ = arrived
        y_BTD = combine(rows_AD, order_A, weights_NC).view_as(x_BTD)
        return x_BTD + self.dropout(sum(beside, y_BTD))
