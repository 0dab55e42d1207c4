"""Count the messages and bytes of a schedule over each link, and the collectives inside a stage, along tp and x."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.lanes import lanes, messages
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.lower import lower
from hybridlab.signatures import typed

LOSS_SUMS = (1, 2)  # numbers of a token in the loss's two sums along tp: the largest score; Σ exp and the target's


@typed
def traffic(schedule: Schedule, bytes: float | Sequence[float] = 1) -> dict[tuple[int, int], tuple[int, float]]:
    """The traffic of one step: {(from rank, to rank): (messages, bytes)}.

    schedule  the schedule whose messages are counted
    bytes     of a boundary tensor; a number, or one per edge (edge i leads from stage i to i + 1)

    raises  ValueError if there is not one number per edge

    >>> import hybridlab as hl
    >>> hl.traffic(hl.schedule("1f1b", ranks=3, microbatches=4), bytes=10)
    {(0, 1): (4, 40), (1, 0): (4, 40), (1, 2): (4, 40), (2, 1): (4, 40)}
    """
    flow = flow_of(lower(schedule))
    if (count := np.size(bytes)) not in (1, len(flow.edges)):
        raise ValueError(f"bytes={bytes} has {count} numbers, not {len(flow.edges)}: give one for each edge, or one")
    sends, receives = messages(flow, lanes(flow))
    edges = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
    weights = np.broadcast_to(bytes, len(flow.edges))[edges]
    count, weight = Counter(), Counter()
    for link, size in zip(zip(flow.rank[sends].tolist(), flow.rank[receives].tolist()), weights.tolist()):
        count[link] += 1
        weight[link] += size
    return {link: (count[link], weight[link]) for link in sorted(count)}


def tensor(shape: Shape, sequences: int, ways: int, sequence: bool = False, crossings: int = 0) -> dict:
    """{(tensor, phase): elements of all collectives along tp} of one microbatch, per rank, over all layers of the
    model.

    The tensor is "embedding", "blocks", "head", "loss" or "boundaries"; the phase "forward", "backward", or "again"
    (gathered a second time, for the backward). As in the ledger, an operation counts the elements of its full tensor
    once; uneven parts are padded.

    shape      of the model
    sequences  b, in the microbatch;  ways  the length of tp;  sequence  whether sequence parallelism is on
    crossings  the tensors that leave a stage in parts (`modes.parts.scatter_gather`); with sequence parallelism they
               cost nothing

    Source: Korthikanti et al. 2022, arXiv:2205.05198, 4.2: four all-reduces of b·s·h in a block, or four gathers and
    four reduce-scatters. The other terms are our own count.

    >>> terms = tensor(Shape(layers=3, width=8, context=4), sequences=1, ways=2)
    >>> terms["blocks", "forward"] + terms["blocks", "backward"] == 3 * 4 * (1 * 4 * 8)
    True
    """
    between = boundary(shape, sequences, ways) * (0 if sequence else crossings)
    terms = Counter({("boundaries", when): between for when in ("forward", "backward")})
    for layer in range(shape.layers + 2):
        terms.update(tensor_of_layer(shape, layer, sequences, ways, sequence))
    return {term: elements for term, elements in terms.items() if elements}


def tensor_of_layer(shape: Shape, layer: int, sequences: int, ways: int, sequence: bool = False) -> dict:
    """The collectives along tp of one layer, in the form of `tensor`: 0 is the embedding, then come the blocks, then
    the head.

    >>> tensor_of_layer(Shape(width=8, context=4), 1, sequences=1, ways=2)
    {('blocks', 'forward'): 64, ('blocks', 'backward'): 64}
    """
    stream = boundary(shape, sequences, ways) if sequence else sequences * shape.context * shape.width
    forward, backward, again = {"forward": stream}, {"backward": stream}, {"again": stream} if sequence else {}
    if layer == 0:
        return _named("embedding", forward | (backward if sequence else {}))
    if layer > shape.layers:
        loss = {("loss", "forward"): added(LOSS_SUMS) * sequences * shape.context}
        return _named("head", (forward if sequence else {}) | backward | again) | loss
    pairs = 2 if shape.heads else 1
    whole = {when: 2 * elements for when, elements in (forward | backward).items()} if sequence else forward | backward
    return _named("blocks", {when: pairs * elements for when, elements in (whole | again).items()})


class Along(NamedTuple):
    """The elements that a layer all-reduces along x for each token.

    forward   outputs of the matrices that read the residual stream, as partial sums
    backward  gradients of the inputs of the matrices that write to the stream
    norms     of every norm, the same in the forward and in the backward
    """

    forward: tuple
    backward: tuple
    norms: tuple

    @property
    def total(self) -> Amount:
        """Elements for each token, forward and backward."""
        return added(self.forward) + added(self.backward) + 2 * added(self.norms)


def along_block(shape: Shape, ways: Amount = 1) -> Along:
    """The elements that a block on a grid sends along x. tp, with `ways` ranks, shards heads and hidden units; x shards
    the width.

    >>> one = along_block(Shape(width=32, heads=4), ways=2)  # q, k, v, up; out, down; mean and variance of two norms
    >>> print(*map(int, one.forward + one.backward + one.norms))
    16 16 16 64 16 64 1 1 1 1
    """
    hidden, gpt, attends = shape.inside / ways, shape.style == "gpt", shape.heads > 0
    return Along(
        _made(shape, ways) + (hidden,) * (1 if gpt else 2),
        (shape.found_width / ways,) * attends + (hidden,),
        (1,) * (_statistics(shape) * (1 + attends)),
    )


def _made(shape: Shape, ways) -> tuple:
    """The features that attention computes from the residual stream: queries, keys and values, or their latents."""
    if not shape.heads:
        return ()
    queries = shape.query_latent or shape.query_width / ways
    if shape.latent:
        return queries, shape.latent, shape.rotary
    keys = shape.key_width / np.minimum(ways, shape.key_heads)[()]  # fewer than ranks: copied
    return queries, keys, keys


def along_head(shape: Shape, ways: Amount = 1) -> Along:
    """The elements that the head sends along x: for its norm and for the scores."""
    return Along((shape.vocabulary / ways,), (), (1,) * _statistics(shape))


def along(shape: Shape, tokens: int, ways: int = 1) -> float:
    """Elements of all collectives along x for this number of tokens, per rank, over all layers, forward and backward.

    Source: the table in `modes.grid_parallel`. In a ring, each rank sends about twice this number.
    """
    return tokens * (shape.layers * along_block(shape, ways).total + along_head(shape, ways).total)


def _statistics(shape: Shape) -> int:
    """The number of sums of a norm: mean and variance, or the mean of squares only."""
    return 2 if shape.style == "gpt" else 1


def boundary(shape: Shape, sequences: int, ways: int) -> int:
    """The elements of a tensor b·s·h that is sent in parts, padded to equal length."""
    return sequences * ways * -(-shape.context // ways) * shape.width


def _named(what: str, terms: dict) -> dict:
    return {(what, when): elements for when, elements in terms.items()}
