"""Layouts, executed: a graph of operators under any legal strategy, forward and backward, by typed moves.

The program is written once, for one device. Each rank holds its parts, does each operator with the parts that it has,
and between two operators the moves that `predict.bytes.arrows` derives: these, and no others. The backward is
autograd's, which takes the conjugate moves. In the ledger, the purpose of every row is the name of the tensor that
moves.

    def f(comm, whole, rules):
        strategy = shared(graph, rules, comm.mesh)
        return run(comm, graph, strategy, parts(comm, graph, strategy, whole))

Source: Shazeer et al. 2018, *Mesh-TensorFlow*, arXiv:1811.02084. Relatives: `core.operators` (rules, strategies, what
is illegal); `world.talk.typed` (the moves); `modes.tensor_parallel`, one table of rules fitted to whole models;
notebook 35.
"""

from collections.abc import Iterable

import torch
from torch.nn import functional

from hybridlab.core import rules
from hybridlab.core.operators import Graph, Strategy
from hybridlab.core.states import State, cutters, dim_of, used
from hybridlab.predict.bytes.arrows import Arrow, Move, arrows, resting
from hybridlab.world.talk import typed


def _attention(signature, q_BTHK, k_BSHK, v_BSHK):
    """Every position attends to all: no mask, no scale."""
    weights_BHTS = torch.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK).softmax(-1)
    return torch.einsum("bhts,bshk->bthk", weights_BHTS, v_BSHK)


DOES = {  # what an operator does with its operands; its signature comes first
    "einsum": torch.einsum,
    "add": lambda signature, x, y: x + y,
    "gelu": lambda signature, x: functional.gelu(x),
    "norm": lambda signature, x: functional.layer_norm(x, x.shape[-1:]),
    "attention": _attention,
}


def run(comm, graph: Graph, strategy: Strategy, values: dict):
    """The result of a graph on this rank, from this rank's parts of all that is given (`parts`).

    raises  ValueError for an illegal strategy, before anything is sent
    """
    *ways, last = arrows(graph, strategy, comm.mesh)
    meet(comm, (*ways, last))
    way = {(one.value, one.dims, one.after): one for one in ways}
    here, there = dict(values), {}  # by name; by what its users need

    def fetched(*key):
        if key not in there:
            there[key] = taken(comm, here[key[0]], way[key])
        return there[key]

    for operator in graph.operators:
        choice, pairs = strategy[operator.name], zip(operator.takes, operator.operands)
        operands = [fetched(value, dims, used(dims, choice)) for value, dims in pairs]
        here[operator.name] = DOES[operator.does](operator.signature, *operands)
    return taken(comm, here[last.value], last)


def meet(comm, ways: Iterable[Arrow]):
    """Open the groups of ranks that sum over several axes at once; on every rank, before any of them is needed."""
    for axes in sorted({move.axes for arrow in ways for move in arrow.moves if len(move.axes) > 1}):
        comm.open(*comm.mesh.groups(axes))


def taken(comm, x, arrow: Arrow):
    """A value at the end of its arrow: what its users need."""
    door = comm.for_purpose(arrow.value)
    for move in arrow.moves:
        x = moved(door, x, move)
    return x


def moved(comm, x, move: Move):
    """One move, done."""
    axis = move.axis if len(move.axes) == 1 else comm.mesh.group(comm.rank, move.axes)
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
    raise ValueError(f"nothing leads {move.arrow}")


def parts(comm, graph: Graph, strategy: Strategy, wholes: dict) -> dict:
    """This rank's part of every given value, as it rests: a leaf of autograd's graph where the graph learns it."""
    rest = resting(graph, strategy, comm.mesh)
    found = {name: part(comm, whole.detach(), graph.given[name], rest[name]).clone() for name, whole in wholes.items()}
    return {name: x.requires_grad_(name in graph.learns) for name, x in found.items()}


def part(comm, whole, dims: str, state: State):
    """This rank's part of a whole tensor that is in this state: a view."""
    return rules.part(whole, " ".join(dims), cutters(state, comm.mesh), comm.mesh, comm.rank)


def alone(graph: Graph, values: dict):
    """The result of a graph on one device, from whole values."""
    here = dict(values)
    for operator in graph.operators:
        here[operator.name] = DOES[operator.does](operator.signature, *(here[value] for value in operator.takes))
    return here[graph.result.name]
