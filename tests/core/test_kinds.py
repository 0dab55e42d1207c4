"""The table of kinds: what its columns say agrees with the law, and with what is built on them."""

from dataclasses import fields, replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.when.action import DOWN, KINDS, MESSAGES, Action
from hybridlab.core.when.lanes import LANES
from hybridlab.core.when.law import KIND, makes, takes

OF_A_STAGE = (
    "summed",
    "weights",
    "whole",
    "weight_gradient*",
    "summed*",
    "squares",
    "norm",
)  # values that belong to no single microbatch


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_a_microbatch_if_one_of_its_values_has(name):
    values = takes(name) + makes(name)
    assert KIND[name].microbatch == any(value.rstrip("+<>") not in OF_A_STAGE for value in values)


def test_every_cost_is_a_field_of_costs_and_every_lane_a_lane():
    lasting = {one.name for one in fields(hl.Costs)} - {"fused", "latency", "handshake", "bandwidth", "bytes", "unit"}
    assert {kind.cost for kind in KIND.values()} - {""} == lasting
    assert {kind.lane for kind in KIND.values()} == set(LANES)


@pytest.mark.parametrize("name", MESSAGES)
def test_activations_go_down_the_edge_and_gradients_up(name):
    sends, carries = KIND[name].lane == "send", makes(name)[0].strip("^~")
    assert (name in DOWN) == (sends == (carries == "activation"))
    begin, end = Action(name, 3, 0).edge
    assert (begin, end) == ((3, 4) if name in DOWN else (2, 3))


def test_costs_that_are_not_given_follow_from_others():
    costs = hl.Costs(F=(1, 2), I=3, W=(4, 5), optimizer=7, post=0.5)
    assert [costs.of(kind, 1) for kind in KINDS] == [2, 8, 3, 5, 2, 2, 7, 0, 0, 0.5, 0.5, 0.5, 0.5, 0, 0, 0, 0, 0]
    given = replace(costs, B=(9, 10), recompute=11, reduce=12, gather=(0, 13))
    assert [given.of(kind, 1) for kind in ("B", "R", "REDUCE_GRAD", "UNSHARD")] == [10, 11, 12, 13]


def test_measured_costs_give_back_what_was_simulated():
    """Also where every forward is a checkpointed one: it costs what a forward costs."""
    costs = hl.Costs(F=3, I=2, W=4, B=5, recompute=6, reduce=7, optimizer=8)
    text = "0C0,0R0,0B0,0F1,0I1,0W1,0REDUCE_GRAD,0OPT"
    for schedule, named in ((text, "F B I W recompute reduce optimizer"), ("0C0,0R0,0B0", "F B recompute")):
        t = hl.simulate(hl.Schedule.from_csv(schedule), costs)
        found = hl.Costs.measured(replace(t, origin={"kind": "measured"}))
        assert {name: getattr(found, name) for name in named.split()} == {
            name: (getattr(costs, name),) for name in named.split()
        }


def test_each_part_of_a_pair_or_the_action_alone():
    pair = Action.parse("(0F7;7B3)OVERLAP_F_B")
    assert list(map(str, pair.each)) == ["0F7", "7B3"]
    alone = Action("F", 2, 0)
    assert alone.each == (alone,)


def test_what_keeps_a_rank_busy_is_read_from_the_table():
    s = hl.lower(hl.schedule("zb_h1", ranks=2, microbatches=2))
    by_name = [KIND[s.action(row).kind].lane == "compute" for row in range(len(s.rows))]
    assert np.array_equal(s.is_compute, by_name)
