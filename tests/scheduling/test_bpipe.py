"""BPipe by its closed form: no rank holds more than half of what a pair holds, and a step is as long as in 1F1B."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import hybridlab as hl
from hybridlab.predict.bytes.live import on_device
from hybridlab.scheduling.bpipe import bpipe
from hybridlab.scheduling.validate import Invalid, validate


@settings(max_examples=60)
@given(p=some.integers(1, 14), m=some.integers(1, 30), swap=some.sampled_from([0, 0.5, 1, 2]))
def test_no_rank_holds_more_than_half_of_a_pair(p, m, swap):
    """⌈(p+2)/2⌉, moves in progress included; and the messages do not change it."""
    room = hl.Room(capacity=-(-(p + 2) // 2))
    for made in (bpipe(p, m), hl.lower(bpipe(p, m))):
        step = hl.simulate(validate(made, room), hl.Costs(F=1, B=2, swap=swap), room=room)
        assert max(float(held.max()) for _, held in on_device(step)) <= room.capacity


@settings(max_examples=40)
@given(p=some.integers(2, 14), rounds=some.integers(2, 4))
def test_a_full_pipeline_reaches_the_bound_and_a_pair_has_its_sum(p, rounds):
    c, plain = -(-(p + 2) // 2), hl.simulate(hl.schedule("1f1b", p, rounds * p), hl.Costs(F=1, B=2))
    found = hl.simulate(bpipe(p, rounds * p), hl.Costs(F=1, B=2)).peak_live
    assert max(found) == min(c, p)
    for x in range(p):
        assert plain.peak_live[x] + plain.peak_live[p - 1 - x] == p + 1
        assert found[x] == p - x or max(p - x, x + 1) > c  # a pair without loans is as in 1F1B


@settings(max_examples=40)
@given(p=some.integers(1, 14), m=some.integers(1, 30), swap=some.sampled_from([0, 1, 2]))
def test_a_step_is_as_long_as_in_1f1b(p, m, swap):
    """With memory for c activations and moves of a forward; with more memory, moves of a backward."""
    costs, room = hl.Costs(F=1, B=2, swap=swap), hl.Room(-(-(p + 2) // 2)) if swap <= 1 else None
    assert hl.simulate(bpipe(p, m), costs, room=room).length == hl.simulate(hl.schedule("1f1b", p, m), costs).length


@pytest.mark.parametrize("p", [4, 7, 8])
def test_a_device_of_that_capacity_is_enough_and_one_less_is_not(p):
    made, c = bpipe(p, 3 * p), -(-(p + 2) // 2)
    room = hl.Room(capacity=c)
    slow = hl.simulate(hl.validate(made, room), hl.Costs(F=1, B=2, swap=9), room=room)  # moves of three slots
    assert max(float(held.max()) for _, held in on_device(slow)) == c
    with pytest.raises(ValueError, match="needs 1 more than the"):
        hl.validate(made, hl.Room(capacity=c - 1))


def test_a_loan_is_four_moves_and_texts_keep_it(tmp_path):
    made = hl.schedule("bpipe", 4, 4)
    assert [str(one) for program in made.program for one in program if one.lent] == [
        *("0SWAP_OUT2>3", "0SWAP_IN2>3", "0SWAP_IN2>3", "0SWAP_OUT2>3")
    ]
    made.save(tmp_path / "loans.json")
    for again in (hl.Schedule.from_csv(made.to_csv()), hl.Schedule.load(tmp_path / "loans.json")):
        assert str(validate(again)) == str(made) and again.place == made.place and again.skips == ()


LISTS = """0F0,0SWAP_OUT0>2,1F0,1B0,0SWAP_IN0>2,0B0
0SWAP_IN0>2,2F0,2B0,0SWAP_OUT0>2"""


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("0SWAP_IN0>2,0B0", "0B0", "0B0 takes the saved tensors of 0F0, but 0SWAP_OUT0 comes before it"),
        ("0SWAP_IN0>2,2F0", "2F0", "0SWAP_OUT0>2 takes the saved tensors of 0F0 back on the device"),
        ("2B0,0SWAP_OUT0>2", "2B0", "0SWAP_IN0>2 takes the saved tensors of 0F0 on the host"),
        ("0SWAP_IN0>2,2F0", "0SWAP_IN0>1,2F0", "0SWAP_IN0>1 is on the wrong rank"),
        ("0SWAP_OUT0>2,1F0", "0SWAP_OUT0>7,1F0", "0SWAP_OUT0>7 names no stage after >: choose from 0 to 2"),
        ("0SWAP_IN0>2,2F0", "0SWAP_IN0>2,0SWAP_IN0>2,2F0", "0SWAP_IN0>2 occurs twice on rank 1"),
    ],
)
def test_a_move_that_is_missing_or_on_another_rank_is_refused(old, new, said):
    validate(hl.Schedule.from_csv(LISTS))
    assert old in LISTS
    with pytest.raises(Invalid, match=said):
        validate(hl.Schedule.from_csv(LISTS.replace(old, new)))


def test_a_return_before_its_loan_would_hang_and_is_refused():
    lists = LISTS.replace("0SWAP_IN0>2,2F0,2B0,0SWAP_OUT0>2", "0SWAP_OUT0>2,2F0,2B0,0SWAP_IN0>2")
    with pytest.raises(ValueError, match="waits on itself"):
        validate(hl.Schedule.from_csv(lists))


def test_copies_of_the_pipeline_lend_to_their_own_ranks():
    made = hl.schedule("bpipe", 4, 4, dp=2)
    assert [str(one) for one in made.program[7] if one.lent] == ["0SWAP_IN6>3@1", "0SWAP_OUT6>3@1"]
    assert max(hl.simulate(made).peak_live) == 3
