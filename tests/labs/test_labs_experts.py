"""Notebook 32: tables and pictures say what the package computes; on ranks a layer of experts is that of one device."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.experts import clinic, loads, on_ranks, pictures, sizes, uneven
from hybridlab.labs.experts.loads import Trained
from hybridlab.labs.experts.on_ranks import On
from hybridlab.labs.experts.tasks import COARSE, routed
from hybridlab.predict.bytes.experts import popular

shares = st.lists(st.floats(0.01, 10), min_size=2, max_size=24)

# --- sizes --------------------------------------------------------------------------------------------------------


def test_the_two_shapes_have_the_published_weights():
    parts = sizes.weights()
    every, met = (sum(column) for column in zip(*parts.values()))
    both_ends = sizes.FIRST.embedding + sizes.FIRST.head
    assert every == sizes.DEEP.parameters + sizes.FIRST.parameters - both_ends
    embedding = sizes.DEEP.embedding  # of which a token meets one row
    assert every == pytest.approx(sizes.PUBLISHED.all, rel=1e-4)
    assert met - embedding == pytest.approx(sizes.PUBLISHED.met, abs=0.5e9)  # printed as 37 billion
    width, heads = 7168, 128  # of attention, arXiv:2412.19437, section 4.2: 1536, 512, 128 and 64
    narrow = width * 1536 + 1536 * heads * 192 + width * (512 + 64) + 512 * heads * 256 + heads * 128 * width
    block = sizes.DEEP.block
    assert block.attention + block.heads + width * sizes.DEEP.latents == narrow


# --- loads --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(shares, st.integers(1, 8))
def test_the_factor_is_between_even_loads_and_everything_on_one_rank(each, ranks):
    ranks = min(ranks, len(each))
    assert 1 - 1e-9 <= uneven.factor(each, ranks) <= ranks + 1e-9
    assert uneven.factor([1.0] * ranks * 3, ranks) == pytest.approx(1)


@pytest.mark.slow
@given(shares, st.integers(0, 500))
def test_whole_numbers_add_up_and_none_is_off_by_one(each, choices):
    each = [one / sum(each) for one in each]
    dealt = uneven.whole_numbers(each, choices)
    assert sum(dealt) == choices
    assert all(abs(one - share * choices) < 1 + 1e-9 for one, share in zip(dealt, each))


@pytest.mark.slow
@given(shares, st.floats(0.1, 3))
def test_a_capacity_drops_what_is_above_it_and_nothing_else(each, capacity):
    each = [one / sum(each) for one in each]
    room = capacity / len(each)
    kept = math.fsum(min(one, room) for one in each)
    assert uneven.dropped(each, capacity) == pytest.approx(1 - kept, abs=1e-9)
    assert (uneven.dropped(each, capacity) > 0) == (max(each) > room)


def test_a_capacity_bounds_the_most_loaded_rank():
    for name, times, lost in uneven.capacities(popular(16, 1, 1), 4, (2, 1.5, 1)):
        assert name == "none" or float(times) <= float(name)
        assert (lost == "0%") == (name == "none")


# --- pictures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", pictures.EXPONENTS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_picture_says_the_factor(exponent, ranks):
    told = pictures.hot_still(exponent, ranks)
    assert f"{uneven.factor(popular(16, 1, float(exponent)), ranks):.2f} times the mean" in told.summary
    assert told.svg.count(f'fill="{pictures.STYLE["kinds"]["F"]["fill"]}"') == 16


def test_the_way_of_the_tokens_keeps_every_token():
    told = pictures.way().svg
    for rank, its in enumerate(pictures.CHOSEN):
        for place, expert in enumerate(its):
            assert told.count(f">{4 * rank + place} → {expert}<") == 4


def test_the_chart_of_the_busiest_expert_ends_with_the_mean_of_its_last_steps():
    told = pictures.busiest({"none": Trained([1.0], [[4, 0]] * 12), "bias": Trained([1.0], [[2, 2]] * 12)})
    assert "nothing 2.0, a bias 1.0" in repr(told)


# --- exercises ----------------------------------------------------------------------------------------------------


def test_the_router_routes_as_by_hand():
    import torch

    from hybridlab.core.what.shape import Shape
    from hybridlab.training.models.experts import Router

    router = Router(Shape(width=4, heads=1, context=4, experts=4, chosen=2))
    router.weight = torch.nn.Parameter(torch.tensor(on_ranks.SCORES, dtype=torch.float64).log().T)
    (chosen,), (weights,) = router(torch.eye(4, dtype=torch.float64)[None])
    for (first, second, weight), its, shares in zip(routed(), chosen.tolist(), weights.tolist()):
        assert its == [first, second] and shares[0] == pytest.approx(weight)


def test_four_times_as_fine_is_as_many_weights_and_as_much_work():
    from dataclasses import replace

    fine = replace(COARSE, experts=63, chosen=7, shared=1, inner=COARSE.inner // 4)
    routers = COARSE.width * (63 - COARSE.experts)
    assert fine.multiplied - routers == COARSE.multiplied
    hidden = lambda shape: shape.mlps * shape.inside
    assert hidden(fine) == hidden(COARSE)


# --- on real ranks ------------------------------------------------------------------------------------------------


def by_typed_moves(comm, case):
    from hybridlab.world.talk import typed

    move = lambda x, received, sent: typed.all_to_all(comm, x, "ep", cut=0, join=0, sent=sent, received=received)
    return on_ranks.beside(comm, move, On(*case))


def moved_twice(comm, case):
    from hybridlab.world.talk import typed

    move = lambda x, received, sent: 2 * typed.all_to_all(comm, x, "ep", cut=0, join=0, sent=sent, received=received)
    return on_ranks.beside(comm, move, On(*case))


@pytest.mark.ranks
def test_a_gap_beside_one_device_is_nothing_or_seen(bench):
    case, pool = tuple(On((5, 3), 5, 2)), bench.pool(Mesh(ep=2))
    assert max(pool.run(by_typed_moves, case)) < 1e-12
    assert min(pool.run(moved_twice, case)) > 1e-3


@pytest.mark.ranks
def test_counted_bytes_are_those_of_the_formulas(bench):
    for row in on_ranks.counted(bench.pool(Mesh(ep=2)), (1, 3), tokens=6, experts=5, width=4).rows:
        for both in row[1:]:
            counted, by_formula = both.split(" / ")
            assert counted == by_formula


@pytest.mark.ranks
def test_counts_are_what_ranks_send_and_get(bench):
    case = On((6, 6), 4, 2)
    rows = [list(map(int, row[1:])) for row in on_ranks.counts(bench.pool(Mesh(ep=2)), case).rows]
    for rank in range(2):
        assert on_ranks.rows_of(case, rank) == (sum(rows[rank]), sum(sum(row[2 * rank : 2 * rank + 2]) for row in rows))


@pytest.mark.ranks
def test_a_hot_expert_makes_a_layer_wait(bench):
    found = on_ranks.stepped(bench.pool(Mesh(ep=2)), (0, 2), choices=64, each=1e-3, times=2)
    for predicted, measured in found.values():
        assert predicted <= measured
    flat, steep = found.values()
    assert steep[0] == pytest.approx(uneven.factor(uneven.whole_numbers(popular(16, 1, 2), 64), 2) * flat[0])


@pytest.mark.ranks
def test_the_same_tokens_are_dropped_on_every_layout():
    rows = on_ranks.drops((1, 2)).rows
    assert [row[2] for row in rows] == ["", "the same"] and rows[0][1] != f"0 of {4 * 8 * 2}"


@pytest.mark.ranks
def test_the_broken_program_is_right_but_for_the_experts():
    for name, one, copies in clinic.symptoms((clinic.On(1, 2), clinic.On(2, 1))):
        assert (one, copies) == (("2.00" if name.startswith("experts") else "1.00"), "1.00")


@pytest.mark.ranks
def test_each_way_to_balance_trains_from_the_same_beginning():
    trained = loads.trained(steps=3)
    assert set(trained) == {"none", "loss", "bias"}
    for one in trained.values():
        assert one.losses[0] == trained["none"].losses[0] and one.loads[0] == trained["none"].loads[0]
        assert {sum(each) for each in one.loads} == {loads.SEQUENCES * loads.SMALL.context * loads.SMALL.chosen}
    assert trained["bias"].loads != trained["none"].loads


def test_the_room_is_found_from_its_name():
    from hybridlab.labs import experts

    assert experts.counted is on_ranks.counted and hl.Mesh is Mesh


@pytest.mark.ranks
def test_loans_shorten_a_step_as_predicted(bench):
    from hybridlab.labs.experts.lending import stepped_with_loans

    found = stepped_with_loans(bench.pool(Mesh(ep=2)), (0, 2), exponent=2, choices=64, each=4e-3, times=2)
    (none, slow, _), (some, fast, _) = found[0], found[2]
    assert none == 0 < some and fast < 0.75 * slow, "few tokens stay on the busiest rank"
    for _, predicted, measured in found.values():
        assert 0.98 * predicted <= measured < 2 * predicted
    assert found[2][2] < 0.95 * found[0][2]
