"""Notebook 23: pictures and tables say what the package computes; the engine's referee is strict; runs keep to their
room."""

import itertools

import pytest
from few import first, one_in

from hybridlab.core.what.catalog import MACHINES, model
from hybridlab.labs.out_of_core import chains, links, on_ranks, pictures, planned, tasks
from hybridlab.labs.out_of_core.chains import KEEP, RECOMPUTE, SWAP, length
from hybridlab.labs.out_of_core.planned import CASES, Case
from hybridlab.labs.out_of_core.trial import Bytes
from hybridlab.predict.bytes.live import on_device

# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("swap, lengths", [(1, (38, 48, 36, 36)), (2, (51, 48, 40, 38)), (3, (75, 48, 48, 40))])
def test_lengths_of_the_habits_and_of_the_best(swap, lengths):
    (row,) = chains.table(swaps=(swap,)).rows
    assert tuple(map(float, (*row[1:4], row[5]))) == lengths
    assert len(row[6]) == chains.BLOCKS


@pytest.mark.slow
@pytest.mark.parametrize("swap", first(1, [1, 2, 6]))
def test_the_rule_of_the_exercise_is_the_best_of_all_plans_of_a_short_chain(swap):
    every = itertools.product((KEEP, SWAP, RECOMPUTE), repeat=5)
    shortest = min(length(list(plan), 2, swap) for plan in every)
    assert shortest == planned.target(Case(5, 2, swap))[0] == length(chains.best(5, 2, swap), 2, swap)


@pytest.mark.slow
@pytest.mark.parametrize("case", one_in(3, CASES), ids=str)
def test_no_plan_that_the_search_finds_beats_the_target(case):
    assert length(chains.best(*case), case.room, case.swap) >= planned.target(case)[0]


def test_a_plan_that_does_not_fit_is_refused_where_it_is_drawn():
    with pytest.raises(ValueError, match="this plan does not fit into memory for 5 blocks"):
        chains.step([KEEP] * 12, room=5)
    with pytest.raises(ValueError, match="'stay' is not a choice"):
        length(["stay"])


# --- pictures -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_choice_is_drawn_or_refused_in_a_sentence():
    ways = pictures.ways()
    for what, room in itertools.product(pictures.plans(12), pictures.ROOMS):
        ways.choose(what=what, room=room)
        assert "capacity" in ways.summary or "does not fit" in ways.summary, (what, room)


@pytest.mark.slow
def test_a_picture_says_its_length_and_never_more_than_its_room():
    for room, swap in itertools.product((3, 5), (0.5, 1, 3)):
        timeline = chains.step([SWAP] * 12, room, swap)
        told = pictures.picture(timeline).summary
        assert told.startswith(f"{timeline.length:g} units")
        held = [float(own.max()) for _, own in on_device(timeline)]
        assert held[0] <= room and f"capacity {room}" in told


def test_gpipe_in_a_room_for_two_is_one_unit_longer():
    assert [one.length for one in pictures.pipelines().values()] == [33, 34]
    assert list(pictures.pipelines().values())[1].peak_live == [2] * 4


# --- real devices -------------------------------------------------------------------------------------------------


def test_what_fits_is_counted_as_the_papers_count():
    gpt = links.GPT
    s, h, a = gpt.context, gpt.width, gpt.heads
    assert links.fits(8, 80e9).block == 8 * s * h * (34 + 5 * a * s / h)
    assert [links.fits(n, 80e9).blocks for n in (1, 8, 16)] == [48, 36, 18]


@pytest.mark.parametrize("name", ["gpt-7.5b", "gpt3-175b"])
def test_the_operations_for_each_byte_follow_from_width_and_context(name):
    gpt = model(name).shape
    assert links.intensity(gpt) == pytest.approx((24 * gpt.width + 4 * gpt.context) / 34)
    needs = links.least_bandwidth(gpt, MACHINES["h100"].peak)
    assert needs == pytest.approx(0.5 * 989.4e12 * 34 / (24 * gpt.width + 4 * gpt.context))


@pytest.mark.parametrize("swap", [3, 4, 5])
def test_the_last_forward_waits_for_three_copies(swap):
    assert tasks.waits(swap) == 1 + 3 * swap


# --- the referee --------------------------------------------------------------------------------------------------


def test_an_arena_has_an_end_and_gives_back_no_more_than_it_has():
    arena = Bytes(10)
    arena.take(10)
    with pytest.raises(MemoryError, match="1 bytes more do not fit: 10 of 10"):
        arena.take(1)
    arena.give(10)
    with pytest.raises(ValueError, match="only 0 are held"):
        arena.give(1)
    assert arena.peak == 10


@pytest.mark.parametrize("case", tasks.ENGINES, ids=str)
def test_a_block_keeps_what_the_cases_say(case):
    import torch
    from torch.autograd.graph import saved_tensors_hooks

    from hybridlab.labs.out_of_core.trial import _made, _weights

    blocks, x, _ = _made(torch, case)
    fixed, seen = {one.untyped_storage()._cdata for one in _weights(blocks)}, []

    def pack(saved):
        seen.extend([saved.nbytes] * (saved.untyped_storage()._cdata not in fixed))
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved):
        blocks[0](x)
    assert sum(seen) == case.kept


# --- on real ranks ------------------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_emulated_copies_take_what_is_predicted(kept):
    ahead, real = on_ranks.emulated(chains.best(6, 3, 2), swap=2, room=3, steps=2)
    assert ahead.length <= real.length < 1.3 * ahead.length and str(ahead.schedule) == str(real.schedule)


@pytest.mark.ranks
def test_a_step_in_half_of_its_memory_never_holds_more(kept):
    real = on_ranks.capped(0.5)
    room = real.room.capacity
    assert all(0.7 * room < peak <= room for peak in real.origin["peak_held"])
    told = on_ranks.held(real)
    assert "never holds more than its limit" in told.summary and max(told.data[1].y) <= room / 1e3


@pytest.mark.ranks
@pytest.mark.long
def test_without_arrows_there_is_no_room(kept):
    assert "MemoryError: rank 0 has no room for 0F" in on_ranks.without_arrows()


def test_the_room_is_found_from_its_name():
    from hybridlab.labs import out_of_core

    assert out_of_core.table is chains.table and out_of_core.ways is pictures.ways
