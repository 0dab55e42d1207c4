"""Notebook 10: the messages across each cut, the time of each layer, and the inequality of the stages of a cut."""

from collections import Counter

import hybridlab as hl
from hybridlab.training import stages


def by_link(real: hl.Timeline) -> dict[tuple[int, int], tuple[int, int]]:
    """{(from rank, to rank): (messages, bytes)} of one step, from the ranks' ledgers."""
    rows = [row for row in real.ledger if row["op"] == "isend" and row["purpose"] == "messages"]
    messages = Counter((row["rank"], row["peer"]) for row in rows)
    size = Counter()
    for row in rows:
        size[row["rank"], row["peer"]] += row["bytes"]
    steps = real.steps + 1  # one step was run but not measured
    return {link: (messages[link] // steps, size[link] // steps) for link in sorted(messages)}


def handed_on(links: dict[tuple[int, int], tuple[int, int]]) -> int:
    """The bytes of the same messages if each is passed from neighbour to neighbour, and every hop counts."""
    return sum(size * abs(there - here) for (here, there), (_, size) in links.items())


def seconds_of_layers(shape: hl.Shape, sequences: int) -> list[float]:
    """The time of each layer's forward and backward, measured by one rank, which is one thread."""
    with hl.ranks(1) as pool:
        return pool.run(_timed, shape, sequences)[0]


def _timed(comm, shape, sequences):
    return stages.seconds_of_layers(shape, sequences)


def shares(weights, bounds) -> list[float]:
    """The fraction of the sum of all layers' weights that each stage has; weights are seconds, or numbers of
    parameters.

    >>> shares([1, 1, 2], [range(0, 2), range(2, 3)])
    [0.5, 0.5]
    """
    return [sum(weights[layer] for layer in layers) / sum(weights) for layers in bounds]


def blocks(bounds) -> list[int]:
    """The number of blocks in each stage, as in `hl.run(…, cut=blocks)`; the embedding and the head are not blocks.

    >>> blocks([range(0, 3), range(3, 8)])
    [2, 4]
    """
    sizes = [len(layers) for layers in bounds]
    sizes[0], sizes[-1] = sizes[0] - 1, sizes[-1] - 1
    return sizes


def apart(one: hl.Timeline, other: hl.Timeline) -> float:
    """The largest gap between the losses of two runs, step by step; 0 if they learn the same to the last bit."""
    return max(abs(a - b) for a, b in zip(one.loss, other.loss, strict=True))


def imbalance(times) -> float:
    """The time of the slowest stage divided by the mean of all stages: 1 if the cut is perfect.

    >>> imbalance([30, 50, 40])
    1.25
    """
    return max(times) * len(times) / sum(times)
