"""Derive from a strategy the collectives that give each operator its operands in the layout that it needs.

A tensor has one state where it is computed, and needs another state where it is used (`core.where.states`). The *way*
from one to the other is the cheapest path of typed collectives, each along one axis; gradients return along it, by the
conjugate collectives. Nothing here mentions a kind of parallelism. Data parallelism: a weight is stored as the same
everywhere, and is used for different work; the conjugate of I->R is the gradient's all-reduce. Megatron's f and g, the
gathers of sequence parallelism and two-dimensional matmuls result in the same way.

A convolution also needs elements of neighbours, so its reshard ends with a halo: one window for each sharded dim.
Messages go between neighbours, and gradients return to the owners (`predict.bytes.halos`).

Sizes are in elements: of the full tensor for a collective, as everywhere (`predict.bytes.collectives`); of its content
for a message.

Source: rules that imply collectives, Shazeer et al. 2018, arXiv:1811.02084, section 3; the same on a compiler's graph,
Xu et al. 2021, arXiv:2105.04663. Relatives: `core.what.operators`; `modes.products.layouts` executes exactly these
arrows.
"""

import heapq
import itertools
from collections.abc import Iterator
from functools import cache
from math import prod
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.operators import Graph, Need, Strategy, refuse
from hybridlab.core.what.wiring import misfit
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.states import State, at_rest, conjugate, cut, dim_of, made, renamed, spoken
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.halos import Window, halo


class Move(NamedTuple):
    """One typed collective on a tensor with these dims; `elements` are those of the full tensor in the group.

    axis  the axis of the move, or several axes as one, "x+y", whose ranks form one group
    """

    axis: str
    before: str
    after: str
    dims: str
    elements: float

    @property
    def arrow(self) -> str:
        """The name in `world.talk.typed`: "V->I"."""
        return f"{self.before[0]}->{self.after[0]}"

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.axis.split("+"))


class Send(NamedTuple):
    """One collective of a rank, or one message with a peer: a row of its ledger."""

    value: str
    op: str
    axis: str
    elements: float
    backward: bool
    peer: int | None = None


class Arrow(NamedTuple):
    """The reshard of one value for the operators that need it in the same layout.

    dims   names of the dims, as in its users;  users  their names; empty for the graph's result
    learns whether its gradient comes back;  halo  elements fetched from neighbours after the moves
    """

    value: str
    dims: str
    before: State
    after: State
    moves: tuple[Move, ...]
    users: tuple[str, ...]
    learns: bool
    halo: tuple[Window, ...] = ()

    def sends(self, mesh: Mesh, rank: int = 0) -> Iterator[Send]:
        """Everything that a rank sends for the reshard, or receives from a neighbour: first the forward, then the
        backward. In collectives all ranks do the same.
        """
        yield from self._collectives(mesh, self.moves, backward=False)
        yield from self._messages(mesh, rank, self.halo, backward=False)
        if self.learns:
            yield from self._messages(mesh, rank, self.halo[::-1], backward=True)
            yield from self._collectives(mesh, self.moves[::-1], backward=True)

    def _collectives(self, mesh, moves, backward):
        for move in moves:
            op = spoken(conjugate(move.arrow) if backward else move.arrow)
            if op and mesh.length(move.axis) > 1:
                yield Send(self.value, op, move.axis, move.elements, backward)

    def _messages(self, mesh, rank, windows, backward):
        for sender, receiver, elements in (one for window in windows for one in window.messages):
            ends = (receiver, sender) if backward else (sender, receiver)
            if rank in ends:
                op, peer = ("isend", ends[1]) if rank == ends[0] else ("irecv", ends[0])
                yield Send(self.value, op, mesh.between(rank, peer), elements, backward, peer)


def arrows(graph: Graph, strategy: Strategy, mesh: Mesh) -> list[Arrow]:
    """All reshards of a graph, in the order in which they are needed. Users that need a value in the same layout share
    one.

    raises  ValueError for a graph that does not fit together, or an illegal strategy

    >>> from hybridlab.core.what.operators import Operator, shared
    >>> graph = Graph((Operator("up", "BD,FD->BF", ("x", "A")),), dict(B=4, D=4, F=8), dict(x="BD", A="FD"), {"A"})
    >>> data_parallel = arrows(graph, shared(graph, {"B": "dp"}, Mesh(dp=2)), Mesh(dp=2))
    >>> [(arrow.value, [move.arrow for move in arrow.moves]) for arrow in data_parallel]
    [('x', []), ('A', ['I->R']), ('up', [])]
    >>> list(data_parallel[1].sends(Mesh(dp=2)))
    [Send(value='A', op='all_reduce', axis='dp', elements=32, backward=True, peer=None)]
    """
    if told := misfit(graph):
        raise ValueError(told)
    refuse(graph, strategy, mesh)
    dims, state, learns = dict(graph.given), resting(graph, strategy, mesh), graph.learning
    found: dict[tuple, Arrow] = {}

    def fetch(value, need, user):
        if (value, need) in found:
            one = found[value, need]
            found[value, need] = one._replace(users=(*one.users, user))
            return
        called, after, looks = need
        before, lengths, back = renamed(state[value], dims[value], called), graph.lengths(called), value in learns
        moves = way(called, lengths, before, after, mesh, back)
        seen = halo(called, lengths, after, looks, mesh)
        found[value, need] = Arrow(value, called, before, after, moves, (user,) if user else (), back, seen)

    for operator in graph.operators:
        choice = strategy[operator.name]
        for value, need in zip(operator.takes, operator.needs(choice)):
            fetch(value, need, operator.name)
        dims[operator.name], state[operator.name] = operator.result, made(operator.result, choice)
    last = graph.result.name
    fetch(last, Need(dims[last], _end(graph, last, at_rest(state[last]), mesh)), "")
    return list(found.values())


def resting(graph: Graph, strategy: Strategy, mesh: Mesh) -> dict[str, State]:
    """The state of every input between steps: as its first user needs it, or unsharded if the graph says so."""
    found: dict[str, State] = {}
    for operator in graph.operators:
        for value, need in zip(operator.takes, operator.needs(strategy[operator.name])):
            if value in graph.given and value not in found:
                its = renamed(at_rest(need.state), need.dims, graph.given[value])
                found[value] = _end(graph, value, its, mesh)
    return found


def _end(graph, value, its, mesh) -> State:
    return ("I",) * len(mesh.axes) if value in graph.held else its


def way(dims: str, lengths: tuple[int, ...], before: State, after: State, mesh: Mesh, learns: bool = True) -> tuple:
    """The cheapest moves from one state of a tensor to another, and, if the tensor needs a gradient, back. If several
    paths cost the same, the one with the fewest moves is taken.

    If several axes shard a dim, the earlier axis of the mesh shards it first: only the last sharding can be added or
    undone.

    >>> [move.arrow for move in way("BF", (4, 8), ("P", "V:B"), ("V:F", "R"), Mesh(x=2, y=2))]
    ['P->V', 'V->R']
    >>> way("BF", (4, 8), ("I",), ("I",), Mesh(x=2))
    ()
    """
    found = ways(dims, lengths, before, mesh, learns)
    if after not in found:
        raise ValueError(f"a tensor {dims} cannot be resharded from {before} to {after} on {mesh}: give another layout")
    return found[after]


@cache
def ways(dims: str, lengths: tuple[int, ...], before: State, mesh: Mesh, learns: bool = True) -> dict[State, tuple]:
    """The cheapest moves from one state of a tensor to every reachable state (Dijkstra's search).

    >>> sorted(ways("B", (4,), ("P",), Mesh(x=2)))
    [('I',), ('P',), ('R',), ('V:B',)]
    """
    sizes, order = dict(zip(dims, lengths)), itertools.count()
    queue: list = [(0, 0, next(order), before, ())]
    found: dict[State, tuple] = {}
    while queue:
        spent, steps, _, here, moves = heapq.heappop(queue)
        if here in found:
            continue
        found[here] = moves
        for move, there in _steps(dims, sizes, here, mesh):
            if there not in found:
                price = spent + sent_by(move, mesh, learns)
                heapq.heappush(queue, (price, steps + 1, next(order), there, (*moves, move)))
    return found


def _steps(dims, sizes, here, mesh) -> Iterator[tuple[Move, State]]:
    """Every legal move from a state, with the state that results. No move starts from R."""
    elements = prod(sizes.values())
    local = elements // prod(mesh[axis] for axis, one in zip(mesh.axes, here) if dim_of(one))
    for place, axis in enumerate(mesh.axes):
        was, later = here[place], here[place + 1 :]
        if was == "R" or (dim_of(was) and was in later):
            continue
        for to in ("I", "R", *map(cut, dims)):
            if to == was or (dim_of(to) and not _fits(to, axis, here, later, sizes, mesh)):
                continue
            full = local * mesh[axis] if dim_of(was) and not dim_of(to) else local
            yield Move(axis, was, to, dims, full), (*here[:place], to, *later)
    yield from _joint_steps(dims, local, here, mesh)


def _fits(to, axis, here, later, sizes, mesh) -> bool:
    """Whether an axis can be the last to shard this dim: after all other axes of the dim, into equal parts."""
    ways = prod(mesh[other] for other, one in zip(mesh.axes, here) if one == to)
    return to not in later and sizes[dim_of(to)] % (mesh[axis] * ways) == 0


def _joint_steps(dims, local, here, mesh) -> Iterator[tuple[Move, State]]:
    """All-reduces over several axes at once, which send less than all-reduces one after the other; and enters, whose
    gradients are all-reduces over several axes. Gathers and scatters send the same amount either way.
    """
    axes = list(mesh.axes)
    for was, ends in (("P", "IR"), ("I", "R")):
        alike = [place for place, axis in enumerate(axes) if here[place] == was and mesh[axis] > 1]
        for count in range(2, len(alike) + 1):
            for places, to in itertools.product(itertools.combinations(alike, count), ends):
                there = tuple(to if place in places else one for place, one in enumerate(here))
                yield Move("+".join(axes[place] for place in places), was, to, dims, local), there


def sent_by(move: Move, mesh: Mesh, learns: bool = True) -> float:
    """Elements that each rank sends for a move in a ring: in the forward and, if the tensor needs a gradient, in the
    backward.
    """
    arrows = [move.arrow, conjugate(move.arrow)] if learns else [move.arrow]
    return added(cost(op, mesh.length(move.axis), move.elements).bytes for op in map(spoken, arrows) if op)


def sent(arrows: list[Arrow], mesh: Mesh) -> float:
    """Elements that each rank sends in a step, in rings; for a halo, the elements of the busiest rank."""
    return added(sent_for(arrow, mesh) for arrow in arrows)


def sent_for(arrow: Arrow, mesh: Mesh) -> float:
    """Elements that each rank sends for a reshard in the forward and, if the tensor needs a gradient, the backward."""
    ways = (False, True) if arrow.learns else (False,)
    halo = added(window.busiest(backward) for window in arrow.halo for backward in ways)
    return added(sent_by(move, mesh, arrow.learns) for move in arrow.moves) + halo
