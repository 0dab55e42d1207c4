"""Notebook 13's head in pieces: its costs, its numbers, and a run of it; the exercise is tried in several cases."""

import pytest

import hybridlab as hl
from hybridlab.labs import interleaved
from hybridlab.labs.interleaved.trial import PIECES
from hybridlab.predict.plans.arithmetic import flops


def test_the_head_is_as_long_as_so_many_blocks():
    """Without attention's scores: V·h weights of the head over those of a block, by the planner's FLOPs."""
    shape = hl.Shape(layers=1, width=4096, heads=32, context=1, vocabulary=128_256)
    work = flops(shape, 1)
    assert interleaved.in_blocks(128_256, 4096) == pytest.approx(work.head / (work.total - work.head), rel=1e-3)


def test_all_costs_are_the_same_work():
    last, pieces = interleaved.head_last([4] * 8, 2.6), interleaved.head_in_pieces(8, 4, 2.6)
    assert sum(last.F) == pytest.approx(sum(pieces.F)) and sum(last.B) == pytest.approx(sum(pieces.B))


def test_pieces_are_better_than_moved_blocks_and_moved_blocks_than_none():
    for head in (0.5, 2.6, 10.4):
        on_last, moved, pieces = interleaved.overheads(head)
        assert on_last >= moved > pieces


@pytest.mark.ranks
def test_a_real_run_with_emulated_work_is_as_long_as_predicted():
    schedule = hl.schedule("vocabulary_1f1b", ranks=4, microbatches=6)
    costs = interleaved.head_in_pieces(4, 0.02, 0.04)
    real, predicted = hl.run(schedule, costs=costs, steps=1), hl.simulate(schedule, costs)
    assert real.peak_live == predicted.peak_live
    assert predicted.length * 0.98 < real.length < predicted.length * 1.6


def test_the_exercise_has_cases_that_the_question_does_not_name():
    assert len({case.ranks for case in PIECES}) > 2 and any(case.factor > 700 for case in PIECES)  # e^710 overflows
