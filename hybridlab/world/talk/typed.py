"""Typed collectives: collectives with a backward, which follows from the type of a tensor along an axis.

Along one axis of the mesh a tensor has one of these types:

  R  replicated  the same everywhere; each rank uses it for different work, so its gradients are different partial sums
  I  invariant   the same everywhere, and used in the same way everywhere, so its gradient is the same too
  V  varying     each rank has its own part, also of the gradient
  P  partial     each rank has a partial sum of the true value; the gradient is the same everywhere
  W  window      each rank has the span of a dim that it needs; windows may overlap, so gradients are partial sums (see
     `windows`)
  S  sums        each rank has partial sums for the span that it needs: the gradient of a W

A gradient has a type too, and only one is correct: `CONJUGATE` in `core.where.states`. So the backward of R → V is V →
P, without a choice. If a choice remains, the caller must make it: `to=` and `of=` have no default, because a wrong one
gives a correct loss and a wrong gradient.

  here                                              Megatron's name               arrow    backward
  enter(comm, x, "tp")                              f, copy_to_region             I->R     P->I
  all_reduce(comm, x, "tp", to="I")                 g, reduce_from_region         P->I     I->R
  split(comm, x, "tp", dim, of="I")                 scatter_to_region             I->V     V->I
  all_gather(comm, x, "tp", dim, to="I")            gather_from_region            V->I     I->V
  all_gather(comm, x, "tp", dim, to="R")            gather_from_sequence          V->R     P->V
  reduce_scatter(comm, x, "tp", dim)                reduce_scatter_to_sequence    P->V     V->R
  all_to_all(comm, x, "ep", cut=dim, join=dim)      all_to_all                    V->V     V->V
  window(comm, x, "j", dim, have=…, want=…)         -                             V->W     S->V
  fold(comm, x, "j", dim, have=…, want=…)           -                             S->V     V->W

`sizes` is the length of each rank's part along `dim`, if they are not equal. Nothing is sent along an axis with one
rank. In the ledger a backward's row has the source line of its forward.

Source: the four types are those of meta-pytorch/spmd_types; the mappings, Megatron-LM's tensor_parallel/mappings.py.
Relatives: `comm` has the raw operations, `ahead` the same collectives overlapped with other work;
tests/world/test_typed.py checks the gradients of every arrow.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from hybridlab.core.where.states import conjugate
from hybridlab.world.talk import windows
from hybridlab.world.talk.ledger import caller
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.parts import integers, lengths, zeros
from hybridlab.world.talk.windows import Windows


class Parts(NamedTuple):
    """The cut of a tensor over the ranks of a group: its dim, and the length of each part (None: all equal)."""

    dim: int = 0
    sizes: tuple[int, ...] | None = None


WHOLE = Parts()


def enter(comm, x, axis):
    """x unchanged, for ranks that then do different work with it: no message in the forward, an all-reduce in the
    backward.

    comm  the communicator of this rank
    axis  the mesh axis along which the ranks communicate
    x     the same on every rank

    The operation has no effect in the forward, so only a wrong gradient reveals that it was left out.
    """
    return _typed(comm, x, axis, "I->R")


def all_reduce(comm, x, axis, *, to: str):
    """The sum of the ranks' partial sums: to="I" if all ranks then do the same work, "R" if they do not.

    comm  the communicator of this rank
    axis  the mesh axis along which the ranks communicate
    x     this rank's partial sum
    to    "I" or "R"
    """
    return _typed(comm, x, axis, f"P->{stated('all_reduce', 'to', to)}")


def all_gather(comm, x, axis, dim: int, *, to: str, sizes=None):
    """The parts of all ranks, concatenated along `dim`: to="I" if all ranks then do the same work, "R" if they do not.

    comm   the communicator of this rank
    axis   the mesh axis along which the ranks communicate
    x      this rank's part
    dim    the dim along which parts are concatenated
    to     "I" or "R"
    sizes  the length along `dim` of each rank's part; None: even parts
    """
    return _typed(comm, x, axis, f"V->{stated('all_gather', 'to', to)}", Parts(dim, sizes))


def split(comm, x, axis, dim: int, *, of: str, sizes=None):
    """This rank's part along `dim` of an x that all ranks hold: of="I" if its gradient is complete, "R" if it is a
    partial sum.

    comm   the communicator of this rank
    axis   the mesh axis along which the ranks communicate
    x      the same on every rank
    dim    the dim along which it is cut
    of     "I" or "R"
    sizes  the length along `dim` of each rank's part; None: even parts
    """
    return _typed(comm, x, axis, f"{stated('split', 'of', of)}->V", Parts(dim, sizes))


def reduce_scatter(comm, x, axis, dim: int, *, sizes=None):
    """This rank's part along `dim` of the sum of the ranks' partial sums.

    comm   the communicator of this rank
    axis   the mesh axis along which the ranks communicate
    x      this rank's partial sum, of full size
    dim    the dim along which the sum is cut
    sizes  the length along `dim` of each rank's part; None: even parts
    """
    return _typed(comm, x, axis, "P->V", Parts(dim, sizes))


def all_to_all(comm, x, axis, *, cut: int, join: int, sent=None, received=None):
    """Every rank's x is cut along one dim, part k is sent to rank k, and the received parts are concatenated along the
    same dim or another one.

    comm       the communicator of this rank
    axis       the mesh axis along which the ranks communicate
    x          this rank's tensor
    cut, join  the dims
    sent       the length along `cut` of the part for each rank;  received  the length along `join` of the part from
               each
    """
    return _typed(comm, x, axis, "V->V", Parts(cut, sent), Parts(join, received))


def window(comm, x, axis, dim: int, *, have, want):
    """The span of a dim that this rank needs, fetched from the spans that the ranks have; every span is (from, to).

    comm        the communicator of this rank
    axis        the mesh axis along which the ranks communicate
    x           this rank's part
    dim         the dim that is cut
    have, want  the spans, (from, to), that each rank has and needs
    """
    return _typed(comm, x, axis, "V->W", Windows(dim, tuple(have), tuple(want)))


def fold(comm, x, axis, dim: int, *, have, want):
    """The sum of all partial sums for the span that this rank has; x is its partial sum for the span that it needed.

    comm        the communicator of this rank
    axis        the mesh axis along which the ranks communicate
    x           this rank's partial sum
    dim         the dim that is cut
    have, want  the spans, (from, to), that each rank has and needs
    """
    return _typed(comm, x, axis, "S->V", Windows(dim, tuple(have), tuple(want)))


def stated(call: str, name: str, kind: str) -> str:
    """The type that a caller has given, I or R.

    call  its text, for the error
    name  of the argument
    kind  "I" or "R"

    raises  ValueError for any other kind
    """
    if kind not in ("R", "I"):
        raise ValueError(
            f'{call} with {name}={kind!r} has no gradient: give {name}="I" where all ranks do the same with the full '
            f'tensor, {name}="R" where each rank does different work'
        )
    return kind


def _typed(comm, x, axis, move, cut=WHOLE, joined=None):
    if comm.group(axis).size == 1 and not isinstance(cut, Windows):  # a single rank may still need less than it has
        return x
    return _Moved.apply(x, comm, axis, move, cut, cut if joined is None else joined, caller())


class _Moved(torch.autograd.Function):
    """One move; its backward is the transposed move, with cutting and joining exchanged."""

    @staticmethod
    def forward(ctx, x, comm, axis, move, cut, joined, source):
        ctx.way = comm, axis, transposed(move), joined, cut, source
        with comm.ledger.said_at(source):
            return MOVES[move].do(comm, x, axis, cut, joined)

    @staticmethod
    def backward(ctx, gradient):
        return _Moved.apply(gradient, *ctx.way), None, None, None, None, None, None


def _same(comm, x, axis, cut, joined):
    return x.view_as(x)


def _sum(comm, x, axis, cut, joined):
    return comm.iall_reduce(x.clone(memory_format=torch.contiguous_format), axis)


def _gather(comm, x, axis, cut, joined):
    return comm.iall_gather(x, axis, joined.dim, joined.sizes)


def _scatter(comm, x, axis, cut, joined):
    return comm.ireduce_scatter(x, axis, cut.dim, cut.sizes)


def _exchange(comm, x, axis, cut, joined):
    return comm.iall_to_all(x, axis, cut.dim, joined.dim, cut.sizes, joined.sizes)


def _fetch(comm, x, axis, cut, joined):
    return windows.fetch(comm, x, axis, cut)


def _fold(comm, x, axis, cut, joined):
    return windows.fold(comm, x, axis, cut)


def _part(comm, x, axis, cut, joined):
    """This rank's part; no message is needed, since x is here."""
    group = comm.group(axis)
    sizes = lengths("split", x.shape[cut.dim], cut.dim, group.size, cut.sizes)
    return x.split(sizes, cut.dim)[group.ranks.index(comm.rank)].clone()


def _pad(comm, x, axis, cut, joined):
    """This rank's part at its position, with zeros elsewhere: a partial sum of the full tensor."""
    group = comm.group(axis)
    here = group.ranks.index(comm.rank)
    sizes = [x.shape[joined.dim]] * group.size if joined.sizes is None else integers("split", joined.sizes)
    return torch.cat([x if k == here else zeros(x, joined.dim, size) for k, size in enumerate(sizes)], joined.dim)


class Move(NamedTuple):
    """A way to move a tensor along an axis.

    do     do(comm, x, axis, cut, joined) -> the tensor afterwards;  arrow  the type of x before, and after
    back   the name of the move of the gradients, if arrows do not determine it: several moves go from V to V
    begin  the same as `do`, only started: it returns a handle with `wait`; None for a move without a message
    """

    do: Callable
    arrow: str
    back: str | None = None
    begin: Callable | None = None

    def start(self, *about):
        """Start it; the result has a `wait`."""
        return self.begin(*about) if self.begin else Message(lambda: self.do(*about))


def _begun(begin, arrow) -> Move:
    return Move(lambda *about: begin(*about).wait(), arrow, begin=begin)


MOVES = {  # by name; the default move of an arrow has the arrow's name
    "I->R": Move(_same, "I->R"),
    "P->I": _begun(_sum, "P->I"),
    "P->R": _begun(_sum, "P->R"),
    "V->R": _begun(_gather, "V->R"),
    "V->I": _begun(_gather, "V->I"),
    "P->V": _begun(_scatter, "P->V"),
    "I->V": Move(_part, "I->V"),
    "R->V": Move(_part, "R->V"),
    "V->P": Move(_pad, "V->P"),
    "V->V": _begun(_exchange, "V->V"),
    "V->W": _begun(_fetch, "V->W"),
    "S->V": _begun(_fold, "S->V"),
}


def transposed(move: str) -> str:
    """The name of the backward of a `move`, a collective.

    >>> transposed("I->R"), transposed("V->V")
    ('P->I', 'V->V')
    """
    return MOVES[move].back or conjugate(MOVES[move].arrow)


def register(name: str, move: Move, back: str, backwards: Move):
    """Add a move and its transpose.

    raises  ValueError if the gradient would have a wrong type, or a name is taken

    >>> turned = lambda by: lambda comm, x, axis, cut, joined: x.roll(by, 0)
    >>> register("turn", Move(turned(1), "V->V", "turn back"), "turn back", Move(turned(-1), "V->V", "turn"))
    >>> transposed(transposed("turn"))
    'turn'
    >>> del MOVES["turn"], MOVES["turn back"]
    """
    if backwards.arrow != conjugate(move.arrow):
        raise ValueError(
            f"{name} goes {move.arrow}, so its gradient cannot go {backwards.arrow}: give a backward for "
            f"{conjugate(move.arrow)}"
        )
    for one in (name, back):
        if one in MOVES:
            raise ValueError(f"there is already a move {one}: choose another name")
    MOVES.update({name: move._replace(back=back), back: backwards._replace(back=name)})
