"""A schedule made by hand: what is possible is what the law allows; every game ends; nothing beats the bound."""

import itertools
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.predict.time.bound import shortest
from hybridlab.scheduling.by_hand import ByHand


def possible(hand):
    return [(r, one.kind) for r in range(hand.ranks) for one in hand.choices(r) if not one.why_not]


def played(hand, pick):
    while not hand.finished:
        hand = hand.choose(*pick(possible(hand)))
    return hand


def follow(hand, text):
    """Choices written as rank and kind: "0F 1F 1B 0B"."""
    for word in text.split():
        hand = hand.choose(int(word[:-1]), word[-1])
    return hand


def allowed_by_play(hand, rank, action):
    """Whether the chosen actions and one more can all be done: asked of play itself, which knows nothing of choices."""
    programs = [list(program) for program in hand.schedule.program]
    programs[rank].append(action)
    try:
        hl.simulate(hand.schedule.with_programs(programs))
    except ValueError:
        return False
    return True


games = st.builds(
    ByHand,
    ranks=st.integers(1, 4),
    microbatches=st.integers(1, 4),
    split=st.booleans(),
    limit=st.none() | st.integers(1, 4),
)


@pytest.mark.long
@settings(max_examples=40)
@given(hand=games, seed=st.integers(0, 10**6))
def test_every_game_ends_in_a_valid_schedule_within_its_limit(hand, seed):
    done = played(hand, random.Random(seed).choice)
    hl.validate(done.schedule)
    assert max(hl.simulate(done.schedule).peak_live) <= (hand.limit or hand.microbatches)
    assert done.held == [0] * hand.ranks and possible(done) == []


@pytest.mark.slow
@settings(max_examples=15)
@given(hand=games, seed=st.integers(0, 10**6), moves=st.integers(0, 12))
def test_a_choice_is_possible_exactly_where_play_could_go_on(hand, seed, moves):
    pick = random.Random(seed)
    for _ in range(min(moves, hand.everything.actions)):
        hand = hand.choose(*pick.choice(possible(hand)))
    for rank in range(hand.ranks):
        for choice in hand.choices(rank):
            if choice.action and "may hold" not in choice.why_not:
                assert (choice.why_not == "") == allowed_by_play(hand, rank, choice.action), choice


def test_1f1b_can_be_chosen_by_hand():
    hand = follow(ByHand(2, 3), "0F 0F 1F 1B 0B 0F 1F 1B 0B 1F 1B 0B")
    assert hand.finished and hand.schedule.program == hl.schedule("1f1b", ranks=2, microbatches=3).program
    assert hand.schedule.name == "by hand"


def test_zb_h1_can_be_chosen_by_hand():
    wanted = hl.schedule("zb_h1", ranks=2, microbatches=3)
    hand, position = ByHand(2, 3, split=True), [0, 0]
    while not hand.finished:
        for r, program in enumerate(wanted.program):
            if position[r] < len(program) and (r, program[position[r]].kind) in possible(hand):
                hand = hand.choose(r, program[position[r]].kind)
                position[r] += 1
    assert hand.schedule.program == wanted.program


def why(hand, rank, kind):
    return next(one.why_not for one in hand.choices(rank) if one.kind == kind)


def test_what_is_impossible_says_what_comes_first():
    start = ByHand(3, 2, limit=1)
    assert why(start, 1, "F") == "1F0 comes after 0F0 on rank 0: that makes the activation of stage 0 for microbatch 0"
    assert "0B0 comes after 0F0 on rank 0" in why(start, 0, "B")
    one = start.choose(0, "F")
    assert why(one, 0, "B") == "0B0 comes after 1B0 on rank 1: that makes the gradient of stage 1 for microbatch 0"
    full = "rank 0 holds all the activations that it may hold (1): do B, which frees one, before 0F1"
    assert why(one, 0, "F") == full
    assert why(follow(start, "0F 1F 2F 2B 1B 0B 0F 1F 2F"), 2, "F") == "rank 2 has done forward for every microbatch"
    with pytest.raises(ValueError, match="1F0 comes after 0F0"):
        start.choose(1, "F")


def test_with_halves_the_weight_half_frees_memory():
    hand = follow(ByHand(1, 2, split=True, limit=1), "0F 0I")
    assert "do W, which frees one" in why(hand, 0, "F")
    assert follow(hand, "0W 0F").held == [1]


def test_undo_takes_one_choice_back_and_changes_no_older_value():
    one = ByHand(2, 2).choose(0, "F")
    two = one.choose(1, "F")
    assert two.undo() == one and len(two.chosen) == 2 and ByHand(2, 2).undo() == ByHand(2, 2)


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"ranks": 0}, "ranks=0 is not possible"),
        ({"ranks": True}, "ranks=True is not possible"),
        ({"microbatches": 1.5}, "microbatches=1.5 is not possible"),
        ({"limit": 0}, "limit=0 is not possible"),
    ],
)
def test_impossible_numbers_are_refused_in_a_sentence(wrong, told):
    with pytest.raises(ValueError, match=told):
        ByHand(**{"ranks": 2, "microbatches": 2} | wrong)


def test_unknown_ranks_and_kinds_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="there is no rank 2: choose from 0 to 1"):
        ByHand(2, 2).choose(2, "F")
    with pytest.raises(ValueError, match="'W' is not possible here: choose one of F, B"):
        ByHand(2, 2).choose(0, "W")


# --- the bound -------------------------------------------------------------------------------------------------


def lengths_of_all_orders(ranks, microbatches, split, costs):
    """The length of every game there is, by trying all choices."""

    @cache
    def lengths(hand):
        if hand.finished:
            return frozenset([hl.simulate(hand.schedule, costs).length])
        return frozenset(itertools.chain(*(lengths(hand.choose(*move)) for move in possible(hand))))

    return lengths(ByHand(ranks, microbatches, split))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("costs", [hl.Costs(F=1, B=2), hl.Costs(F=(1, 3), I=(2, 1), W=1, latency=0.5)], ids=str)
def test_no_order_is_shorter_than_the_bound(split, costs):
    found = lengths_of_all_orders(2, 2 - split, split, costs)
    everything = ByHand(2, 2 - split, split).everything.schedule
    assert len(found) > 1 or split
    assert min(found) >= shortest(everything, costs) > 0


@pytest.mark.parametrize("ranks, microbatches", [(1, 1), (2, 5), (4, 8), (4, 2), (8, 3)])
def test_1f1b_meets_the_bound_at_equal_costs(ranks, microbatches):
    costs = hl.Costs(F=1, B=2)
    one = hl.schedule("1f1b", ranks=ranks, microbatches=microbatches)
    assert shortest(one, costs) == hl.simulate(one, costs).length == 3 * (microbatches + ranks - 1)
    assert shortest(hl.schedule("naive", ranks=ranks, microbatches=microbatches), costs) <= shortest(one, costs)


def test_messages_lengthen_the_bound():
    one = hl.schedule("1f1b", ranks=3, microbatches=2)
    assert shortest(one, hl.Costs(F=1, B=2, latency=1)) == shortest(one, hl.Costs(F=1, B=2)) + 4
