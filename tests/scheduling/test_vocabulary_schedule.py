"""vocabulary_1f1b by its closed forms: its order, its period, its peaks, and the table of head lengths."""

import math

import pytest
from few import one_in
from hypothesis import given, settings
from hypothesis import strategies as some

import hybridlab as hl
from hybridlab.core.when.action import MESSAGES
from hybridlab.core.when.play import Stuck
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling import vocabulary
from hybridlab.scheduling.validate import validate
from hybridlab.scheduling.vocabulary import vocabulary_1f1b

LAYERS, RANKS, ROWS = 32, 8, 32


def costs(p: int, layers: float, head: float) -> hl.Costs:
    """Of L blocks and a head as long as ρ blocks, spread over p ranks; a block's forward is one unit."""
    F = (*[layers / p] * p, *[head / p] * p, 0.0)
    return hl.Costs(F=F, I=F, W=F)


def on_the_last_stage(p: int, layers: list[float], head: float) -> hl.Costs:
    """Of these numbers of blocks of each stage, and the full head on the last one."""
    F = (*layers[:-1], layers[-1] + head)
    return hl.Costs(F=F, I=F, W=F)


def overhead(schedule, costs, layers: float, head: float) -> float:
    """Idle over ideal, where the ideal is work that all ranks share equally."""
    ideal = 3 * len(schedule.replica_of) * (layers + head) / schedule.ranks
    return hl.simulate(schedule, costs).length / ideal - 1


def held(program, stage: int) -> int:
    """The most microbatches of a stage between their forward and the end of their backward."""
    now, most = 0, 0
    for action in (one for one in program if one.stage == stage):
        now += {"F": 1, "B": -1, "W": -1}.get(action.kind, 0)
        most = max(most, now)
    return most


@pytest.mark.parametrize("halves", [False, True])
@settings(max_examples=40)
@given(p=some.integers(1, 9), m=some.integers(1, 24))
def test_its_peaks_are_those_of_the_docstring(halves, p, m):
    schedule = vocabulary_1f1b(p, m, halves)
    validate(schedule)
    hl.lower(schedule)
    blocks = [held(program, r) for r, program in enumerate(schedule.program)]
    assert blocks == [min(p + 2 if halves else p + 2 - r, m) for r in range(p)]
    assert {held(program, p + r) for r, program in enumerate(schedule.program)} <= {1, 2}


@pytest.mark.parametrize("halves", [False, True])
@settings(max_examples=40)
@given(p=some.integers(2, 9), blocks=some.integers(1, 6), tenths=some.integers(1, 40))
def test_a_microbatch_takes_the_mean_of_all_work(halves, p, blocks, tenths):
    """The period is 3(L + ρ)/p once the pipeline is full, for pieces of up to four times a stage's blocks."""
    layers, head = p * blocks, p * blocks * tenths / 10
    lengths = [hl.simulate(vocabulary_1f1b(p, m, halves), costs(p, layers, head)).length for m in (4 * p, 4 * p + 10)]
    assert (lengths[1] - lengths[0]) / 10 == pytest.approx(3 * (layers + head) / p)


@settings(max_examples=40)
@given(p=some.integers(2, 9), blocks=some.integers(1, 6), tenths=some.integers(0, 40))
def test_1f1b_waits_for_its_last_stage(p, blocks, tenths):
    """The period of 1F1B is 3(L/p + ρ), (L + pρ)/(L + ρ) times as long."""
    layers, head = p * blocks, p * blocks * tenths / 10
    last = on_the_last_stage(p, [blocks] * p, head)
    lengths = [hl.simulate(hl.schedule("1f1b", p, m), last).length for m in (4 * p, 4 * p + 10)]
    found, spread = (lengths[1] - lengths[0]) / 10, 3 * (layers + head) / p
    assert found == pytest.approx(3 * (blocks + head)) == pytest.approx(spread * (layers + p * head) / (layers + head))


@pytest.mark.parametrize(
    "head, on_last, moved, spread, halved", [(2.61, 0.730, 0.331, 0.217, 0.089), (10.42, 1.884, 1.154, 0.173, 0.063)]
)
def test_the_table_of_heads(head, on_last, moved, spread, halved):
    """p = 8, m = 32, L = 32: the head on the last stage, blocks moved away from it, pieces on all stages."""
    ways = [[(LAYERS - k) // 7 + (i < (LAYERS - k) % 7) for i in range(7)] + [k] for k in range(5)]
    plain, pieces = hl.schedule("1f1b", RANKS, ROWS), hl.schedule("vocabulary_1f1b", RANKS, ROWS)
    found = [overhead(plain, on_the_last_stage(RANKS, way, head), LAYERS, head) for way in ways]
    halves = hl.schedule("vocabulary_1f1b", RANKS, ROWS, halves=True)
    both = [overhead(one, costs(RANKS, LAYERS, head), LAYERS, head) for one in (pieces, halves)]
    assert [found[-1], min(found), *both] == pytest.approx([on_last, moved, spread, halved], abs=6e-4)


def test_the_bubble_of_1f1b_alone_is_as_long():
    """The idle time of the pieces is not longer than the bubble of equal stages, (p - 1)/m."""
    pieces = hl.schedule("vocabulary_1f1b", RANKS, ROWS)
    assert overhead(pieces, costs(RANKS, LAYERS, 2.61), LAYERS, 2.61) < (RANKS - 1) / ROWS


def test_fewer_forwards_in_flight_take_longer_or_hang(monkeypatch):
    """Two more than in 1F1B are needed: with one more, ranks wait for the head; with none, forever."""
    usual = overhead(vocabulary_1f1b(RANKS, ROWS), costs(RANKS, LAYERS, 2.61), LAYERS, 2.61)
    monkeypatch.setattr(vocabulary, "MORE", 1)
    assert overhead(vocabulary_1f1b(RANKS, ROWS), costs(RANKS, LAYERS, 2.61), LAYERS, 2.61) > usual + 0.05
    monkeypatch.setattr(vocabulary, "MORE", 0)
    with pytest.raises(Stuck, match="8F0 waits for the activation of stage 7"):
        validate(vocabulary_1f1b(RANKS, ROWS))


@pytest.mark.parametrize("p, m", one_in(2, [(1, 2), (2, 3), (4, 8)]))
def test_files_have_the_pieces(p, m):
    schedule = hl.schedule("vocabulary_1f1b", p, m)
    assert Schedule.from_dict(schedule.to_dict()) == schedule and schedule.pieces == p
    older = {name: one for name, one in schedule.to_dict().items() if name != "pieces"}
    assert Schedule.from_dict(older).pieces == 0
    with pytest.raises(ValueError, match="damaged at 'pieces'"):
        Schedule.from_dict(schedule.to_dict() | {"pieces": schedule.stages})


def test_its_stages_are_a_graph_of_pieces_and_a_join():
    schedule = hl.schedule("vocabulary_1f1b", 3, 2, dp=2)
    assert schedule.stages == 7 and schedule.pieces == 3 and schedule.breaks == ((3, 4), (4, 5))
    assert schedule.skips == ((2, 4), (2, 5), (3, 6), (4, 6))
    assert [schedule.place[stage, 0] for stage in range(7)] == [0, 1, 2, 0, 1, 2, 2]
    sent = sum(action.kind in MESSAGES for action in hl.lower(hl.schedule("vocabulary_1f1b", 3, 2)).program[2])
    assert sent == 2 * 2 * (1 + 2 + 2)  # of two microbatches, there and back: its stream, two pieces, their numbers


def test_what_pytorchs_form_lacks_is_refused():
    with pytest.raises(ValueError, match="cannot express the skip"):
        hl.schedule("vocabulary_1f1b", 2, 2).to_pytorch()
    with pytest.raises(ValueError, match="has no option 'slices'"):
        hl.schedule("vocabulary_1f1b", 2, 2, slices=2)
    assert math.isclose(hl.simulate(hl.schedule("vocabulary_1f1b", 1, 1)).length, 9.0)
