"""Experts: instead of one MLP a block has several, and a router chooses a few of them for every token.

A block then has many times more weights, with the same FLOPs per token. There are four steps:

  route      scores of a token for every expert; the best few experts are chosen, and their scores are weights
  dispatch   tokens are sorted by expert: each expert gets its tokens as one matrix
  compute    each expert runs an MLP on its tokens, for any number of tokens, including none
  combine    for every token the weighted sum of its experts' outputs

Modes replace the second and the fourth step (`Experts.dispatch`), because the experts may be on other ranks.

Loads differ, and training improves an expert with a high load, so that it is chosen even more. There are two remedies.
One is a *loss* that reduces the scores of such experts; its gradient is added here and its value is not reported. The
other is a *bias* that is added to the scores only for the choice, not for the weights. Both need the loads of the
global batch. In a pipeline the first backward comes before the last forward, so the loads are not known in time: the
loads of the previous step are used. The router tallies them (`runtime.tallies`), so the result equals that of one
device.

With a capacity an expert takes a limited number of tokens of a *sequence*, first all first choices in the order of
their positions, then the second choices. A dropped token keeps only its residual stream. Other systems count the tokens
of one rank's batch, so they drop different tokens under different layouts.

Source: Shazeer et al. 2017, arXiv:1701.06538; Lepikhin et al. 2020, arXiv:2006.16668 (groups with capacities); Fedus et
al. 2021, arXiv:2101.03961, section 2.2 (the loss); Dai et al. 2024, arXiv:2401.06066 (shared and fine-grained experts);
Wang et al. 2024, arXiv:2408.15664 (biases). Relatives: `modes.expert_parallel`, `modes.parts.dispatch`; notebook 32.

Shape suffixes
    those of GPT, and N tokens (B·T), E experts, C chosen by each token (k in papers), A arrivals: (token, chosen
    expert) pairs
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.what.seams import ByExpert, Dispatches, Draws, DrawsByPlace, Routes
from hybridlab.core.what.shape import Shape
from hybridlab.doors import guarded
from hybridlab.modes.parts.token_order import dispatch, loads
from hybridlab.training.models.counting import Counting


@guarded()
class Experts(nn.Module, Dispatches):
    """The experts of a block, which replace its MLP.

    mlp       a function that makes an MLP from a shape and, optionally, a class for its linear layers (default
              `nn.Linear`)
    dispatch  dispatch(x_ND, chosen_NC, weights_NC, experts) -> y_ND: a mode may replace it
    """

    def __init__(self, shape: Shape, mlp: Callable):
        super().__init__()
        self.router, self.experts = Router(shape), mlp(shape, partial(Many, shape.experts))
        self.shared = nn.ModuleList(mlp(shape) for _ in range(shape.shared))
        self.dispatch = dispatch

    def forward(self, x_BTD):
        chosen_BTC, weights_BTC = self.router(x_BTD)
        pairs = chosen_BTC.flatten(0, 1), weights_BTC.flatten(0, 1)
        y_BTD = self.dispatch(x_BTD.flatten(0, 1), *pairs, self.experts).view_as(x_BTD)
        return sum((mlp(x_BTD) for mlp in self.shared), y_BTD)


def mlp_of(shape: Shape, mlp):
    """The class of the part inside a block of this shape: one MLP, or experts."""
    return mlp if shape.experts == 1 else partial(Experts, mlp=mlp)


@guarded()
class Router(Counting, Routes, DrawsByPlace):
    """The router: chooses the experts of each token and their weights.

    shape  of the model
    tally  the number of tokens of this step that have chosen each expert, (E,)
    bias   added to scores only for the choice, (E,);  push  the gradient of the balance loss with respect to a token's
           scores, (E,)

    The choice of a dropped token is E, which is not the index of any expert.

    raises  ValueError if there is a capacity and a sequence is sharded
    """

    def __init__(self, shape: Shape):
        super().__init__((shape.experts,))
        self.shape, self.routing, self.draws = shape, shape.routing, Draws()
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.width))
        self.register_buffer("bias", torch.zeros(shape.experts))
        self.register_buffer("push", torch.zeros(shape.experts))

    def forward(self, x_BTD):
        scores_BTE = self.scores(x_BTD)
        if self.routing.balance == "loss":
            scores_BTE = Pushed.apply(scores_BTE, self.push)
        chosen_BTC = (scores_BTE.detach() + self.bias).topk(self.shape.chosen).indices
        weights_BTC = scores_BTE.gather(2, chosen_BTC)
        if self.routing.normalised:
            weights_BTC = weights_BTC / weights_BTC.sum(2, keepdim=True)
        if self.draws.on and torch.is_grad_enabled():
            self.tally += loads(chosen_BTC, self.shape.experts)
        if self.routing.capacity is not None:
            self._refuse_parts(x_BTD.shape[1])
            slots = self.routing.slots(self.shape.context, self.shape.experts, self.shape.chosen)
            chosen_BTC = with_room(chosen_BTC, self.shape.experts, slots)
        return chosen_BTC, weights_BTC.to(x_BTD.dtype)

    def _refuse_parts(self, positions):
        if positions != self.shape.context:
            raise ValueError(
                f"an expert's capacity counts tokens of whole sequences, and only {positions} of {self.shape.context} "
                "positions are on this rank: leave out capacity, or do not shard the positions"
            )

    def scores(self, x_BTD):
        """The scores of every token for every expert, from 0 to 1, in at least float32."""
        logits_BTE = functional.linear(x_BTD, self.weight)
        logits_BTE = logits_BTE.to(torch.promote_types(logits_BTE.dtype, torch.float32))
        return logits_BTE.softmax(2) if self.routing.scores == "softmax" else logits_BTE.sigmoid()

    def conclude(self):
        """Use the loads of a step: set the gradient of the loss α·E·Σ fᵢ·Pᵢ with respect to one token's scores, where
        fᵢ is an expert's fraction of all choices and Pᵢ its mean score; or update the biases.
        """
        load_E, pace = self.tally, self.routing.pace
        if self.routing.balance == "loss":
            choices = load_E.sum().clamp(min=1)
            self.push.copy_(pace * len(load_E) * load_E / choices * self.shape.chosen / choices)
        elif self.routing.balance == "bias":
            self.bias += pace * (load_E.mean() - load_E).sign()


class Pushed(torch.autograd.Function):
    """The same scores; the backward adds a number for each expert to their gradient."""

    @staticmethod
    def forward(ctx, scores_BTE, push_E):
        ctx.save_for_backward(push_E)
        return scores_BTE.view_as(scores_BTE)

    @staticmethod
    def backward(ctx, by_scores_BTE):
        return by_scores_BTE + ctx.saved_tensors[0], None


def with_room(chosen_BTC, experts: int, slots: int):
    """The choices after the capacity limit: each expert accepts `slots` per sequence, first choices first; a rejected
    choice becomes `experts`.

    >>> with_room(torch.tensor([[[0, 1], [0, 1], [1, 0]]]), experts=2, slots=2).tolist()
    [[[0, 1], [0, 2], [1, 2]]]
    """
    in_turn_BA = chosen_BTC.transpose(1, 2).flatten(1)
    asked_BAE = functional.one_hot(in_turn_BA, experts)
    place_BA = (asked_BAE.cumsum(1) * asked_BAE).sum(2) - 1
    kept_BCT = torch.where(place_BA < slots, in_turn_BA, experts).unflatten(1, (chosen_BTC.shape[2], -1))
    return kept_BCT.transpose(1, 2)


# --- the experts themselves -----------------------------------------------------------------------------------------


class Many(nn.Module, ByExpert):
    """A linear layer for each expert: tokens in the order of their experts go through the layers of these.

    share  the fraction of the biases that is added here: less than 1 if other ranks add to the same outputs

    One matmul for each expert, a *grouped GEMM*. An expert without tokens multiplies an empty matrix, so it gets a
    gradient of 0.
    """

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias, self.share = nn.Parameter(torch.empty(experts, outputs)) if bias else None, 1

    def forward(self, x_AD, counts: list[int]):
        biases = [None] * len(counts) if self.bias is None else (self.bias * self.share).unbind()
        return torch.cat([functional.linear(*one) for one in zip(x_AD.split(counts), self.weight.unbind(), biases)])
