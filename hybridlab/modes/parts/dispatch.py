"""Dispatch: sending tokens to experts on other ranks, and their results back.

Every rank along ep has its own tokens and some of the experts. There are three ways to dispatch:

  all-to-all   ranks first exchange counts of tokens, then each token is sent to its experts
  with slots   the same with a capacity: every expert gets the same number of rows from every rank, padded with zeros.
               No counts are exchanged, and no shape depends on the data
  all-gather   every rank gathers all tokens and processes those that chose its experts; the sums are reduce-scattered

The weights of the choices stay with the token, except in the all-gather. Gradients return through the
conjugate collective (`world.talk.typed`), so an expert's gradient is already the sum over the tokens of all ranks along
ep: only the reduction over the copies of this expert remains.

  sent by each rank in a forward       numbers, for n tokens, k choices each, width h, on p ranks
  all-to-all                           2·k·n·h, and E·p counts
  with slots                           2·E·slots·h for each sequence
  all-gather                           p·n·(h + 2·k) gathered, p·n·h scattered

Source: NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py; slots, Lepikhin et al. 2020,
arXiv:2006.16668. Relatives: `expert_parallel`, the mode; `token_order`, the same on one device; notebook 32.

Shape suffixes
    N tokens, E experts of the layer, C chosen by each token, A arrivals ((token, chosen expert) pairs),
    R ranks, S slots, D width
"""

from collections.abc import Sequence

import torch

from hybridlab.modes.parts.token_order import by_expert, combine, in_order
from hybridlab.scheduling.dispatched import ATTENTION, PARTS
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.typed import all_gather, all_to_all, reduce_scatter

Axis = str | tuple[int, ...]  # an axis of the mesh, or the ranks of a group


def by_all_to_all(x_ND, chosen_NC, weights_NC, experts, comm, owned: Sequence[int], axis: Axis = "ep"):
    """Dispatch each token to the ranks of its experts with an all-to-all, and combine the results.

    x_ND        tokens
    chosen_NC   the experts that each token chose
    weights_NC  the weights of these choices
    experts     the experts of this rank
    comm        the communicator
    owned       the number of experts of each rank
    axis        the axis along which experts are distributed, or the ranks
    """
    order_A, counts_E = in_order(chosen_NC, sum(owned))
    counts_RE = comm.all_gather(counts_E[None], axis)
    y_AD = through(x_ND[order_A // chosen_NC.shape[1]], counts_RE, experts, comm, owned, axis)
    return combine(y_AD, order_A, weights_NC)


def with_slots(x_ND, chosen_NC, weights_NC, experts, comm, owned: Sequence[int], slots: Sequence[int]):
    """Dispatch with the same number of rows for every expert.

    x_ND        tokens
    chosen_NC   the experts that each token chose
    weights_NC  the weights of these choices
    experts     the experts of this rank
    comm        the communicator along ep
    owned       the number of experts of each rank
    slots       rows that each rank sends to one expert
    """
    order_A, counts_E = in_order(chosen_NC, sum(owned))
    here = slots[comm.coordinates["ep"]]
    expert_A = torch.arange(len(counts_E)).repeat_interleave(counts_E)
    first_E = counts_E.cumsum(0) - counts_E
    slot_A = (expert_A * here + torch.arange(len(expert_A)) - first_E[expert_A]).to(x_ND.device)
    arrivals_AD = x_ND[order_A // chosen_NC.shape[1]]
    filled_AD = x_ND.new_zeros(len(counts_E) * here, x_ND.shape[1]).index_copy(0, slot_A, arrivals_AD)
    counts_RE = torch.tensor(slots)[:, None].expand(-1, len(counts_E))
    return combine(through(filled_AD, counts_RE, experts, comm, owned)[slot_A], order_A, weights_NC)


def by_all_gather(x_ND, chosen_NC, weights_NC, experts, comm, owned: Sequence[int], rows: Sequence[int]):
    """Gather the tokens of all ranks; every rank computes its experts for all of them.

    x_ND        tokens
    chosen_NC   the experts that each token chose
    weights_NC  the weights of these choices
    experts     the experts of this rank
    comm        the communicator along ep
    owned       the number of experts of each rank
    rows        the number of rows of a microbatch on each rank
    """
    here = comm.coordinates["ep"]
    tokens = [len(x_ND) // rows[here] * its for its in rows]
    x_MD, weights_MC = (all_gather(comm, x, "ep", 0, to="R", sizes=tokens) for x in (x_ND, weights_NC))
    every, first = sum(owned), sum(owned[:here])
    own_MC = comm.all_gather(chosen_NC, "ep", 0, tokens) - first
    own_MC = torch.where((own_MC >= 0) & (own_MC < owned[here]), own_MC, owned[here])  # one past the last expert
    order_A, counts_E = in_order(own_MC, owned[here], every, first)
    y_AD = experts(x_MD[order_A // own_MC.shape[1]], counts_E.tolist())
    return reduce_scatter(comm, combine(y_AD, order_A, weights_MC), "ep", 0, sizes=tokens)


def through(x_AD, counts_RE, experts, comm, owned: Sequence[int], axis: Axis = "ep"):
    """The outputs of the experts for rows that are sorted by expert; the experts may be on any rank.

    x_AD       rows in the order of their experts
    experts    those of this rank
    comm       the communicator
    owned      the number of experts of each rank
    counts_RE  the number of rows of each rank for each expert
    axis       the axis along which experts are distributed, or the ranks
    """
    way = Way(comm, counts_RE, owned, axis)
    order_A = way.by_expert_A.to(x_AD.device)
    came_AD = all_to_all(comm, x_AD, axis, cut=0, join=0, sent=way.sent, received=way.received)
    y_AD = experts(came_AD[order_A], way.counts_E.tolist())
    return all_to_all(comm, y_AD[order_A.argsort()], axis, cut=0, join=0, sent=way.received, received=way.sent)


class Way:
    """The two all-to-alls of one microbatch and layer: rows to the experts, and back; gradients take the same route.

    comm       the communicator
    counts_RE  the number of rows of each rank for each expert;  owned  the number of experts of each rank
    axis       the axis along which experts are distributed, or the ranks

    sent, received  the number of rows sent to each rank, and received from it
    counts_E        the number of rows that arrive at each expert of this rank
    by_expert_A     the order that sorts the received rows by expert
    """

    def __init__(self, comm, counts_RE, owned: Sequence[int], axis: Axis = "ep"):
        here = comm.group(axis).ranks.index(comm.rank)
        mine_RE = counts_RE.split(list(owned), 1)[here]
        self.comm, self.axis, self.counts_E = comm, axis, mine_RE.sum(0)
        self.sent = [int(counts_E.sum()) for counts_E in counts_RE[here].split(list(owned))]
        self.received, self.by_expert_A = mine_RE.sum(1).tolist(), by_expert(mine_RE)

    def there(self, x_AD) -> Message:
        """Start sending rows, in the order of their experts, to these experts; received rows have that order too."""
        order = self.by_expert_A.to(x_AD.device)
        return self.comm.iall_to_all(x_AD, self.axis, sent=self.sent, received=self.received).then(lambda x: x[order])

    def home(self, y_AD) -> Message:
        """Start the return transfer."""
        y_AD = y_AD[self.by_expert_A.argsort().to(y_AD.device)]
        return self.comm.iall_to_all(y_AD, self.axis, sent=self.received, received=self.sent)


class Exchanges:
    """The all-to-alls between the layers of blocks in parts (`training.models.parts`): started here and waited for
    later.

    comm   the communicator along ep
    owned  the number of experts of each rank

    A stage is one of a block's three layers. After the first, rows are sent to their experts; after the second, back.
    """

    def __init__(self, comm, owned: Sequence[int]):
        self.comm, self.owned, self.ways = comm, owned, {}

    def __call__(self, action, tensors) -> list[Message]:
        """Messages in the order of the tensors that leave a stage on the edge of a SEND; only the rows travel."""
        block, layer = divmod(action.edge[0], PARTS)
        whose, forward = (block, action.microbatch), action.kind == "SEND_F"
        x, rows, *others = tensors
        if forward and layer == ATTENTION:
            counts_RE = self.comm.all_gather(others[-1][None], "ep")
            self.ways[whose] = Way(self.comm, counts_RE, self.owned)
            others[-1] = self.ways[whose].counts_E
        way = self.ways[whose]
        travelling = way.there(rows) if forward == (layer == ATTENTION) else way.home(rows)
        here = lambda one: Message(lambda: one)
        return [here(x), travelling, *map(here, others)]
