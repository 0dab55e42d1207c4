"""Lent experts: the owner of a popular expert lends its weights to other ranks, which compute some of its tokens.

A rank has a slot for each expert that it owns, and further slots for the experts lent to it. The dispatch sends tokens
to slots. The choices of one expert, in the order of their tokens, are dealt in turn to its owner and its copies, so the
result does not depend on the loads of other experts.

A loan lasts for one microbatch and layer: the owner sends the weights after the tokens have arrived, and autograd sends
the gradient of each copy back, where it is added to the owner's. So a copy has no state: optimizers, reductions,
ZeRO and checkpoints know only owners, weights are always those of this step, and a recomputed or repeated forward is
right without a further rule. The price is bytes: a step with m microbatches sends each loan m times, and autograd
keeps it until the backward.

  one layer and microbatch, all ranks together   for L loans of an expert with w weights
  forward                                        L·w out
  backward                                       L·w back

Source: loans, He et al. 2022, FasterMoE, PPoPP ("shadowed" experts); copies, DeepSeek-AI 2025, EPLB. Relatives:
`modes.copied_experts`, the mode; `dispatch`; `predict.bytes.copied_experts`, which plans; notebook 32.

Shape suffixes
    those of `dispatch`, and H holders of an expert, W weights of an expert
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.func import functional_call

from hybridlab.core.where.layout import even
from hybridlab.core.where.slots import Loans, Slots
from hybridlab.modes.parts.token_order import in_order
from hybridlab.world.talk.typed import all_to_all


def in_turn(chosen_NC, holders: Sequence[Sequence[int]], here: int):
    """The slot of each choice: the choices of an expert are dealt in turn to its holders.

    chosen_NC  the experts that each token chose;  holders  the slots of each expert
    here       the number of this rank: the turn begins with the holder of this number, so that the first holder does
               not get every remainder

    >>> in_turn(torch.tensor([[0], [1], [0], [0]]), [[0, 3], [1]], here=0).tolist()
    [[0], [1], [3], [0]]
    """
    order_A, counts_E = in_order(chosen_NC, len(holders))
    expert_A = torch.arange(len(counts_E)).repeat_interleave(counts_E)
    nth_A = torch.arange(len(expert_A)) - (counts_E.cumsum(0) - counts_E)[expert_A]
    number_E = torch.tensor([len(its) for its in holders])
    slots_EH = nn.utils.rnn.pad_sequence([torch.tensor(its) for its in holders], batch_first=True)
    slot_A = slots_EH[expert_A, (nth_A + here) % number_E[expert_A]]
    return chosen_NC.flatten().index_copy(0, order_A, slot_A.to(order_A.device)).view_as(chosen_NC)


def dealt(dispatch, holders: Sequence[Sequence[int]], here: int, x_ND, chosen_NC, weights_NC, experts):
    """A dispatch to slots, of tokens that chose experts."""
    return dispatch(x_ND, in_turn(chosen_NC, holders, here), weights_NC, experts)


def lend(experts, loans: Loans, comm, axis: tuple[int, ...]):
    """Let a rank's experts compute with further experts that are lent to the rank, in place.

    experts  those of this rank: a module whose parameters have a row for each expert
    axis     the ranks along which experts are distributed
    """
    plain, called = experts.forward, _Called(experts)

    def forward(x_AD, counts: list[int]):
        lent_W = borrowed(dict(experts.named_parameters()), loans, comm, axis)
        own = len(counts) - sum(loans.received)
        x_own, x_lent = x_AD.split([sum(counts[:own]), sum(counts[own:])])
        y_own = plain(x_own, counts[:own])
        if own == len(counts):  # this rank borrows nothing, but its part of the graph returns the others' gradients
            return y_own + sum(weight.sum() for weight in lent_W.values())
        named = {f"experts.{name}": weight for name, weight in lent_W.items()}
        return torch.cat([y_own, functional_call(called, named, (plain, x_lent, counts[own:]))])

    experts.forward = forward


def borrowed(weights: Mapping, loans: Loans, comm, axis: tuple[int, ...]) -> dict:
    """{name: the rows lent to this rank}, in the order of their experts; gradients return to the owners.

    weights  {name: a row for each expert of this rank}
    """
    rows_W = torch.cat([weight[loans.lent].flatten(1) for weight in weights.values()], 1)
    came_W = all_to_all(comm, rows_W, axis, cut=0, join=0, sent=loans.sent, received=loans.received)
    parts = came_W.split([weight[0].numel() for weight in weights.values()], 1)
    return {name: part.view(-1, *weight.shape[1:]) for (name, weight), part in zip(weights.items(), parts)}


class _Called(nn.Module):
    """A module with experts as its submodule, whose weights a call may replace."""

    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, plain, *about):
        return plain(*about)


# --- information for the modes -------------------------------------------------------------------------------------


def slots_of(job) -> Slots:
    """The slots of a job's layers with experts."""
    ways = job.mesh.length(job.rules()["E"])
    return Slots([end - begin for begin, end in even(job.sizes["E"], ways)], job["expert_copies"] or {})


def number_of(job) -> int:
    """The number of copies in each layer with experts."""
    return sum(map(len, (job["expert_copies"] or {}).values()))
