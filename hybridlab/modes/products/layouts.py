"""Layouts, executed: a graph of operators under any legal strategy, forward and backward, with typed collectives.

The program is written once, for one device. Each rank runs each operator on its own parts and, between two operators,
exactly the collectives that `predict.bytes.arrows` derives. Autograd runs the backward with the conjugate collectives.
In the ledger, the purpose of every row is the name of the tensor sent.

Halos, such as those of a convolution, are fetched between operators as well. Only the borders of the full tensor have
padding: elsewhere the neighbour's rows are used instead.

    def f(comm, whole, rules):
        strategy = shared(graph, rules, comm.mesh)
        return run(comm, graph, strategy, parts(comm, graph, strategy, whole))

Gradients have the layout of the values, so SGD updates each part locally (`descend`).

With `early`, the collectives of all given tensors start at the beginning, so they are prefetched. The backward reverses
the forward. So the last collectives of the gradients (among them the all-reduces of data parallelism) are awaited only
at the end, and overlap with the backward (`world.talk.ahead`). The price is memory: gathered tensors are stored longer.

Source: Shazeer et al. 2018, *Mesh-TensorFlow*, arXiv:1811.02084. Relatives: `core.what.operators` (rules, strategies,
legality); `modes.products.operators` (their arithmetic); `world.talk.typed` (the collectives); `modes.tensor_parallel`,
one table of rules applied to full models; notebook 35.
"""

from collections.abc import Callable, Iterable

import torch

from hybridlab.core.what.operators import Graph, Strategy
from hybridlab.core.where import rules
from hybridlab.core.where.states import State, cutters, dim_of
from hybridlab.modes.products.operators import beyond, done
from hybridlab.predict.bytes.arrows import Arrow, Move, arrows, resting
from hybridlab.predict.bytes.halos import Window
from hybridlab.world.talk import ahead, typed
from hybridlab.world.talk.typed import WHOLE, Parts


def run(comm, graph: Graph, strategy: Strategy, values: dict):
    """The result of a graph on this rank, from this rank's parts of the given tensors (`parts`).

    comm      the communicator of this rank
    graph     of operators and tensors
    strategy  {operator: the dim that each axis cuts}
    values    {name: this rank's part of the given tensor}

    raises  ValueError for an illegal strategy, before anything is sent
    """
    return prepared(comm, graph, strategy)(values)


def prepared(comm, graph: Graph, strategy: Strategy, early: bool = False) -> Callable[[dict], torch.Tensor]:
    """A graph under a strategy, for repeated runs: its collectives are derived once.

    comm      the communicator of this rank
    graph     of operators and tensors
    strategy  {operator: the dim that each axis cuts}
    early     whether the collectives of all given tensors start at the beginning

    raises  ValueError for an illegal strategy
    """
    ways = arrows(graph, strategy, comm.mesh)
    meet(comm, ways)
    way = {(one.value, user, one.dims): number for number, one in enumerate(ways) for user in one.users}
    padding = {one.name: beyond(one, graph.sizes, strategy[one.name], comm.mesh, comm.rank) for one in graph.operators}
    first = [number for number, one in enumerate(ways) if early and one.moves and one.value in graph.given]

    def on_this_rank(values):
        here, there = dict(values), {}  # by name, or by the number of the reshard that brought it
        coming = {number: begun(comm, values[ways[number].value], ways[number]) for number in first}

        def fetched(number):
            if number not in there:
                arrow = ways[number]
                there[number] = coming[number]() if number in coming else taken(comm, here[arrow.value], arrow)
            return there[number]

        for operator in graph.operators:
            pairs = zip(operator.takes, operator.operands)
            operands = [fetched(way[value, operator.name, dims]) for value, dims in pairs]
            here[operator.name] = done(operator, operands, padding[operator.name])
        return fetched(len(ways) - 1)

    return on_this_rank


def meet(comm, ways: Iterable[Arrow]):
    """Open the groups of ranks that meet along several axes at once; on every rank, before any of them is needed."""
    every = {one.axes for arrow in ways for one in (*arrow.moves, *arrow.halo)}
    for axes in sorted(axes for axes in every if len(axes) > 1):
        comm.open(*comm.mesh.groups(axes))


def taken(comm, x, arrow: Arrow):
    """A value after its resharding: the form that its users need."""
    return _on(comm.for_purpose(arrow.value), x, arrow.moves, arrow)


def begun(comm, x, arrow: Arrow) -> Callable[[], torch.Tensor]:
    """Start the first collective of a value's resharding, and return a function that finishes it and returns the result
    of `taken`."""
    door, (move, *others) = comm.for_purpose(arrow.value), arrow.moves
    cut, joined = (Parts(move.dims.index(dim_of(one))) if dim_of(one) else None for one in (move.after, move.before))
    coming = ahead.start(door, x, _group(comm, move.axes), move.arrow, cut or joined or WHOLE, joined)
    return lambda: _on(door, coming.wait(), others, arrow)


def _on(door, x, moves, arrow):
    """A value after these moves, and after a halo is fetched."""
    for move in moves:
        x = moved(door, x, move)
    for window in arrow.halo:
        x = seen(door, x, arrow.dims.index(window.dim), window)
    return x


def seen(comm, x, dim: int, window: Window):
    """The part along one dim that this rank needs, fetched from the parts of all ranks along some axes."""
    return typed.window(comm, x, _group(comm, window.axes), dim, have=window.have, want=window.want)


def _group(comm, axes: tuple[str, ...]):
    """The ranks that meet along some axes, in the form that typed collectives take."""
    return axes[0] if len(axes) == 1 else comm.mesh.group(comm.rank, axes)


def moved(comm, x, move: Move):
    """A value after one move."""
    axis = _group(comm, move.axes)
    before, after = move.before, move.after
    dim = lambda one: move.dims.index(dim_of(one))
    match move.arrow:
        case "I->R":
            return typed.enter(comm, x, axis)
        case "P->I" | "P->R":
            return typed.all_reduce(comm, x, axis, to=after)
        case "V->I" | "V->R":
            return typed.all_gather(comm, x, axis, dim(before), to=after)
        case "P->V":
            return typed.reduce_scatter(comm, x, axis, dim(after))
        case "I->V":
            return typed.split(comm, x, axis, dim(after), of="I")
        case "V->V":
            return typed.all_to_all(comm, x, axis, cut=dim(after), join=dim(before))
    raise ValueError(f"there is no operation for {move.arrow}: give another layout")


def parts(comm, graph: Graph, strategy: Strategy, wholes: dict) -> dict:
    """This rank's stored part of every given value: a leaf of autograd's graph if its gradient is needed.

    raises  ValueError if a value is missing, or does not have the sizes of the graph
    """
    _refuse(graph, wholes)
    rest = resting(graph, strategy, comm.mesh)
    found = {name: part(comm, whole.detach(), graph.given[name], rest[name]).clone() for name, whole in wholes.items()}
    return {name: x.requires_grad_(name in graph.learns) for name, x in found.items()}


def descend(values: Iterable, rate: float = 0.01):
    """One step of SGD for each value; its gradient is then deleted."""
    with torch.no_grad():
        for value in values:
            value -= rate * value.grad
            value.grad = None


def part(comm, whole, dims: str, state: State):
    """This rank's part of a full tensor with this layout state: a view."""
    return rules.part(whole, " ".join(dims), cutters(state, comm.mesh), comm.mesh, comm.rank)


def alone(graph: Graph, values: dict):
    """The result of a graph on one device, from full values."""
    here = dict(values)
    for operator in graph.operators:
        padding = {look.of: (look.sight.before, look.sight.after) for look in operator.looks}
        here[operator.name] = done(operator, [here[value] for value in operator.takes], padding)
    return here[graph.result.name]


def _refuse(graph, wholes):
    for name, dims in graph.given.items():
        if name not in wholes:
            raise ValueError(f"{name} is missing: give {', '.join(graph.given)}")
        if tuple(wholes[name].shape) != (lengths := graph.lengths(dims)):
            raise ValueError(
                f"{name} has shape {tuple(wholes[name].shape)}, but {dims} is {lengths}: give the full tensor"
            )
