"""Sharded experts: tensor parallelism shards every expert by its hidden units, like an MLP.

Each rank along tp has a part of every expert of its place along ep, and computes a partial sum of the expert's output.
If the residual stream is not sharded, a layer with experts works like any pair of matrices: tokens and the weights of
their choices enter, and the partial outputs are all-reduced. If the stream is sharded along the sequence, ranks along
tp have different tokens. The tokens that arrive at a rank's experts are then sent to all ranks along tp, and the
partial sums are sent back to the ranks of the tokens.

  sent by each rank along tp            for n tokens on the ranks along tp together, k choices each, width h
  full stream                           n·h all-reduced forward; n·(h + k) all-reduced backward
  sharded stream                        counts; k·n·h to every rank, and the same back; the same in the backward

The number of tokens is not known in advance, so they are sent as an all-to-all: uneven parts need no padding.

*Folded* experts (`fold`) are unsharded, and distributed over tp as well: see `expert_parallel`. Ranks along tp then
must have different tokens. A sharded stream has them, and nothing is sent along tp. Of a full stream, each rank takes
an equal part before the dispatch, and the parts of the outputs are gathered after it: n·h forward, n·(h + k) backward,
half of the all-reduces on the wire.

Source: NVIDIA/Megatron-LM, expert tensor parallelism, megatron/core/transformer/moe/token_dispatcher.py. Relatives:
`tensor_parallel`, the mode; `dispatch`, the way along ep; `predict.plans.time_of_context_and_experts`; notebook 32.

Shape suffixes: those of `dispatch`
"""

from collections.abc import Iterator
from functools import partial

import torch

from hybridlab.core.what.seams import Dispatches
from hybridlab.core.where.layout import Layout, even
from hybridlab.modes.parts.lent_experts import number_of
from hybridlab.modes.parts.routed import routed_in
from hybridlab.modes.parts.token_order import by_expert
from hybridlab.world.talk.typed import all_gather, all_reduce, all_to_all, enter, split

COUNT = 8  # bytes of one count of tokens


def cut(layer, comm, sequence: bool):
    """Make a layer compute with a part of each expert, in place;  sequence  whether the stream is sharded along it."""
    layer.experts.down.share = 1 / comm.mesh["tp"]  # every rank adds this fraction of the biases
    if sequence:
        layer.experts.forward = partial(on_all, layer.experts.forward, comm)
    else:
        layer.dispatch = partial(entered, layer.dispatch, comm)


def fold(layer, comm, sequence: bool):
    """Make a layer dispatch different tokens on each rank along tp, in place; its experts are unsharded."""
    if not sequence:
        layer.dispatch = partial(divided, layer.dispatch, comm)


def divided(dispatch, comm, x_ND, chosen_NC, weights_NC, experts):
    """A dispatch of this rank's part of the tokens, which are the same on all ranks along tp; all outputs return."""
    spans = even(len(x_ND), comm.mesh["tp"])
    sizes = [end - begin for begin, end in spans]
    x_MD, weights_MC = (split(comm, one, "tp", 0, of="I", sizes=sizes) for one in (x_ND, weights_NC))
    y_MD = dispatch(x_MD, chosen_NC[slice(*spans[comm.coordinates["tp"]])], weights_MC, experts)
    return all_gather(comm, y_MD, "tp", 0, to="I", sizes=sizes)


def entered(dispatch, comm, x_ND, chosen_NC, weights_NC, experts):
    """A dispatch with the same tokens on all ranks along tp, and experts that compute partial sums."""
    x_ND, weights_NC = (enter(comm, one, "tp") for one in (x_ND, weights_NC))
    return all_reduce(comm, dispatch(x_ND, chosen_NC, weights_NC, experts), "tp", to="I")


def on_all(experts, comm, x_AD, counts: list[int]):
    """The experts' outputs for this rank's rows, in the order of their experts: each rank along tp computes a partial
    sum.
    """
    counts_RE = comm.all_gather(torch.tensor(counts)[None], "tp")
    ways, here, sizes = len(counts_RE), len(x_AD), counts_RE.sum(1).tolist()
    came_AD = all_to_all(comm, x_AD.repeat(ways, 1), "tp", cut=0, join=0, sent=[here] * ways, received=sizes)
    order_A = by_expert(counts_RE).to(x_AD.device)
    y_AD = experts(came_AD[order_A], counts_RE.sum(0).tolist())[order_A.argsort()]
    summands_AD = all_to_all(comm, y_AD, "tp", cut=0, join=0, sent=sizes, received=[here] * ways)
    return summands_AD.unflatten(0, (ways, here)).sum(0)


# --- information for the mode --------------------------------------------------------------------------------------


def routed(module) -> dict:
    """{name: layer} of the layers with experts, to which tokens are sent."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, Dispatches)}


def behind(layout: Layout) -> list[str]:
    """The biases after sharded experts: each rank along tp adds a fraction, so their gradients are partial sums."""
    whole = lambda param: any("tp" in axes.split("+") for axes in param.shard)
    return [param.name for param in layout.params if param.dims.split() == ["E", "D"] and not whole(param)]


def sends(job, layer: int, when: str, here: dict[str, int]) -> Iterator[tuple[str, float]]:
    """(operation, bytes) of one microbatch in one layer; where ranks have different numbers of tokens, the mean."""
    if when == "again" or not routed(job.layers[layer]):
        return
    ways, each = job.mesh["tp"], job.widths.value
    for one in routed_in(job, layer):
        tokens = here["B"] * one.here(job, here)
        if job["fold"]:
            filled = 0 if job["sequence"] else ways * -(-tokens // ways)  # uneven parts are padded
            gathered = {"forward": [one.width], "backward": [one.width, one.chosen]}[when]
            yield from (("all_gather", filled * numbers * each) for numbers in gathered if filled)
        elif job["sequence"]:
            slots = one.experts + number_of(job)
            yield from [("all_gather", ways * slots / job.mesh["ep"] * COUNT)] * (when == "forward")
            arrivals = tokens * one.chosen * one.width * each
            yield from [("all_to_all", arrivals)] * 2  # each rank has one part of them, and sends it to all
        else:
            yield "all_reduce", tokens * one.width * each
            yield from [("all_reduce", tokens * one.chosen * each)] * (when == "backward")
