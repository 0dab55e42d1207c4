"""The communicator: every message between ranks goes through a `Comm`, whose ledger records it.

Operations are raw: they move numbers without gradients (`typed` adds those). An axis is a name of the mesh ("dp"), a
tuple of names, a tuple of ranks that was given to `open`, or None for all ranks; a list counts as the tuple. Along an
axis with one rank there is no other rank: the call returns at once and is not counted. An operation whose name begins
with i only starts: it returns a `Message`, whose `wait` returns the result of the operation without i.

This file has the collectives; `door` has the messages from one rank to another, and four facts that shape a program.
"""

import math

import torch
import torch.distributed as dist

from hybridlab.world.talk import lengths as said_lengths
from hybridlab.world.talk.door import Door
from hybridlab.world.talk.message import Message, settle
from hybridlab.world.talk.nans import floats, ordered
from hybridlab.world.talk.parts import dimension, filled, flat_of, integers, joined, lengths, resized, stacked

REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}
COMPARING = ("max", "min")  # gloo loses a nan


class Comm(Door):
    """This rank's communicator: `rank`, `size`, `mesh`, `coordinates` (a dict), `ledger`, and the operations.

    purpose  the purpose of its operations in the ledger; "" if none was given: see `for_purpose`

    Every rank opens the same groups in the same order when the Comm is made: each axis alone, all ranks, and the
    further tuples of axes in `groups`. The default process group must exist (see `meet`). Tensors may be on the CPU or
    on `device`, the one that the placement gives this rank; non-contiguous tensors are copied first. Impossible
    operations raise ValueError before anything is sent.
    """

    # collectives: every rank of the group calls the same one with the same shape

    def all_reduce(self, x, axis=None, op="sum"):
        """Combine x over the group, in place, and return x. `op` is `sum`, `max`, `min` or `product`."""
        return self.iall_reduce(x, axis, op).wait()

    def iall_reduce(self, x, axis=None, op="sum") -> Message:
        """Start an all_reduce."""
        if op not in REDUCE:
            raise ValueError(f"op={op!r} is not known to all_reduce: choose one of {', '.join(REDUCE)}")
        group = self.group(axis)
        if group.size == 1:
            return Message(lambda: x)
        flat = flat_of(x)
        row = self._begin("all_reduce", group, x.nbytes, flat, how=op, waits=False)
        if op in COMPARING and x.is_floating_point() and not (self._on_streams or x.is_meta):
            bits = ordered(flat, op)
            work = self.net.all_reduce(bits, REDUCE[op], group.handle, async_op=True)
            return self._started(work, row, bits, self._came(row, lambda: settle(floats(bits, x.dtype), x)))
        work = self._together(flat, group, lambda: self.net.all_reduce(flat, REDUCE[op], group.handle, async_op=True))
        return self._started(work, row, flat, self._came(row, lambda: settle(flat, x)))

    def all_gather(self, x, axis=None, dim=0, sizes=None):
        """A new tensor: the x of every rank of the group, in group order, concatenated along `dim`.

        sizes  the length of every rank's x along `dim`, if they differ; all are then padded to the longest
        """
        return self.iall_gather(x, axis, dim, sizes).wait()

    def iall_gather(self, x, axis=None, dim=0, sizes=None) -> Message:
        """Start an all_gather."""
        group, dim = self.group(axis), dimension("all_gather", x, dim)
        place = group.ranks.index(self.rank)
        sizes = [x.shape[dim]] * group.size if sizes is None else integers("all_gather", sizes)
        if len(sizes) != group.size or sizes[place] != x.shape[dim]:
            raise ValueError(
                f"all_gather over {group.size} ranks cannot have sizes={tuple(sizes)}: x has length {x.shape[dim]} "
                f"along dim {dim} here, so give {group.size} lengths, with {x.shape[dim]} at position {place}"
            )
        if group.size == 1:
            return Message(lambda: x.detach().clone())
        flat = flat_of(filled(x.detach(), dim, max(sizes)))
        room = flat.new_empty((group.size, *flat.shape))
        row = self._begin("all_gather", group, room.nbytes, flat, how=_along(dim), lengths=_uneven(sizes), waits=False)
        whole, part = room.view(-1), flat.view(-1)
        work = self._together(flat, group, lambda: self.net.all_gather(whole, part, group.handle, async_op=True))
        return self._started(work, row, flat, self._came(row, lambda: joined(room, dim, sizes)))

    def reduce_scatter(self, x, axis=None, dim=0, sizes=None):
        """A new tensor: this rank's part along `dim` of the sum of x over the group.

        sizes  the length of every rank's part, if they differ; all are then padded to the longest
        """
        return self.ireduce_scatter(x, axis, dim, sizes).wait()

    def ireduce_scatter(self, x, axis=None, dim=0, sizes=None) -> Message:
        """Start a reduce_scatter."""
        group, dim = self.group(axis), dimension("reduce_scatter", x, dim)
        sizes = lengths("reduce_scatter", x.shape[dim], dim, group.size, sizes)
        if group.size == 1:
            return Message(lambda: x.detach().clone())
        parts = stacked(x.detach(), dim, sizes)
        mine = torch.empty_like(parts[0])
        how = "sum" + _along(dim, ", ")
        row = self._begin("reduce_scatter", group, parts.nbytes, x, how=how, lengths=_uneven(sizes), waits=False)
        part, whole = mine.view(-1), parts.view(-1)
        post = lambda: self.net.reduce_scatter(part, whole, group=group.handle, async_op=True)
        work = self._together(x, group, post)
        length = sizes[group.ranks.index(self.rank)]
        return self._started(work, row, parts, self._came(row, lambda: mine.narrow(dim, 0, length).contiguous()))

    def all_to_all(self, x, axis=None, cut=0, join=0, sent=None, received=None):
        """A new tensor: x is split along the dim `cut`, part k is sent to rank k, and the received parts are
        concatenated along `join`.

        sent      the length along `cut` of the part for each rank, if they differ
        received  the length along `join` of the part from each rank, if they differ
        """
        return self.iall_to_all(x, axis, cut, join, sent, received).wait()

    def iall_to_all(self, x, axis=None, cut=0, join=0, sent=None, received=None) -> Message:
        """Start an all_to_all."""
        group = self.group(axis)
        cut, join = dimension("all_to_all", x, cut), dimension("all_to_all", x, join)
        if cut == join and (sent is None) != (received is None):
            raise ValueError("all_to_all got only one of sent= and received=: give both, or neither")
        here = group.ranks.index(self.rank)
        sent = lengths("all_to_all", x.shape[cut], cut, group.size, sent)
        each = sent[here] if cut == join else x.shape[join]
        received = [each] * group.size if received is None else integers("all_to_all", received)
        if len(received) != group.size:
            raise ValueError(
                f"all_to_all cannot use received={tuple(received)}: give {group.size} lengths, one from each rank"
            )
        if group.size == 1:
            return Message(lambda: x.detach().clone())
        parts = x.detach().split(sent, cut)
        shapes = [resized(resized(x.shape, cut, sent[here]), join, length) for length in received]
        room = x.new_empty(sum(map(math.prod, shapes)))
        flat = torch.cat([part.reshape(-1) for part in parts])
        leaving, coming = [part.numel() for part in parts], [math.prod(shape) for shape in shapes]
        about = said_lengths.exchanged(sent, received, None if cut == join else x.shape[join], here, leaving, coming)
        free = {dim: "*" for dim in (cut, join)}  # may differ from rank to rank
        how, shape = f"cut {cut}, join {join}", _shape(free.get(dim, n) for dim, n in enumerate(x.shape))
        row = self._begin("all_to_all", group, x.nbytes, x, how=how, shape=shape, lengths=about, waits=False)
        post = lambda: self.net.all_to_all_single(room, flat, coming, leaving, group.handle, async_op=True)
        work = self._together(flat, group, post)
        together = lambda: torch.cat([part.view(shape) for part, shape in zip(room.split(coming), shapes)], join)
        return self._started(work, row, flat, self._came(row, together))

    def broadcast(self, x, source=0, axis=None):
        """Fill x on all ranks with the x of the group's rank number `source` (0 is the group's first), and return x."""
        group = self.group(axis)
        if not 0 <= source < group.size:
            raise ValueError(
                f"broadcast from source={source} is not possible: choose a rank of the group, 0 to {group.size - 1}"
            )
        if group.size == 1:
            return x
        flat = flat_of(x)
        root = group.ranks[source]
        row = self._begin("broadcast", group, x.nbytes, flat, root=root, waits=False)
        work = self._together(flat, group, lambda: self.net.broadcast(flat, root, group.handle, async_op=True))
        return self._started(work, row, flat, lambda: settle(flat, x)).wait()

    def _together(self, x, group, post):
        """The result of `post`, a function that passes a group operation on x to torch."""
        return self._posted(x, group.handle, group.ranks, post)

    def barrier(self, axis=None):
        """Wait until every rank of the group is here."""
        group = self.group(axis)
        if group.size > 1:
            row = self._begin("barrier", group, 0)
            self.net.barrier(group.handle)
            self.ledger.end(row)


def _along(dim: int, before: str = "") -> str:
    """A dim as text, if it is not the default: all ranks of a group must agree on it."""
    return f"{before}dim {dim}" if dim else ""


def _uneven(sizes) -> str:
    """The lengths of all parts as text, if they differ: all ranks of a group must agree on them."""
    return said_lengths.told(sizes) if len(set(sizes)) > 1 else ""


def _shape(lengths) -> str:
    return f"({', '.join(map(str, lengths))})"
