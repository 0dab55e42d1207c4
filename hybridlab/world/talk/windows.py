"""Windows on a dim: each rank of a group *has* a span of it and *wants* (needs) a span. Needed spans may overlap.

    have   ((0, 4), (4, 8))    from, to: the span of each rank; no two overlap
    want   ((0, 5), (3, 8))    the span that each rank needs: here one more position on the inner side, a halo

Cannon's shift is a window with rotated spans (`turned`), SUMMA's panel one in which all ranks need the same span, a
halo one with wider spans (`widened`). A rank receives only the parts of its needed span that other ranks have: bytes
are intersections.

The backward is a `fold`: each rank holds a partial sum for its needed span; the pieces are sent to the ranks that have
these spans, and are added there, in the order of the ranks.

Relatives: `typed.window` and `typed.fold`, which have a backward; `modes.products.matmul`, built from them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.core.where.spans import Span, overlap
from hybridlab.doors import guarded, intervals
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.parts import resized


@guarded(have=intervals, want=intervals)
class Windows(NamedTuple):
    """A dim, and the spans that each rank of the group has and needs.

    dim   of the tensor that is cut
    have  the span, (from, to), that each rank has
    want  the span that each rank needs
    """

    dim: int
    have: tuple[Span, ...]
    want: tuple[Span, ...]


def turned(spans: Sequence[Span], by: int = 1) -> tuple[Span, ...]:
    """The spans that ranks need if each takes the span of the rank `by` places further on a ring.

    spans  of the ranks, (from, to)
    by     places further on

    >>> turned(((0, 4), (4, 8), (8, 9)))
    ((4, 8), (8, 9), (0, 4))
    """
    return tuple(spans[(place + by) % len(spans)] for place in range(len(spans)))


def widened(spans: Sequence[Span], before: int, after: int) -> tuple[Span, ...]:
    """The spans that ranks need if each also takes this many positions from each neighbour that it has.

    spans          of the ranks, (from, to)
    before, after  places from the neighbour on that side

    >>> widened(((0, 4), (4, 8)), before=1, after=2)
    ((0, 6), (3, 8))
    """
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    return tuple((max(begin - before, first), min(end + after, last)) for begin, end in spans)


class Flight:
    """Pieces in transit: `wait` returns the tensor that they form together."""

    def __init__(self, arriving: dict[int, Message], leaving: list[Message], deliver):
        self._arriving, self._leaving, self._deliver = arriving, leaving, deliver

    def wait(self):
        pieces = {place: message.wait() for place, message in self._arriving.items()}
        for message in self._leaving:
            message.wait()
        return self._deliver(pieces)


def fetch(comm, x, axis, windows: Windows) -> Flight:
    """Start fetching, from all ranks, the span that this rank needs; x is the span that it has.

    comm     the communicator of this rank
    axis     the mesh axis along which the ranks communicate
    x        this rank's span
    windows  the spans that each rank has and needs

    raises  ValueError if a single span is given instead of a list, spans do not fit the group or x, two ranks have the
            same positions, or no rank has a needed position
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
    """Start sending the parts that this rank computed for others, and adding the parts that they computed for this
    rank: x covers the span that this rank needed.

    comm     the communicator of this rank
    axis     the mesh axis along which the ranks communicate
    x        this rank's partial sum for the span that it needs
    windows  the spans that each rank has and needs

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
    """Send every rank its part of x, which covers `span`; a rank's piece for itself is not sent."""
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
    """This rank's place in the group, after a check that everything fits: x covers this rank's span in `held`."""
    dim, have, want = windows
    group = comm.group(axis)
    if not len(have) == len(want) == group.size:
        raise ValueError(f"{op} has {len(have)} and {len(want)} spans: give two for each of {group.size} ranks")
    there = sorted(span for span in have if _length(span))
    for (_, end), (begin, _) in zip(there, there[1:]):
        if begin < end:
            raise ValueError(f"{op}: two ranks own {begin}:{end}; let one rank own it")
    for rank, (begin, end) in zip(group.ranks, want):
        missing = end - begin - sum(_length(overlap((begin, end), one)) for one in there)
        if missing:
            raise ValueError(
                f"{op}: rank {rank} needs {begin}:{end}, but no rank has {missing} of it; let one rank have it"
            )
    here = group.ranks.index(comm.rank)
    begin, end = held[here]
    if x.shape[dim] != end - begin:
        raise ValueError(
            f"{op}: {begin}:{end} has length {end - begin}, but this tensor has {x.shape[dim]} along dim {dim}; make "
            "them equal"
        )
    return here


def _part(x, dim, span, origin):
    """The view of a span inside x; x covers `origin`."""
    return x.narrow(dim, span[0] - origin[0], _length(span))


def _length(span) -> int:
    return span[1] - span[0]
