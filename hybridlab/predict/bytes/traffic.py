"""Traffic: which messages a schedule sends over which link, what they weigh, and what tensor parallelism adds."""

from collections import Counter

import numpy as np

from hybridlab.core.flow import flow_of
from hybridlab.core.lanes import lanes, messages
from hybridlab.core.schedule import Schedule
from hybridlab.core.shape import Shape
from hybridlab.schedules.lower import lower


def traffic(schedule: Schedule, bytes: float = 1) -> dict[tuple[int, int], tuple[int, float]]:
    """{(from rank, to rank): (messages, bytes)} of one step, for boundary tensors of so many bytes each.

    bytes  a number, or one per edge (edge i leads from stage i to i + 1)

    >>> from hybridlab.schedules.registry import schedule
    >>> traffic(schedule("1f1b", ranks=3, microbatches=4), bytes=10)
    {(0, 1): (4, 40), (1, 0): (4, 40), (1, 2): (4, 40), (2, 1): (4, 40)}
    """
    flow = flow_of(lower(schedule))
    sends, receives = messages(flow, lanes(flow))
    edges = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
    weights = np.broadcast_to(bytes, len(flow.edges))[edges]
    count, weight = Counter(), Counter()
    for link, size in zip(zip(flow.rank[sends].tolist(), flow.rank[receives].tolist()), weights.tolist()):
        count[link] += 1
        weight[link] += size
    return {link: (count[link], weight[link]) for link in sorted(count)}


def tensor(shape: Shape, sequences: int, ways: int, sequence: bool = False, crossings: int = 0) -> dict:
    """{(what, when): elements of all collectives along tp} of one microbatch, per rank, over all layers of the model.

    what is "embedding", "blocks", "head", "loss" or "boundaries"; when is "forward", "backward", or "again": gathered
    once more, for the backward. An element counts once in an operation, as in the ledger: the full tensor of a sum, a
    gather or a reduce-scatter; uneven parts are filled up.

    sequences  b, in the microbatch;  ways  the length of tp;  sequence  with sequence parallelism
    crossings  the tensors that leave a stage in parts (`tensor_parallel.narrowed`); with sequence parallelism they
               cost nothing

    Source: Korthikanti et al. 2022, arXiv:2205.05198, 4.2: four sums of b·s·h in a block, or four gathers and four
    reduce-scatters; the rest is counted here.

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
    """The same of one layer: 0 is the embedding, then come the blocks, then the head.

    >>> tensor_of_layer(Shape(width=8, context=4), 1, sequences=1, ways=2)
    {('blocks', 'forward'): 64, ('blocks', 'backward'): 64}
    """
    stream = boundary(shape, sequences, ways) if sequence else sequences * shape.context * shape.width
    forward, backward, again = {"forward": stream}, {"backward": stream}, {"again": stream} if sequence else {}
    if layer == 0:
        return _named("embedding", forward | (backward if sequence else {}))
    if layer > shape.layers:
        loss = {("loss", "forward"): 3 * sequences * shape.context}  # the largest score; Σ exp and the target's score
        return _named("head", (forward if sequence else {}) | backward | again) | loss
    pairs = 2 if shape.heads else 1
    whole = {when: 2 * elements for when, elements in (forward | backward).items()} if sequence else forward | backward
    return _named("blocks", {when: pairs * elements for when, elements in (whole | again).items()})


def boundary(shape: Shape, sequences: int, ways: int) -> int:
    """The elements of b·s·h when it travels in parts, filled up to equal ones."""
    return sequences * ways * -(-shape.context // ways) * shape.width


def _named(what: str, terms: dict) -> dict:
    return {(what, when): elements for when, elements in terms.items()}
