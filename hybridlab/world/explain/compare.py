"""The comparison of all ranks' announced operations, to find a mismatch or a deadlock.

It is a pure function from posts (see `journal`) to a `Finding`. torch does not check the parameters that must agree
within a group: operation, shape, dtype, reduction, dim, lengths of parts and root. A wrong parameter gives wrong
numbers instead of an error. A message must have the same dtype as its receive buffer, and the same shape, unless one of
the two is flat.

One fault cannot be found: two tensors of the same shape, reduced in different order by one call in a loop.

A rank that waits needs other ranks to announce an operation. A rank that needs a finished rank, or a rank in a
deadlock, is in a deadlock too. This is a proof, so it needs no time limit.
"""

from collections import Counter
from typing import NamedTuple

from hybridlab.core.operations import SENDS
from hybridlab.world.explain.places import code, names, place
from hybridlab.world.talk.journal import Post
from hybridlab.world.talk.lengths import unfitting


class Finding(NamedTuple):
    """A fault that the journal proves: its kind, the rank and line to look at, and one sentence."""

    kind: str
    rank: int
    where: str
    sentence: str


class Comparison:
    """The posts of one run so far, which are stored only until they have met."""

    def __init__(self):
        self.last: dict[int, Post] = {}  # the latest post of each rank
        self._turns: dict[tuple, int] = {}  # the number of each rank's calls, by group and by kind of message
        self._meetings: dict[tuple, dict[int, Post]] = {}  # by group and turn: the ranks that have arrived
        self._halves: dict[tuple, Post] = {}  # by source, destination, tag and turn: the half that has been posted
        self._crossed: dict[tuple, dict[int, Post]] = {}  # by group: the latest meeting, if its lines differed
        self._misfits: list = []  # functions that return a Finding: more ranks may arrive before it is reported

    def add(self, post: Post):
        """Process one announcement; those of one rank come in order."""
        self.last[post.rank] = post
        self._turns[_lane(post)] = post.turn
        if post.peer is None:
            self._meet(post)
        else:
            self._pair(post)

    def misfit(self) -> Finding | None:
        """The first mismatch."""
        return self._misfits[0]() if self._misfits else None

    def needed(self, post: Post) -> tuple[int, ...]:
        """The ranks that must still announce their part before this operation can end at its rank."""
        if post.op == "broadcast":
            return self._behind(post, (post.root,))  # the root itself waits for no rank
        return self._behind(post, post.group)

    def absent(self, post: Post) -> tuple[int, ...]:
        """The ranks that have not announced their part of this operation."""
        return self._behind(post, post.group)

    def stuck(self, waiting: dict[int, Post], finished) -> dict[int, tuple[int, ...]]:
        """Ranks in a deadlock, each with the ranks it is waiting for."""
        needs = {rank: self.needed(post) for rank, post in waiting.items()}
        while True:
            vain = {rank: tuple(n for n in some if n in needs or n in finished) for rank, some in needs.items()}
            vain = {rank: some for rank, some in vain.items() if some}
            if len(vain) == len(needs):
                return vain
            needs = {rank: needs[rank] for rank in vain}

    def unmet(self) -> Finding | None:
        """At the end of a run: the fault of a message that no rank received, or of a collective that a rank did not
        join."""
        there = next(iter(self._meetings.values()), {})
        for post in [*self._halves.values(), *there.values()]:
            if absent := self.absent(post):
                sentence = f"rank {post.rank} announced {told(post)}, and {names(absent)} never took part"
                return Finding("unmatched", post.rank, where_of(post), sentence)
        return None

    def abandoned(self, finished) -> Finding | None:
        """A collective that can never be complete, because a rank has finished without it.

        The ranks that have arrived may wait where the journal does not show it: in torch's own C++, as the backward of
        DDP does.
        """
        for there in self._meetings.values():
            left = [rank for rank in next(iter(there.values())).group if rank not in there and rank in finished]
            waiting = {rank: post for rank, post in there.items() if rank not in finished}
            if left and waiting:
                return _left(self, waiting, left[0])
        return None

    def explain(self, waiting: dict[int, Post], stuck: dict[int, tuple[int, ...]], finished) -> Finding:
        """The message about a deadlock: a wrong tag, a rank that left, or ranks that wait for each other in a ring."""
        for rank in stuck:
            if other := self._other_tag(waiting[rank]):
                return _wrong_tag(waiting[rank], other)
        for some in stuck.values():
            if left := [rank for rank in some if rank in finished]:
                return _left(self, {r: waiting[r] for r, needs in stuck.items() if left[0] in needs}, left[0])
        return _deadlock(waiting, _ring(stuck))

    def _behind(self, post, ranks):
        if post.peer is not None:
            return () if self._turns.get(_lane(post, other=True), 0) >= post.turn else (post.peer,)
        return tuple(r for r in ranks if r != post.rank and self._turns.get((r, post.group), 0) < post.turn)

    def _meet(self, post):
        key = post.group, post.turn
        there = self._meetings.setdefault(key, {})
        there[post.rank] = post
        alike = len({_agreed(one) for one in there.values()}) == 1
        if not alike:
            self._misfits.append(lambda: _differs(there))
        elif post.op == "all_to_all" and post.lengths and (pair := _misled(there, post.group)):
            self._misfits.append(lambda: _mislaid(there, *pair))
        if len(there) == len(post.group):
            del self._meetings[key]
            if alike:
                self._cross(there, post.group)

    def _cross(self, there, group):
        """Check whether some ranks called two collectives of the same form in the opposite order."""
        before = self._crossed.pop(group, None)
        if len({(post.source, post.columns) for post in there.values()}) == 1:
            return
        self._crossed[group] = there
        if before and _crosswise(before, there):
            self._misfits.append(lambda: _swapped(before, there))

    def _pair(self, post):
        there = post.peer
        key = (*((post.rank, there) if post.op in SENDS else (there, post.rank)), post.tag, post.turn)
        other = self._halves.pop(key, None)
        if other is None:
            self._halves[key] = post
        elif (other.size, other.dtype) != (post.size, post.dtype) or _turned(other.shape, post.shape):
            self._misfits.append(lambda: _unfitting(*((post, other) if post.op in SENDS else (other, post))))

    def _other_tag(self, post) -> Post | None:
        """For a waiting message, another one between the same two ranks, in the same direction, that waits with a
        different tag.
        """
        if post.peer is None:
            return None
        mine = post.op in SENDS
        between = (post.rank, post.peer) if mine else (post.peer, post.rank)
        others = (half for key, half in self._halves.items() if key[:2] == between and key[2] != post.tag)
        return next((half for half in others if (half.op in SENDS) != mine), None)


def told(post: Post) -> str:
    """An operation in words: "all_reduce #5 of (8,) float32, sum, at lab.py:3"."""
    shape = f" of {post.shape} {post.dtype}" if post.shape else ""
    if post.peer is not None:
        to = "to" if post.op in SENDS else "from"
        return f"{post.op}{shape} {to} rank {post.peer}, tag {post.tag}, at {where_of(post)}"
    about = [post.how, f"lengths {post.lengths}" * (post.lengths != "" and post.op != "all_to_all")]
    about += [f"from rank {post.root}"] if post.root is not None else []
    how = f", {', '.join(filter(None, about))}," if any(about) else ""
    return f"{post.op} #{post.turn}{shape}{how} at {where_of(post)}"


def together(waiting: dict[int, Post]) -> str:
    """The waiting ranks and their operations, equal ones together: "ranks 0, 1 wait in barrier #2 at lab.py:3"."""
    places: dict[str, list[int]] = {}
    for rank, post in sorted(waiting.items()):
        places.setdefault(told(post), []).append(rank)
    return " and ".join(f"{names(there)} wait{'s' * (len(there) == 1)} in {what}" for what, there in places.items())


def _lane(post, other=False):
    """The key by which a rank counts an operation; with `other`, the key of the matching half of a message."""
    if post.peer is None:
        return post.rank, post.group
    sends = (post.op in SENDS) != other
    rank, peer = (post.peer, post.rank) if other else (post.rank, post.peer)
    return rank, sends, peer, post.tag


def _agreed(post):
    lengths = "" if post.op == "all_to_all" else post.lengths
    return post.op, post.shape, post.dtype, post.how, lengths, post.root


def where_of(post: Post) -> str:
    """The line of the call, as text for a sentence."""
    return place(*post.source.rpartition(":")[::2])


def _turned(one: str, other: str) -> bool:
    """Whether two shapes with the same number of elements differ beyond dims of length 1; a flat shape matches any."""
    sides = [[n for n in shape.strip("()").split(", ") if n not in ("1", "1,", "")] for shape in (one, other)]
    return sides[0] != sides[1] and min(map(len, sides)) > 1


def _misled(there, group):
    """(sender, receiver, the mismatch) among ranks that exchange parts."""
    found = unfitting({group.index(rank): post.lengths for rank, post in there.items()}, len(group))
    return found and (group[found[0]], group[found[1]], found[2])


def _mislaid(there, sender, receiver, what) -> Finding:
    post = there[sender]
    sentence = f"rank {sender} {what} by rank {receiver}, in {told(post)}: give sent= and received= that fit"
    return Finding("mismatch", sender, where_of(post), sentence)


def _differs(there) -> Finding:
    votes = Counter(_agreed(post) for post in there.values())
    first = _agreed(there[min(there)])
    usual = max(votes, key=lambda what: (votes[what], what == first))  # a tie goes to the lowest rank
    sides: dict[tuple, list[int]] = {}
    for rank in sorted(there):
        sides.setdefault((_agreed(there[rank]) == usual, told(there[rank])), []).append(rank)
    odd, *rest = sorted(sides.items(), key=lambda side: side[0][0])
    rank = odd[1][0]
    story = "; ".join(f"{names(ranks)} call{'s' * (len(ranks) == 1)} {what}" for (_, what), ranks in [odd, *rest])
    return Finding("mismatch", rank, where_of(there[rank]), f"the ranks do not call the same: {story}")


def _crosswise(before, after) -> bool:
    """Whether every rank made the same two calls, but not all in the same order; the calls are otherwise alike."""
    if {_agreed(post) for post in before.values()} != {_agreed(post) for post in after.values()}:
        return False
    orders = set(_orders(before, after).values())
    return len(orders) == 2 and orders == {order[::-1] for order in orders}


def _orders(before, after) -> dict[int, tuple[str, str]]:
    """By rank: the text of its two calls. Two branches may contain the same call, so line numbers are not enough."""
    return {rank: (_code(before[rank]), _code(after[rank])) for rank in before}


def _code(post) -> str:
    file, _, line = post.source.rpartition(":")
    return code(file, int(line), post.columns)


def _swapped(before, after) -> Finding:
    orders = _orders(before, after)
    votes, first = Counter(orders.values()), orders[min(orders)]
    usual = max(votes, key=lambda order: (votes[order], order == first))
    odd = next(rank for rank in sorted(orders) if orders[rank] != usual)
    even = next(rank for rank in sorted(orders) if orders[rank] == usual)
    mine, theirs = ([where_of(post[rank]) for post in (before, after)] for rank in (odd, even))
    post = before[odd]
    sentence = (
        f"rank {odd} calls {post.op} #{post.turn} at {mine[0]} and #{post.turn + 1} at {mine[1]}, rank {even} first at "
        f"{theirs[0]} and then at {theirs[1]}: in that order different tensors are combined; use one order everywhere"
    )
    return Finding("order", odd, mine[0], sentence)


def _unfitting(sent, received) -> Finding:
    sentence = f"rank {sent.rank}'s {told(sent)} does not fit rank {received.rank}'s {told(received)}"
    return Finding("mismatch", sent.rank, where_of(sent), sentence)


def _wrong_tag(one, other) -> Finding:
    sentence = f"rank {one.rank} waits in {told(one)}; rank {other.rank} has another tag, in {told(other)}"
    return Finding("tag", one.rank, where_of(one), sentence)


def _left(comparison, waiting, left) -> Finding:
    last = comparison.last.get(left)
    after = f"its last operation was {told(last)}" if last else "it had no operation at all"
    post = next(iter(waiting.values()))
    sentence = f"rank {left} has finished, and {together(waiting)} without it; {after}"
    return Finding("left", left, where_of(last or post), sentence)


def _ring(stuck) -> list[int]:
    """Ranks in a cycle: each needs the next one, and the last one needs the first."""
    path = [min(stuck)]
    while (after := next(rank for rank in stuck[path[-1]] if rank in stuck)) not in path:
        path.append(after)
    return path[path.index(after) :]


def _deadlock(waiting, ring) -> Finding:
    story = ", ".join(f"rank {rank} waits in {told(waiting[rank])}" for rank in ring)
    sentence = f"deadlock: {story}; each needs another of them first"
    return Finding("deadlock", ring[0], where_of(waiting[ring[0]]), sentence)
