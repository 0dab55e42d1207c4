"""Experts' all-to-alls as messages of the law: where they stand, when a pair hides them, and that ranks play them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.when.schedule import Schedule
from hybridlab.modes.parts import dispatch
from hybridlab.predict.time.with_experts import hidden, with_experts
from hybridlab.scheduling.dispatched import PARTS, dispatched, dual_batch
from hybridlab.scheduling.replicate import replicate

NAMES = {"1f1b": 3, "gpipe": 3, "zb_h1": 4, "interleaved": 4, "dualpipe": 8, "dualpipe_v": 8}


def made(name, ranks=2, microbatches=None, overlapped=True):
    return dispatched(hl.schedule(name, ranks, microbatches or NAMES[name]), overlapped)


@pytest.mark.parametrize("overlapped", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_every_stage_becomes_three_and_exchanges_four_times_for_each_microbatch(name, overlapped):
    plain, schedule = hl.schedule(name, 2, NAMES[name]), made(name, overlapped=overlapped)
    lowered = hl.validate(hl.lower(hl.validate(schedule)))
    assert schedule.stages == PARTS * plain.stages and not schedule.fused
    assert [len(program) for program in schedule.computing] == [
        PARTS * sum(len(action.each) for action in program) for program in plain.computing
    ]
    sent = [action for program in lowered.program for action in program if action.kind.startswith("SEND")]
    beside = [action for action in sent if action.edge in schedule.exchanges]
    assert len(beside) == 4 * plain.stages * NAMES[name]
    others = [action for program in hl.lower(plain).program for action in program if action.kind.startswith("SEND")]
    assert len(sent) - len(beside) == len(others)


@pytest.mark.parametrize("name, said", [("1f1b", ""), ("dualpipe_v", ", in turns")])
def test_its_name_says_how_pairs_are_ordered_where_it_has_some(name, said):
    assert made(name).name == f"{name} with experts{said}"
    assert made(name, overlapped=False).name == f"{name} with experts"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_both_engines_and_both_forms_agree(name):
    schedule = made(name)
    costs = with_experts(schedule.stages // PARTS, attention=2, experts=3, exchange=1.5, message=0.5)
    plain = hl.simulate(hl.lower(schedule), costs, engine="plain")
    fast = hl.simulate(hl.lower(schedule), costs, engine="compiled")
    assert np.array_equal(plain.end, fast.end)
    if name in ("1f1b", "gpipe"):  # without messages written out, two of a rank may travel at once
        assert hl.simulate(schedule, costs).length == plain.length


def growth(name, costs, overlapped, ranks=2):
    """What two more microbatches in the middle of a step cost."""
    few, more = (made(name, ranks, microbatches, overlapped) for microbatches in (12, 16))
    lengths = [hl.simulate(hl.lower(one), costs).length for one in (few, more)]
    return lengths[1] - lengths[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dualpipe", "dualpipe_v"])
@pytest.mark.parametrize("attention, experts", [(2, 2), (2, 3), (4, 3)])
@pytest.mark.parametrize("exchange", [0.5, 1, 2, 2.5, 3, 3.5, 5])
def test_a_pair_hides_its_exchanges_exactly_where_the_condition_says_so(name, attention, experts, exchange):
    stages = made(name).stages // PARTS
    free = with_experts(stages, attention, experts, exchange=0)
    costs = with_experts(stages, attention, experts, exchange)
    hides = growth(name, costs, True) == growth(name, free, True)
    assert hides == hidden(attention, experts, exchange)
    assert growth(name, costs, False) > growth(name, free, False)  # one after the other, every exchange shows


@pytest.mark.slow
@given(st.sampled_from(sorted(NAMES)), st.booleans())
def test_files_keep_exchanges(name, overlapped):
    schedule = made(name, overlapped=overlapped)
    for one in (schedule, hl.lower(schedule)):
        again = Schedule.from_dict(one.to_dict())
        assert again.exchanges == one.exchanges and np.array_equal(again.rows, one.rows)
    assert Schedule.from_csv(hl.lower(schedule).to_csv()).exchanges == schedule.exchanges
    without = schedule.to_dict()
    del without["exchanges"]  # as older versions wrote it
    assert Schedule.from_dict(without).exchanges == ()


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: dispatched(hl.lower(hl.schedule("1f1b", 2, 2))), "already has messages, skips, ties or exchanges"),
        (lambda: dispatched(made("1f1b")), "already has messages, skips, ties or exchanges"),
        (lambda: hl.lower(made("1f1b")).to_pytorch(), "cannot express the exchange"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.long
@pytest.mark.ranks
def test_ranks_play_it_and_hide_what_was_foreseen():
    """Emulated work, real all-to-alls along ep: the gain of taking turns is at least half of what is predicted."""
    lengths = {}
    for overlapped in (True, False):
        schedule = made("dualpipe_v", 2, 4, overlapped)
        costs = with_experts(4, attention=0.03, experts=0.03, exchange=0.03)
        real = hl.run(schedule, mesh=hl.Mesh(pp=2, ep=2), costs=costs, steps=1)
        rows = [row for row in real.ledger if row["op"] == "all_to_all"]
        plays, pipelines, stages, microbatches, each = 2, 2, 4, 4, 4
        assert len(rows) == plays * pipelines * stages * microbatches * each
        lengths[overlapped] = real.length, hl.simulate(hl.lower(schedule), costs).length
    gained, foreseen = (lengths[False][i] - lengths[True][i] for i in range(2))
    assert gained > foreseen / 2 > 0


SMALL = hl.Shape(layers=2, width=16, heads=2, context=7, experts=5, chosen=2, inner=24, dropout=0.1)
PLAYED = [  # schedule, microbatches, mesh, blocks, what else is asked
    ("1f1b", 3, hl.Mesh(pp=2, ep=2), 2, {}),
    ("dualpipe_v", 5, hl.Mesh(pp=2, ep=2), 4, {}),
    ("1f1b", 2, hl.Mesh(ep=2), 1, {"shared": 1}),
    ("zb_h1", 4, hl.Mesh(ep=2, pp=2), 2, {"shared": 2, "style": "llama"}),
    ("dualpipe", 8, hl.Mesh(pp=2, ep=2), 2, {"routing": hl.Routing("sigmoid", balance="bias")}),
    ("interleaved", 4, hl.Mesh(pp=2, ep=3), 4, {"batch": 12}),
    ("gpipe", 3, hl.Mesh(pp=3), 3, {}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "name, microbatches, mesh, blocks, more",
    [pytest.param(*one, marks=() if number == 1 else pytest.mark.long) for number, one in enumerate(PLAYED)],
)
def test_a_model_in_parts_trains_as_one_device_does_and_every_byte_is_claimed(
    bench, name, microbatches, mesh, blocks, more
):
    schedule = dispatched(hl.schedule(name, mesh["pp"], microbatches))
    more = dict(more)
    batch = {"batch": more.pop("batch")} if "batch" in more else {}
    report = bench.asked(mesh, schedule=schedule, shape=replace(SMALL, layers=blocks, **more), **batch)
    assert report.ok, report


@pytest.mark.ranks
@pytest.mark.long
def test_copies_of_it_and_adam_too(bench):
    schedule = replicate(dispatched(hl.schedule("1f1b", 2, 2)), hl.Mesh(dp=2, pp=2))
    adam = {"zero": 1, "optimizer": "adamw", "rate": 0.01, "clip": 0.1}
    report = bench.asked(hl.Mesh(dp=2, ep=2, pp=2), schedule=schedule, shape=SMALL, **adam)
    assert report.ok, report


def not_home():
    """What experts made goes back to where other rows came from."""
    dispatch.Way.home = lambda self, y: self.comm.iall_to_all(y, "ep", sent=self.received, received=self.sent)


def last_ones_way():
    """The rows of every microbatch take the way of the latest one."""
    plain = dispatch.Exchanges.__call__

    def call(self, action, tensors):
        if self.ways and not (action.kind == "SEND_F" and action.edge[0] % PARTS == 0):
            latest = list(self.ways.values())[-1]
            self.ways = dict.fromkeys(self.ways, latest)
        return plain(self, action, tensors)

    dispatch.Exchanges.__call__ = call


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", [not_home, pytest.param(last_ones_way, marks=pytest.mark.long)])
def test_a_mutant_is_caught(mutant):
    schedule = dispatched(hl.schedule("1f1b", 2, 3))
    try:
        report = hl.check(hl.Mesh(pp=2, ep=2), schedule=schedule, shape=SMALL, sabotage=mutant)
    except hl.RankError as error:
        assert "ranks do not call the same" in str(error) or "failed" in str(error)  # numbers of rows differ
    else:
        assert not report.ok and report.largest_gap > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh, blocks, more, words",
    [
        (hl.Mesh(pp=2), 2, {"experts": 1, "chosen": 1}, "give a shape with experts=2 or more"),
        (hl.Mesh(pp=2), 2, {"skips": True}, "without skips, parallel blocks or a capacity"),
        (hl.Mesh(pp=2), 3, {}, "give a model of 2 blocks"),
    ],
)
def test_a_model_that_has_none_is_refused_in_a_sentence(mesh, blocks, more, words):
    with pytest.raises(ValueError, match=words):
        hl.check(mesh, schedule=made("1f1b", 2, 3), shape=replace(SMALL, layers=blocks, **more))


def test_the_gathering_dispatch_and_other_models_are_refused():
    for more, words in (({"dispatch": "all_gather"}, "leave out dispatch"), ({"model": "conv"}, "this schedule has")):
        with pytest.raises(ValueError, match=words):
            hl.check(
                hl.Mesh(pp=2, ep=2), schedule=made("1f1b", 2, 3), **({} if "model" in more else {"shape": SMALL}) | more
            )


# ---- two microbatches in turns, without a pipeline


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_batch_in_turns_shows_four_exchanges_of_each_block(blocks):
    """Of the first forward and of the last backward; in order, it shows four for each microbatch."""
    costs = with_experts(blocks, attention=1, experts=1, exchange=1)
    for microbatches in (1, 6, 12):
        turns, order = (hl.simulate(dual_batch(microbatches, blocks, one), costs).length for one in (True, False))
        work = 6 * blocks * microbatches
        assert turns == work + 4 * blocks and order == work + 4 * blocks * microbatches


def test_six_microbatches_take_forty_units_instead_of_sixty():
    """The six microbatches of the notebook: sixty units become forty."""
    costs = hl.Costs(F=(1, 1, 0), B=(2, 2, 0), bytes=(1, 1, 0), bandwidth=1)
    turns, order = (hl.simulate(dual_batch(6, overlapped=one), costs) for one in (True, False))
    assert (order.length, turns.length) == (60, 40)
    assert dual_batch(6).name == "dual_batch with experts, in turns" and dual_batch(6).stages == PARTS


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match=r"dual_batch\(0, blocks=1\) is not possible: give whole"):
        dual_batch(0)


@pytest.mark.ranks
@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ranks_run_a_batch_in_turns_as_one_device_does(bench, blocks):
    shape = hl.Shape(layers=blocks, width=16, heads=2, context=8, experts=4, chosen=2, inner=24)
    report = bench.asked(hl.Mesh(ep=2), schedule=dual_batch(3, blocks), model=shape, batch=6)
    assert report.ok and report.largest_gap < 1e-10, report
