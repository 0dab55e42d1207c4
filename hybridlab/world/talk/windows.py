"""Windows on a dim: each rank of a group *has* a span of it and *wants* a span. The wants may overlap.

    have   ((0, 4), (4, 8))    from, to: what each rank has; no two have the same
    want   ((0, 5), (3, 8))    what each rank wants of it: here one more on the inner side, a halo

Cannon's shift is a window of spans that have turned (`turned`), SUMMA's panel one in which all want the same, a halo
one of wider spans (`widened`). Only what a rank wants and another one has is sent: bytes are intersections.

The way back is a `fold`: each rank holds a summand for what it wanted, the pieces go to the ranks that have them, and
are added there, in the order of the ranks.

Relatives: `typed.window` and `typed.fold`, through which gradients flow; `modes.products.matmul`, built from them.
"""

from typing import NamedTuple

from hybridlab.core.where.spans import Span, overlap
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.parts import resized


class Windows(NamedTuple):
    """Along which dim, and the span that each rank of the group has, and wants.

    dim   of the tensor that is cut
    have  the span, (from, to), that each rank has
    want  the span that each rank wants
    """

    dim: int
    have: tuple[Span, ...]
    want: tuple[Span, ...]


def turned(spans, by: int = 1) -> tuple[Span, ...]:
    """What ranks want when each takes the span of the one `by` places further on, round a ring.

    spans  of the ranks, (from, to)
    by     places further on

    >>> turned(((0, 4), (4, 8), (8, 9)))
    ((4, 8), (8, 9), (0, 4))
    """
    return tuple(spans[(place + by) % len(spans)] for place in range(len(spans)))


def widened(spans, before: int, after: int) -> tuple[Span, ...]:
    """What ranks want when each also takes this many from both neighbours, as far as there are any.

    spans          of the ranks, (from, to)
    before, after  places from the neighbour on that side

    >>> widened(((0, 4), (4, 8)), before=1, after=2)
    ((0, 6), (3, 8))
    """
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    return tuple((max(begin - before, first), min(end + after, last)) for begin, end in spans)


class Flight:
    """Pieces under way: `wait` gives what they make together."""

    def __init__(self, arriving: dict[int, Message], leaving: list[Message], deliver):
        self._arriving, self._leaving, self._deliver = arriving, leaving, deliver

    def wait(self):
        pieces = {place: message.wait() for place, message in self._arriving.items()}
        for message in self._leaving:
            message.wait()
        return self._deliver(pieces)


def fetch(comm, x, axis, windows: Windows) -> Flight:
    """Start to bring what this rank wants of all that the ranks have; x is what it has.

    comm     the communicator of this rank
    axis     of the mesh, along which the ranks are
    x        what this rank has
    windows  what each rank has and wants

    raises  ValueError where a span stands for a list of spans, spans do not fit the group or x, two ranks have the
            same, or nobody has what one wants
    """
    dim, have, want = windows
    here = _here("window", comm, x, axis, windows, have)

    def put_together(pieces):
        room = x.new_empty(resized(x.shape, dim, _length(want[here])))
        for place, piece in pieces.items():
            _part(room, dim, overlap(have[place], want[here]), want[here]).copy_(piece)
        return room

    sent = {place: overlap(have[here], one) for place, one in enumerate(want)}
    taken = {place: overlap(one, want[here]) for place, one in enumerate(have)}
    return _exchange(comm, x, axis, dim, have[here], sent, taken, put_together)


def fold(comm, x, axis, windows: Windows) -> Flight:
    """Start to bring home what was made for others, and to add what others made: x is for what this rank wanted.

    comm     the communicator of this rank
    axis     of the mesh, along which the ranks are
    x        what this rank made of what it wanted
    windows  what each rank has and wants

    raises  as `fetch` does
    """
    dim, have, want = windows
    here = _here("fold", comm, x, axis, windows, want)

    def add_up(pieces):
        total = x.new_zeros(resized(x.shape, dim, _length(have[here])))
        for place, piece in sorted(pieces.items()):
            _part(total, dim, overlap(want[place], have[here]), have[here]).add_(piece)
        return total

    sent = {place: overlap(want[here], one) for place, one in enumerate(have)}
    taken = {place: overlap(one, have[here]) for place, one in enumerate(want)}
    return _exchange(comm, x, axis, dim, want[here], sent, taken, add_up)


def _exchange(comm, x, axis, dim, span, sent, taken, deliver) -> Flight:
    """Send every rank its part of x, which covers `span`; a rank's piece for itself does not travel."""
    ranks = comm.group(axis).ranks
    here = ranks.index(comm.rank)
    x = x.detach()
    arriving = {
        place: comm.irecv(x.new_empty(resized(x.shape, dim, _length(one))), ranks[place])
        for place, one in taken.items()
        if place != here and _length(one)
    }
    leaving = [
        comm.isend(_part(x, dim, one, span).contiguous(), ranks[place])
        for place, one in sent.items()
        if place != here and _length(one)
    ]
    if _length(taken[here]):
        arriving[here] = Message(lambda: _part(x, dim, sent[here], span))
    return Flight(arriving, leaving, deliver)


def _here(op, comm, x, axis, windows, held) -> int:
    """This rank's place in the group, once all fits: x covers what it holds, its span in `held`."""
    dim, have, want = windows
    group = comm.group(axis)
    for name, spans in (("have", have), ("want", want)):
        if not all(isinstance(span, tuple | list) and len(span) == 2 for span in spans):
            raise ValueError(f"{op}: {name} is {spans}; give a span (from, to) for each of {group.size} ranks")
    if not len(have) == len(want) == group.size:
        raise ValueError(f"{op} has {len(have)} and {len(want)} spans: give two for each of {group.size} ranks")
    there = sorted(span for span in have if _length(span))
    for (_, end), (begin, _) in zip(there, there[1:]):
        if begin < end:
            raise ValueError(f"{op}: two ranks own {begin}:{end}; let one rank own it")
    for rank, (begin, end) in zip(group.ranks, want):
        missing = end - begin - sum(_length(overlap((begin, end), one)) for one in there)
        if missing:
            raise ValueError(f"{op}: rank {rank} wants {begin}:{end}, but no rank has {missing} of it; let one have it")
    here = group.ranks.index(comm.rank)
    begin, end = held[here]
    if x.shape[dim] != end - begin:
        raise ValueError(
            f"{op}: {begin}:{end} has length {end - begin}, but this tensor has {x.shape[dim]} along dim {dim}; make "
            "them equal"
        )
    return here


def _part(x, dim, span, origin):
    """The view of x, which covers `origin`, of a span inside it."""
    return x.narrow(dim, span[0] - origin[0], _length(span))


def _length(span) -> int:
    return span[1] - span[0]
