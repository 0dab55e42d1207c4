"""The comparison, as a pure function of made-up journals: what does not fit is found, and nothing else."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.world.explain.compare import Comparison, told
from hybridlab.world.explain.supervise import whereabouts
from hybridlab.world.talk.journal import Post


class Ranks:
    """Ranks that announce operations; each counts its turns as a ledger does."""

    def __init__(self, size):
        self.every, self.comparison = tuple(range(size)), Comparison()
        self.numbers, self.turns = [0] * size, {}

    def say(
        self, rank, op, group=None, *, shape="(8,)", dtype="float32", how="", root=None, peer=None, tag=None, line=1
    ):
        group = tuple(sorted((rank, peer))) if peer is not None else group or self.every
        key = (rank, op.removeprefix("i"), peer, tag) if peer is not None else (rank, group)
        self.turns[key] = self.turns.get(key, 0) + 1
        self.numbers[rank] += 1
        post = Post(
            rank,
            self.numbers[rank],
            op,
            group,
            self.turns[key],
            32,
            shape,
            dtype,
            how,
            root,
            peer,
            tag,
            f"/no/lab.py:{line}",
        )
        self.comparison.add(post)
        return post


@pytest.mark.parametrize(
    "other",
    [{"shape": "(4,)"}, {"dtype": "float64"}, {"how": "max"}, {"root": 1}, {"op": "all_gather"}],
    ids=lambda other: next(iter(other)),
)
def test_one_rank_that_differs_is_the_one(other):
    ranks = Ranks(4)
    usual = {"op": "all_reduce", "line": 25}
    for rank in (2, 0, 3, 1):
        ranks.say(rank, **usual | (other | {"line": 7} if rank == 2 else {}))
    found = ranks.comparison.misfit()
    assert (found.kind, found.rank, found.where) == ("mismatch", 2, "lab.py:7")
    assert "ranks 0, 1, 3 call all_reduce #1 of (8,) float32" in found.sentence and "lab.py:25" in found.sentence


def test_of_two_ranks_that_differ_the_lower_is_believed():
    ranks = Ranks(2)
    ranks.say(1, "barrier", shape="", dtype="")
    ranks.say(0, "all_reduce")
    assert ranks.comparison.misfit().rank == 1


def test_the_same_call_from_other_lines_is_no_fault():
    ranks = Ranks(3)
    for rank in ranks.every:
        ranks.say(rank, "all_reduce", line=rank)
        ranks.say(rank, "all_reduce", line=9)
    assert ranks.comparison.misfit() is None and ranks.comparison.unmet() is None


def test_two_calls_in_the_other_order_are_found_by_their_lines():
    ranks = Ranks(3)
    for rank in ranks.every:
        for line in (70, 69) if rank == 1 else (69, 70):
            ranks.say(rank, "all_reduce", line=line)
    found = ranks.comparison.misfit()
    assert (found.kind, found.rank, found.where) == ("order", 1, "lab.py:70")


def test_a_sender_and_its_receivers_may_change_roles():
    """One line sends, another receives, and the root changes: crosswise lines, and nothing wrong."""
    ranks = Ranks(2)
    for root in (0, 1):
        for rank in ranks.every:
            ranks.say(rank, "broadcast", root=root, line=10 if rank == root else 12)
    assert ranks.comparison.misfit() is None


def test_messages_are_paired_by_direction_tag_and_order():
    ranks = Ranks(2)
    ranks.say(0, "isend", peer=1, tag=5)
    ranks.say(0, "isend", peer=1, tag=6, shape="(3,)")
    ranks.say(1, "irecv", peer=0, tag=6, shape="(3,)")
    ranks.say(0, "irecv", peer=1, tag=5)
    assert ranks.comparison.misfit() is None
    assert "rank 0 announced isend of (8,) float32 to rank 1, tag 5" in ranks.comparison.unmet().sentence
    ranks.say(1, "recv", peer=0, tag=5, dtype="int32", line=4)
    found = ranks.comparison.misfit()
    assert (
        found.kind == "mismatch"
        and "does not fit rank 1's recv of (8,) int32 from rank 0, tag 5, at lab.py:4" in str(found)
    )


def test_a_ring_of_ranks_that_wait_is_a_deadlock_and_a_rank_at_work_is_none():
    ranks = Ranks(4)
    waiting = {rank: ranks.say(rank, "recv", peer=(rank + 1) % 3, tag=0) for rank in (0, 1, 2)}
    waiting[3] = ranks.say(3, "barrier", shape="")
    stuck = ranks.comparison.stuck(waiting, set())
    assert stuck.keys() == {0, 1, 2, 3}
    found = ranks.comparison.explain(waiting, stuck, set())
    assert found.kind == "deadlock" and "rank 3" not in found.sentence
    del waiting[2]
    assert ranks.comparison.stuck(waiting, set()) == {}


def test_who_waits_for_a_rank_that_has_finished_waits_in_vain():
    ranks = Ranks(3)
    last = ranks.say(2, "barrier", shape="", line=8)
    ranks.say(0, "barrier", shape=""), ranks.say(1, "barrier", shape="")
    waiting = {0: ranks.say(0, "all_reduce", line=9)}
    assert ranks.comparison.stuck(waiting, set()) == {}
    stuck = ranks.comparison.stuck(waiting, {2})
    found = ranks.comparison.explain(waiting, stuck, {2})
    assert (found.kind, found.rank, found.where) == ("left", 2, "lab.py:8")
    assert found.sentence.endswith(f"its last operation was {told(last)}")


def test_the_root_of_a_broadcast_waits_for_nobody_and_the_others_for_it_alone():
    ranks = Ranks(3)
    root, other = ranks.say(0, "broadcast", root=0), ranks.say(1, "broadcast", root=0)
    assert ranks.comparison.needed(root) == () and ranks.comparison.needed(other) == ()
    early = Ranks(3).say(1, "broadcast", root=0)
    assert Comparison().needed(early) == (0,)


def test_a_wrong_tag_is_told_as_one():
    ranks = Ranks(2)
    waiting = {0: ranks.say(0, "send", peer=1, tag=1, line=87), 1: ranks.say(1, "recv", peer=0, tag=2, line=88)}
    found = ranks.comparison.explain(waiting, ranks.comparison.stuck(waiting, set()), set())
    assert found.kind == "tag" and "tag 1, at lab.py:87" in found.sentence and "tag 2, at lab.py:88" in found.sentence


def test_the_line_is_that_of_the_main_thread():
    """An early miss of the prototype: the first thread in the list was taken, which is any thread."""
    stacks = (
        'Thread 0x1 (most recent call first):\n  File "/home/me/other.py", line 9 in beat\n\n'
        'Current thread 0x2 (most recent call first):\n  File "/home/me/lab.py", line 3 in step\n'
        '  File "rank.py", line 9 in live'
    )
    assert whereabouts(stacks) == ("in step", "lab.py:3")


# ---- programs by chance: healthy ones pass, however they are interleaved; damaged ones do not


@st.composite
def programs(draw, size=4):
    """What every rank of a healthy program says, in its order."""
    says = [[] for _ in range(size)]
    for _ in range(draw(st.integers(1, 12))):
        line, shape = draw(st.integers(1, 30)), draw(st.sampled_from(["(8,)", "(2, 4)"]))
        if draw(st.booleans()):
            group = draw(st.sampled_from([(0, 1, 2, 3), (0, 1), (1, 3), (0, 2, 3)]))
            for rank in group:
                says[rank].append({"op": "all_reduce", "group": group, "shape": shape, "line": line})
        else:
            source, destination = draw(st.permutations(range(size)))[:2]
            tag = draw(st.integers(0, 2))
            says[source].append({"op": "isend", "peer": destination, "tag": tag, "shape": shape, "line": line})
            says[destination].append({"op": "irecv", "peer": source, "tag": tag, "shape": shape, "line": line + 1})
    return says


def interleaved(says, seed) -> Ranks:
    ranks, chance, left = Ranks(len(says)), random.Random(seed), [list(some) for some in says]
    while any(left):
        rank = chance.choice([rank for rank, some in enumerate(left) if some])
        ranks.say(rank, **left[rank].pop(0))
    return ranks


@pytest.mark.long
@settings(max_examples=60)
@given(programs(), st.integers(0, 2**32))
def test_a_healthy_program_fits_in_every_interleaving(says, seed):
    comparison = interleaved(says, seed).comparison
    assert comparison.misfit() is None and comparison.unmet() is None


@pytest.mark.long
@settings(max_examples=60)
@given(programs(), st.integers(0, 2**32), st.data())
def test_one_changed_or_missing_call_is_always_found(says, seed, data):
    rank = data.draw(st.sampled_from([rank for rank, some in enumerate(says) if some]))
    place = data.draw(st.integers(0, len(says[rank]) - 1))
    if data.draw(st.booleans()):
        says[rank][place] = says[rank][place] | {"dtype": "int64"}
    else:
        del says[rank][place]
    comparison = interleaved(says, seed).comparison
    assert comparison.misfit() or comparison.unmet()
