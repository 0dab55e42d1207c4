"""Layouts, checked: strategies on real ranks are compared with one device: losses, gradients, steps of SGD, and every
message.

A rank compares its part of each gradient with the same part of the full gradient, relative to the largest entry of the
full one. Its ledger must have exactly the rows that `predict.bytes.arrows` derives.

Relatives: `layouts`, which is proved here; `training.check`, the same proof for a full model; notebook 35.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import torch

from hybridlab.core.what.operators import Graph, Strategy
from hybridlab.modes.products import layouts
from hybridlab.predict.bytes.arrows import Send, arrows, resting

WORD = 8  # bytes: the proof uses double precision


class Home(NamedTuple):
    """The result of one rank: its largest difference from one device, the rows of its ledger, and the rows that were
    derived.
    """

    gap: float
    sent: list[Send]
    derived: list[Send]

    @property
    def strange(self) -> list[Send]:
        """The messages that were sent but not derived, or derived but not sent."""
        sent, derived = Counter(self.sent), Counter(self.derived)
        return sorted((sent - derived | derived - sent).elements(), key=str)


def tried(pool, graph: Graph, strategies: list[Strategy], steps: int = 1, run=layouts.run) -> list[list[Home]]:
    """For each strategy, the result of every rank of a pool after this many steps of SGD, from the same numbers."""
    by_rank = pool.run(_on_rank, graph, strategies, steps, run)
    home = lambda gap, *rows: Home(gap, *([Send(*row) for row in each] for each in rows))
    return [[home(*one) for one in found] for found in zip(*by_rank)]


def numbers(graph: Graph) -> dict[str, torch.Tensor]:
    """Random numbers for all given tensors, the same on every rank."""
    source = torch.Generator().manual_seed(0)
    draw = lambda dims: torch.randn(graph.lengths(dims), dtype=torch.float64, generator=source)
    return {name: draw(dims).requires_grad_(name in graph.learns) for name, dims in graph.given.items()}


def alone(graph: Graph, values: dict, steps: int) -> Iterator[tuple[float, dict[str, torch.Tensor]]]:
    """(loss, gradients) of every step of SGD on one device; the steps change the values in place."""
    for _ in range(steps):
        loss = layouts.alone(graph, values)
        loss.backward()
        yield loss.item(), {name: values[name].grad for name in sorted(graph.learns)}
        layouts.descend(values[name] for name in graph.learns)


def foreseen(graph: Graph, strategy: Strategy, mesh, rank: int = 0) -> list[Send]:
    """All messages that a rank must send, or receive from a neighbour, in a step."""
    return [one for arrow in arrows(graph, strategy, mesh) for one in arrow.sends(mesh, rank)]


def rows_since(comm, start: int, backward: bool) -> list[Send]:
    """The rows of this rank's ledger from row `start`, without the opening of groups."""
    ledger = comm.ledger
    columns = ledger.purpose, ledger.op, ledger.axis, ledger.bytes, ledger.peer
    rows = list(zip(*columns))[start:]
    return [Send(value, op, axis, size // WORD, backward, peer) for value, op, axis, size, peer in rows if op != "open"]


def _on_rank(comm, graph, strategies, steps, run):
    right = list(alone(graph, numbers(graph), steps))
    return [_home(comm, graph, strategy, right, run) for strategy in strategies]


def _home(comm, graph, strategy, right, run) -> Home:
    values = layouts.parts(comm, graph, strategy, numbers(graph))
    rest, gaps, rows = resting(graph, strategy, comm.mesh), [], []
    for its_loss, its_gradients in right:
        start = len(comm.ledger)
        loss = run(comm, graph, strategy, values)
        rows += rows_since(comm, start, backward=False)
        start = len(comm.ledger)
        loss.backward()
        rows += rows_since(comm, start, backward=True)
        gaps.append(abs(loss.item() - its_loss) / abs(its_loss))
        for name, whole in its_gradients.items():
            its = layouts.part(comm, whole, graph.given[name], rest[name])
            gaps.append(float((its - values[name].grad).abs().max() / whole.abs().max()))
        layouts.descend(values[name] for name in graph.learns)
    return Home(max(gaps), rows, foreseen(graph, strategy, comm.mesh, comm.rank) * len(right))
