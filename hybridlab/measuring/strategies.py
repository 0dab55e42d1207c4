"""Measure the times of every piece and every collective of a graph on real ranks, and of full steps.

Each piece and each collective is timed alone, but on all ranks at the same time: if ranks share cores, a single active
rank would be too fast. Pieces, collectives and full steps run in a new random order in every round, so that a busy
minute of the machine slows all of them equally. The slowest rank counts for each repetition, and the median over all
repetitions.

There are two clocks. "wall" is the elapsed time. If other programs use the CPU too, it depends more on them than on the
strategy. Then use "core", which counts the seconds in which a rank had a core, including its threads that send and
receive. It stops while a rank waits. So it measures the work of a step, not the time that ranks wait for the slowest
one.

See also `predict.search.profile` (uses these numbers), `modes.products.layouts` (runs the steps) and
`bench/strategies.py` (compares both).
"""

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from hybridlab.core.what.operators import Graph, Strategy
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Look, Sight
from hybridlab.measuring.timed import now
from hybridlab.modes.products import layouts
from hybridlab.predict.bytes.arrows import Move
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.bytes.halos import halo
from hybridlab.predict.search.pieces import Piece, Seconds, pieces
from hybridlab.predict.search.profile import Measured

SIZES = (1 << 12, 1 << 16, 1 << 19, 1 << 22)  # bytes of a full tensor
A_WHILE = 0.002  # the least seconds of one try of a piece or of a collective
CLOCKS = {"wall": now, "core": lambda device: time.process_time()}
ENDS = {  # {collective along an axis: the states of a tensor before and after it}
    "all_reduce": ("P", "I"),
    "all_gather": ("V:T", "I"),
    "reduce_scatter": ("P", "V:T"),
    "all_to_all": ("V:T", "V:B"),
}
ROWS = Look("T", "T", Sight(3, before=1, after=1))


class Timed(NamedTuple):
    """The measurements of one run: a profile, and the time of each strategy's step in seconds, one for each
    repetition."""

    profile: Measured
    steps: list[list[float]]


def timed(
    pool, graph: Graph, strategies: list[Strategy] = (), rounds: int = 5, clock: str = "wall", dtype=torch.float32
) -> Timed:
    """Time every piece and collective that a strategy of a graph can need, and complete steps of some strategies.

    raises  ValueError for an unknown clock

    >>> from hybridlab.core.what.programs import mlp  # doctest: +SKIP
    >>> timed(pool, mlp()).profile.links["all_reduce", "i"]  # doctest: +SKIP
    Link(alpha=0.000213, beta=9.1e-10)
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock={clock!r} is not known: choose {' or '.join(CLOCKS)}")
    every, asked = pieces(graph, pool.mesh), list(collectives(graph, pool.mesh))
    taken = iter(pool.run(_on_rank, graph, every, asked, list(strategies), rounds, clock, dtype)[0])
    middle = lambda: statistics.median(next(taken))
    table = {one: Seconds(middle(), middle() if any(one.learns) else 0.0) for one in every}
    links = {
        (op, axis): Link.fit(op, 2 if op == "send" else pool.mesh.length(axis), SIZES, [middle() for _ in SIZES])
        for op, axis in asked
    }
    return Timed(Measured(table, links, dtype.itemsize), list(taken))


def steps(
    pool, graph: Graph, strategies: list[Strategy], rounds: int = 5, clock: str = "wall", dtype=torch.float32
) -> list[list[float]]:
    """The time of a step under each strategy, in seconds; for strategies that are known only after the pieces were
    measured."""
    return pool.run(_on_rank, graph, [], [], strategies, rounds, clock, dtype)[0]


def collectives(graph: Graph, mesh: Mesh) -> Iterator[tuple[str, str]]:
    """(operation, axis) of all that an arrow may call, along every axis and every product of axes that is longer than
    one; and messages between neighbours, if an operator looks beyond its own positions.

    >>> from hybridlab.core.what.programs import mlp
    >>> [axis for op, axis in collectives(mlp(), Mesh(x=2, y=2)) if op == "all_reduce"]
    ['x', 'y', 'x+y']
    """
    axes = [axis for axis, length in mesh.axes.items() if length > 1]
    for count in range(1, len(axes) + 1):
        for some in map("+".join, itertools.combinations(axes, count)):
            yield from ((op, some) for op in (ENDS if count == 1 else ("all_reduce",)))
            if any(operator.looks for operator in graph.operators):
                yield "send", some


# --- on a rank ----------------------------------------------------------------------------------------------------


def _on_rank(comm, graph, every, asked, strategies, rounds, clock, dtype) -> list[list[float]]:
    """The times of all pieces, collectives and strategies, in this order; for a piece with a gradient, those of its
    forward, then of its backward.
    """
    for axes in sorted({tuple(axis.split("+")) for _, axis in asked if "+" in axis}):
        comm.open(*comm.mesh.groups(axes))
    short = [does for one in every for does in _piece(comm, one, dtype)]
    short += [_spoken(comm, op, axis, size // 4) for op, axis in asked for size in SIZES]
    return tries(comm, short, list(_steps(comm, graph, strategies, dtype)), rounds, clock)


def tries(comm, short: list[Callable], long: list[Callable], rounds: int, clock: str) -> list[list[float]]:
    """The seconds of each piece of work, round by round, on the slowest rank; short work is repeated several times."""
    every, draw, reads = [*short, *long], random.Random(0), partial(CLOCKS[clock], comm.device)
    for does in every:
        _once(comm, does, 1, reads)  # warms up
    first = _slowest(comm, [_once(comm, does, 1, reads) for does in every])
    counts = [math.ceil(A_WHILE / seconds) if place < len(short) else 1 for place, seconds in enumerate(first)]
    taken: list[list[float]] = [[] for _ in every]
    for _ in range(rounds):
        for place in draw.sample(range(len(every)), len(every)):
            taken[place].append(_once(comm, every[place], counts[place], reads))
    return [_slowest(comm, its) for its in taken]


def _once(comm, does, count, reads) -> float:
    """The mean seconds of `count` consecutive repetitions."""
    comm.barrier()
    begin = reads()
    for _ in range(count):
        does()
    return (reads() - begin) / count


def _slowest(comm, seconds: list[float]) -> list[float]:
    return comm.all_reduce(torch.tensor(seconds, dtype=torch.float64), op="max").tolist()


def _piece(comm, piece: Piece, dtype) -> Iterator[Callable]:
    """The forward of a piece, and its backward if it has one. Padding replaces the elements of neighbours."""
    does, sizes = piece.operator, dict(piece.lengths)
    spans = {look.of: (sizes[look.made] - 1) * look.sight.stride + look.sight.reach for look in piece.looks}
    padding = {dim: (max(0, span - sizes[dim]), 0) for dim, span in spans.items()}
    make = lambda dims: torch.randn([sizes[dim] for dim in dims], dtype=dtype, device=comm.device)
    operands = [make(dims).requires_grad_(learns) for dims, learns in zip(does.operands, piece.learns)]
    yield lambda: layouts.done(does, operands, padding)
    if any(piece.learns):
        result, leaves = layouts.done(does, operands, padding), [one for one in operands if one.requires_grad]
        gradient = torch.ones_like(result)
        yield lambda: torch.autograd.grad(result, leaves, gradient, retain_graph=True)


def _spoken(comm, op: str, axis: str, words: int) -> Callable:
    """A collective of this many 4-byte words; "send": both borders of a strip, this many from the busiest rank."""
    ways = comm.mesh.length(axis)
    if op == "send":
        columns = words // min(2, ways - 1)
        state = tuple("V:T" if one in axis.split("+") else "I" for one in comm.mesh.axes)
        (window,) = halo("TD", (2 * ways, columns), state, (ROWS,), comm.mesh)
        x = torch.zeros(2, columns, device=comm.device)
        return lambda: layouts.seen(comm, x, 0, window)
    x = torch.zeros(ways, words // ways // (ways if op == "all_gather" else 1), device=comm.device)
    move = Move(axis, *ENDS[op], "BT", words)
    return lambda: layouts.moved(comm, x, move)


def _steps(comm, graph, strategies, dtype) -> Iterator[Callable]:
    source = torch.Generator().manual_seed(0)
    draw = lambda dims: torch.randn(graph.lengths(dims), generator=source).to(comm.device, dtype)
    wholes = {name: draw(dims) for name, dims in graph.given.items()}
    for strategy in strategies:
        run, values = layouts.prepared(comm, graph, strategy), layouts.parts(comm, graph, strategy, wholes)
        yield lambda run=run, values=values: _step(run, values)


def _step(run, values):
    for value in values.values():
        value.grad = None
    run(values).backward()
