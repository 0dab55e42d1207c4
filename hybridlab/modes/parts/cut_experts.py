"""Sharded experts: tensor parallelism shards every expert by its hidden units, like an MLP.

Each rank along tp then has a part of every expert that is on its place along ep, and computes a partial sum of the
expert's output. If the residual stream is not sharded, a layer with experts is a pair: tokens and the weights of their
choices are entered, and what comes of them is added up. Where the stream is cut along the sequence, ranks along tp have
other tokens: those that have come to a rank's experts are shared with all ranks along tp, and the partial sums are sent
back to the ranks of the tokens.

  one layer sends along tp, per rank    of n tokens that ranks along tp have together, k choices each, width h
  whole stream                          n·h added forward; n·(h + k) added backward
  cut stream                            counts; k·n·h to everyone, and as much back; the same backward

The number of tokens is not known in advance, so they are sent as an all-to-all: uneven parts need no filling.

Source: NVIDIA/Megatron-LM, expert tensor parallelism, megatron/core/transformer/moe/token_dispatcher.py. Relatives:
`tensor_parallel`, the mode; `dispatch`, the way along ep; `predict.plans.time_of_context_and_experts`; notebook 32.

Shape suffixes: those of `dispatch`
"""

from collections.abc import Iterator
from functools import partial

import torch

from hybridlab.core.what.seams import Dispatches
from hybridlab.core.where.layout import Layout
from hybridlab.modes.parts.token_order import by_expert
from hybridlab.world.talk.typed import all_reduce, all_to_all, enter

COUNT = 8  # bytes of a number of tokens


def cut(layer, comm, sequence: bool):
    """Have a layer with experts work with a part of each, in place;  sequence  whether the stream is cut along it."""
    layer.experts.down.share = 1 / comm.mesh["tp"]  # every rank adds its share of the biases
    if sequence:
        layer.experts.forward = partial(on_all, layer.experts.forward, comm)
    else:
        layer.dispatch = partial(entered, layer.dispatch, comm)


def entered(dispatch, comm, x_ND, chosen_NC, weights_NC, experts):
    """A dispatch with the same tokens on all ranks along tp, and experts that compute partial sums."""
    x_ND, weights_NC = (enter(comm, one, "tp") for one in (x_ND, weights_NC))
    return all_reduce(comm, dispatch(x_ND, chosen_NC, weights_NC, experts), "tp", to="I")


def on_all(experts, comm, x_AD, counts: list[int]):
    """What the experts make of this rank's rows, in the order of their experts: all ranks along tp compute a partial
    sum.
    """
    counts_RE = comm.all_gather(torch.tensor(counts)[None], "tp")
    ways, here, sizes = len(counts_RE), len(x_AD), counts_RE.sum(1).tolist()
    came_AD = all_to_all(comm, x_AD.repeat(ways, 1), "tp", cut=0, join=0, sent=[here] * ways, received=sizes)
    order_A = by_expert(counts_RE).to(x_AD.device)
    y_AD = experts(came_AD[order_A], counts_RE.sum(0).tolist())[order_A.argsort()]
    summands_AD = all_to_all(comm, y_AD, "tp", cut=0, join=0, sent=sizes, received=[here] * ways)
    return summands_AD.unflatten(0, (ways, here)).sum(0)


# --- what the mode is told -----------------------------------------------------------------------------------------


def routed(module) -> dict:
    """{name: layer} of those that hold experts, to which tokens travel."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, Dispatches)}


def behind(layout: Layout) -> list[str]:
    """The biases after experts: each rank along tp adds a fraction, so their gradients are partial sums."""
    return [param.name for param in layout.params if param.dims.split() == ["E", "D"]]


def sends(job, layer: int, when: str, here: dict[str, int]) -> Iterator[tuple[str, float]]:
    """(operation, bytes) of one microbatch in one layer; where ranks have other numbers of tokens, the mean."""
    if when == "again" or not routed(job.layers[layer]):
        return
    shape, ways, each = job.model.shape, job.mesh["tp"], job.widths.value
    tokens = here["B"] * here["T"]
    arrivals = tokens * shape.chosen * shape.width * each
    if job["sequence"]:
        yield from [("all_gather", ways * shape.experts / job.mesh["ep"] * COUNT)] * (when == "forward")
        yield from [("all_to_all", arrivals)] * 2  # each rank has one part of them, and sends it to all
    else:
        yield "all_reduce", tokens * shape.width * each
        yield from [("all_reduce", tokens * shape.chosen * each)] * (when == "backward")
