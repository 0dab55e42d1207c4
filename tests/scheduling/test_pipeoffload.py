"""PipeOffload by its closed forms: its peaks grow with its turns, and its copies are hidden up to k = 1."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import hybridlab as hl
from hybridlab.core.when.action import SWAPS
from hybridlab.predict.bytes.live import on_device
from hybridlab.scheduling.pipeoffload import pipeoffload
from hybridlab.scheduling.validate import validate


def held(p, v, N, h, r):
    """The peak of rank r, in chunks: h chunks are on the host."""
    if not h:
        return (v - 1) * N + min(p - 1 - r, 2 * N) + 1
    return max(2, (v - 1 - h) * N + min(p - r, N + 2))


@settings(max_examples=60)
@given(p=some.integers(1, 8), v=some.integers(1, 4), N=some.integers(1, 10), m=some.integers(1, 25), data=some.data())
def test_the_law_accepts_turns_of_any_length(p, v, N, m, data):
    made = pipeoffload(p, m, v, N, data.draw(some.integers(0, v)))
    validate(made)
    validate(hl.lower(made))


@settings(max_examples=60)
@given(p=some.integers(2, 8), v=some.integers(2, 4), turns=some.integers(2, 4), data=some.data())
def test_its_peaks_are_those_of_the_docstring(p, v, turns, data):
    N, h = data.draw(some.integers(1, p)), data.draw(some.integers(0, v - 1))
    made = pipeoffload(p, turns * N, v, N, h)
    peaks = [held(p, v, N, h, r) for r in range(p)]
    assert hl.simulate(made).peak_live == peaks
    room = hl.Room(max(peaks))  # enough while the copies take their time, too
    step = hl.simulate(validate(made, room), hl.Costs(F=1, B=2, swap=3), room=room)
    assert max(float(most.max()) for _, most in on_device(step)) <= max(peaks)


@pytest.mark.parametrize("p", [4, 8])
def test_shorter_turns_hold_less_and_half_on_the_host_hold_half(p):
    peaks = [max(hl.simulate(pipeoffload(p, 24, 2, N, 1)).peak_live) for N in range(1, p // 2 + 1)]
    assert peaks == [N + 2 for N in range(1, p // 2 + 1)]  # proportional to N, but for two copies in progress
    interleaved = max(hl.simulate(hl.schedule("interleaved", p, 24, chunks=2)).peak_live)
    assert (interleaved, peaks[-1]) == (3 * p - 1, p // 2 + 2)


def steady(made, costs, room=None):
    """The time of one more microbatch, in units of the compute time of a rank for it."""
    v, F, B = made(1).chunks, costs.F, costs.B
    long, short = (hl.simulate(made(m), costs, room=room).length for m in (8, 4))
    return (long - short) / (4 * made(1).microbatches * v * (F + B))


@pytest.mark.parametrize("v", [2, 4])
@pytest.mark.parametrize("p", [2, 3, 4, 6, 8])
def test_copies_are_free_exactly_up_to_k_1(p, v):
    """k = T_copy / (F + B). Beyond it, the half of the turns that are copied take k times as long."""
    N = math.ceil(2 * p / 3)
    for k in (0, 0.5, 1, 1.05, 1.2):
        costs = hl.Costs(F=1, B=2, swap=3 * k)
        assert steady(lambda turns: pipeoffload(p, turns * N, v), costs) == pytest.approx(max(1, (1 + k) / 2))
        if k <= 1 and p > 2:  # in no more memory than the peak
            room = hl.Room(max(held(p, v, N, v // 2, r) for r in range(p)))
            assert steady(lambda turns: pipeoffload(p, turns * N, v), costs, room) == pytest.approx(1)


@pytest.mark.parametrize("p, B", [(6, 2), (6, 1), (8, 1), (9, 2)])
def test_turns_below_the_threshold_make_the_ranks_wait(p, B):
    """N(F + B) ≥ p·max(F, B): the backwards of a turn pass all ranks while a rank has other work."""
    for N in range(1, p + 1):
        costs = hl.Costs(F=1, B=B)
        waits = steady(lambda turns, N=N: pipeoffload(p, turns * N, 2, N, 0), costs) > 1 + 1e-9
        assert waits == (N * (1 + B) < p * max(1, B)), N


def test_typed_short_turns_in_interleaved_stay_refused():
    with pytest.raises(ValueError, match="group=2 does not fit 8 microbatches on 4 ranks"):
        hl.schedule("interleaved", 4, 8, group=2)
    assert len(hl.schedule("pipeoffload", 4, 8, group=2).rows) > 0


def test_only_the_first_chunks_are_copied_and_each_waits_for_its_copies():
    made = hl.schedule("pipeoffload", 4, 6, chunks=4)
    moved = {action.stage for program in made.program for action in program if action.kind in SWAPS}
    assert moved == set(range(8))
    for program in made.program:
        at = {str(action): i for i, action in enumerate(program)}
        for back in (action for action in program if action.kind == "SWAP_IN"):
            out, its = (at[str(back._replace(kind=kind))] for kind in ("SWAP_OUT", "B"))
            assert sum(one.kind == "F" for one in program[out : at[str(back)]]) >= 2  # a long way
            assert sum(one.kind == "B" for one in program[at[str(back)] : its]) == 1


@pytest.mark.parametrize(
    "more, said",
    [
        ({"group": 0}, "group=0 is not a number of microbatches: give 1 or more"),
        ({"offloaded": 3}, "offloaded=3 is not possible with 2 chunks on a rank: give 0 to 2"),
        ({"chunks": 0}, "chunks=0 is not possible"),
    ],
)
def test_impossible_options_are_refused(more, said):
    with pytest.raises(ValueError, match=said):
        hl.schedule("pipeoffload", 4, 8, **more)
