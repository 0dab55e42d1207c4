"""The causes of a gap: each is told from the others where it is the only one, and they add up."""

from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.sums import with_sums

CAUSES = ("compute", "imbalance", "jitter", "sending", "waiting")
MADE = hl.lower(hl.schedule("1f1b", ranks=4, microbatches=6))
EVEN = hl.Costs(F=1, B=2)


def causes(real, predicted=None) -> dict:
    predicted = hl.simulate(MADE, EVEN) if predicted is None else predicted
    gap = predicted.gap(real)
    assert sum(gap[cause] for cause in CAUSES) == pytest.approx(gap["length"])
    assert gap["length"] == real.length - predicted.length
    return {cause: round(gap[cause], 6) for cause in CAUSES if abs(gap[cause]) > 1e-6}


def late(timeline, actions, by):
    """A timeline in which some actions, and all that comes after the first of them, end later."""
    end, begin = timeline.end.copy(), timeline.begin.copy()
    behind = timeline.begin >= timeline.end[0, actions].min()
    end[0, actions] += by
    end[behind] += by
    begin[behind] += by
    return replace(timeline, begin=begin, end=end)


def test_a_prediction_that_comes_true_has_no_gap():
    assert causes(hl.simulate(MADE, EVEN)) == {}


def test_actions_that_all_take_longer_are_compute():
    assert causes(hl.simulate(MADE, hl.Costs(F=2, B=4))) == {"compute": 27}
    assert causes(hl.simulate(MADE, hl.Costs(F=1, B=3))) == {"compute": 9}


def test_one_stage_that_takes_longer_is_an_imbalance_beside_the_mean():
    real = hl.simulate(MADE, hl.Costs(F=(1, 1, 3, 1), B=(2, 2, 6, 2)))
    mean = hl.simulate(MADE, hl.Costs(F=1.5, B=3)).length - hl.simulate(MADE, EVEN).length
    assert causes(real) == {"compute": mean, "imbalance": real.length - hl.simulate(MADE, EVEN).length - mean}


def test_a_single_action_that_takes_longer_is_jitter_beside_its_share_of_the_mean():
    plain = hl.simulate(MADE, EVEN)
    last = int(plain.end[0].argmax())  # the last backward of stage 0: all others of the 24 are as they were
    found = causes(late(plain, [last], by=plain.end[0].max() // 9))
    assert set(found) == {"compute", "imbalance", "jitter"} and sum(found.values()) == 3
    assert found["jitter"] == 3 - 3 * 0.5  # the mean of its stage grows by half, three times on the path


def test_messages_that_take_longer_are_sending():
    for latency in (0.25, 1):
        real = hl.simulate(MADE, hl.Costs(F=1, B=2, latency=latency))
        assert causes(real) == {"sending": real.length - hl.simulate(MADE, EVEN).length}


def test_sums_that_take_longer_are_sending_too():
    copies = replicate(hl.schedule("1f1b", ranks=2, microbatches=2), hl.Mesh(dp=2, pp=2))
    made = hl.lower(with_sums(copies))
    quick, slow = (hl.simulate(made, hl.Costs(F=1, B=2, reduce=reduce)) for reduce in (0, 3))
    assert causes(slow, quick) == {"sending": 3}


def test_updates_behind_a_sum_are_on_the_path():
    text = "0F0,0B0,0REDUCE_GRAD,0OPT\n1F0,1B0,1REDUCE_GRAD,1OPT"
    apart = hl.Schedule.from_csv(text)
    made = hl.lower(apart.with_programs(list(apart.program), tied=((0, 1),)))
    quick, slow = (hl.simulate(made, hl.Costs(F=1, B=2, reduce=1, optimizer=optimizer)) for optimizer in (1, 3))
    assert quick.length == 8 and causes(slow, quick) == {"compute": 2}


def test_ranks_that_could_go_on_and_do_not_are_waiting():
    plain = hl.simulate(MADE, EVEN)
    later = replace(plain, begin=plain.begin + 5, end=plain.end + 5)
    assert causes(later) == {"waiting": 5 * plain.tick}


def test_a_fused_pair_is_no_kind_of_its_parts():
    """Pairs take less than their parts here, and every kind takes what was predicted of it: there is no gap."""
    made = hl.lower(hl.schedule("dualpipe", ranks=4, microbatches=8))
    costs = hl.Costs(F=1, B=2, fused=2.5)
    assert causes(hl.simulate(made, costs), hl.simulate(made, costs)) == {}
    slower = hl.simulate(made, hl.Costs(F=1, B=2, fused=2.75))
    quick = hl.simulate(made, costs)
    assert causes(slower, quick) == {"compute": slower.length - quick.length}


def test_the_efficiency_of_a_run_is_what_its_program_explains():
    plain = hl.simulate(MADE, EVEN)
    assert plain.efficiency == pytest.approx(1)
    assert replace(plain, begin=plain.begin + 3, end=plain.end + 3).efficiency == pytest.approx(27 / 30)
