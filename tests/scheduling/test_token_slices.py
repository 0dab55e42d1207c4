"""Token slices: closed forms of idle time and memory, the one order that the law permits, and lengths of equal cost."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.plans import slicing
from hybridlab.predict.plans.slicing import lengths, shares, with_slices
from hybridlab.scheduling.chimera import chimera
from hybridlab.scheduling.token_slices import on_slices, seq1f1b, terapipe
from hybridlab.scheduling.validate import validate

SIZES = {"p": st.integers(1, 6), "rows": st.integers(1, 6), "n": st.integers(1, 6)}
F, B = 1, 2


@settings(max_examples=60)
@given(**SIZES)
def test_idle_time_and_peak_are_those_of_the_closed_forms(p, rows, n):
    for make, peak in ((seq1f1b, lambda r: min(n + p - 1 - r, n * rows)), (terapipe, lambda r: n * rows)):
        found = hl.simulate(hl.schedule(make.__name__, p, rows, slices=n))
        assert found.length - n * rows * (F + B) == (p - 1) * (F + B)
        assert found.bubble_overhead == pytest.approx((p - 1) / (n * rows))
        assert found.bubble_fraction == pytest.approx((p - 1) / (n * rows + p - 1))
        assert list(found.peak_live) == [peak(r) for r in range(p)]


@settings(max_examples=60)
@given(**SIZES, v=st.integers(1, 3))
def test_chunks_and_halves_shorten_the_idle_time_as_they_do_without_slices(p, rows, n, v):
    found = hl.simulate(hl.schedule("seq1f1b", p, rows, slices=n, chunks=v))
    if n * rows >= p:
        assert found.length - n * rows * v * (F + B) == (p - 1) * (F + B)
    halves = hl.schedule("seq1f1b", p, rows, slices=n, chunks=v, halves=True)
    found = hl.simulate(halves, hl.Costs(F=1, I=1, W=1))
    if n * (rows - 1) >= p - 1:  # a row comes back from its last slice: the halves of one row alone cannot fill
        assert found.length - n * rows * v * 3 == p - 1


@pytest.mark.parametrize("p, rows", [(1, 3), (4, 2), (3, 5)])
def test_one_slice_is_1f1b_and_gpipe(p, rows):
    for made, same in ((seq1f1b(p, rows, 1), "1f1b"), (terapipe(p, rows, 1), "gpipe")):
        plain = hl.schedule(same, p, rows)
        assert np.array_equal(made.rows, plain.rows) and made.edges == plain.edges and made.slices == 1


def first_in_first_out(schedule):
    """The same with the backwards of each row from its first slice to its last."""
    n, turned = schedule.slices, lambda s: s - s % schedule.slices + schedule.slices - 1 - s % schedule.slices
    assert n > 1
    return schedule.with_programs(
        [[a._replace(stage=turned(a.stage)) if a.kind in "BIW" else a for a in one] for one in schedule.program]
    )


@settings(max_examples=40)
@given(p=st.integers(1, 4), rows=st.integers(1, 4), n=st.integers(2, 4), halves=st.booleans())
def test_the_law_refuses_backwards_from_the_first_slice_on(p, rows, n, halves):
    with pytest.raises(ValueError, match=r"0[BI]0 waits for the gradient of stage 1 for microbatch 0"):
        validate(first_in_first_out(seq1f1b(p, rows, n, halves=halves)))
    with pytest.raises(ValueError, match="0B0 waits for the gradient of stage 1 for microbatch 0"):
        validate(first_in_first_out(terapipe(p, rows, n)))


def test_slices_typed_as_microbatches_hide_that_mistake():
    """The reason why slices are stages: as microbatches, first in, first out is as valid and as long."""
    right, wrong = "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1"
    assert hl.simulate(validate(Schedule.from_csv(right))).length == hl.simulate(Schedule.from_csv(wrong)).length
    by_slices = lambda text: re.sub(r"(\d)([FB])(\d)", lambda m: f"{2 * int(m[1]) + int(m[3])}{m[2]}0", text)
    validate(on_slices(Schedule.from_csv(by_slices(right)), 2))
    with pytest.raises(ValueError, match="waits for the gradient of stage 1"):
        validate(on_slices(Schedule.from_csv(by_slices(wrong)), 2))


@settings(max_examples=40)
@given(p=st.integers(2, 5), rows=st.integers(2, 5), n=st.integers(2, 4))
def test_the_law_refuses_a_warm_up_without_the_slices(p, rows, n):
    """The last rank needs the whole row before its first backward."""
    short = Schedule.from_csv("\n".join(",".join(map(str, one)) for one in shorter(seq1f1b(p, rows, n))))
    with pytest.raises(ValueError, match="waits"):
        validate(on_slices(short, n))


def shorter(schedule):
    """The programs with n - 1 forwards fewer before the first backward."""
    n, programs = schedule.slices, []
    for program in schedule.program:
        first = next(i for i, action in enumerate(program) if action.kind == "B")
        warm, rest = program[: first - n + 1], program[first - n + 1 :]
        forwards, backwards = ([a for a in rest if a.kind == kind] for kind in "FB")
        steady = [a for both in zip(backwards, forwards) for a in both]
        programs.append([*warm, *steady, *backwards[len(forwards) :]])
    return programs


@pytest.mark.parametrize("more", [{}, {"chunks": 2}, {"halves": True}])
def test_files_keep_slices(more):
    schedule = hl.schedule("seq1f1b", 2, 3, slices=3, dp=2, **more)
    assert Schedule.from_dict(schedule.to_dict()) == schedule and schedule.slices == 3
    saved = schedule.to_dict()
    del saved["slices"]  # as older versions wrote it
    assert Schedule.from_dict(saved).slices == 1
    with pytest.raises(ValueError, match="damaged at 'slices'"):
        Schedule.from_dict(schedule.to_dict() | {"slices": 5})


def test_messages_are_those_of_whole_rows_n_times_as_many():
    plain, sliced = (
        hl.lower(hl.schedule(*one, 4, 3, **more)) for one, more in ((("1f1b",), {}), (("seq1f1b",), {"slices": 5}))
    )
    count = lambda one: sum(action.kind.startswith("SEND") for program in one.program for action in program)
    assert count(sliced) == 5 * count(plain)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: hl.schedule("seq1f1b", 2, 2, slices=0), "slices=0 is invalid: it must be a number of slices"),
        (lambda: seq1f1b(2, 2, 2.5), "slices=2.5 is invalid: it must be a number of slices"),
        (lambda: terapipe(2, 2, True), "slices=True is invalid"),
        (lambda: hl.schedule("1f1b", 2, 2, slices=2), "schedule '1f1b' has no option 'slices'"),
        (lambda: hl.schedule("chimera", 2, 2, slices=2), "schedule 'chimera' has no option 'slices'"),
        (lambda: on_slices(chimera(2, 2), 2), "slices=2 is invalid: chimera runs in two directions"),
        (lambda: on_slices(hl.lower(hl.schedule("1f1b", 2, 2)), 2), "1f1b already has messages or arrows"),
        (lambda: on_slices(seq1f1b(2, 2, 2), 2), "seq1f1b already has messages or arrows"),
        (lambda: on_slices(hl.schedule("1f1b", 3, 2), 2), "1f1b has 3 stages, which is not a multiple of 2"),
        (lambda: hl.schedule("seq1f1b", 2, 2, slices=2).to_pytorch(), "cannot express the skip"),
        (lambda: lengths(hl.Shape(), 33), "a row of 32 tokens leaves a slice empty"),
        (lambda: lengths(hl.Shape(), 2, "time"), "slicing='time' is invalid: it is not a known way"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# ---- lengths of equal cost

LARGE = hl.Shape(layers=1, width=4096, heads=32, context=32768)


@given(st.integers(1, 8), st.sampled_from([64, 1024, 8192]), st.sampled_from([0, 4, 8]), st.booleans())
def test_slices_of_equal_cost_cost_the_same_but_for_rounding(n, context, heads, long):
    shape = hl.Shape(width=64, heads=heads, context=context * (4 if long else 1))
    found = lengths(shape, n, "cost")
    assert sum(found) == shape.context
    assert heads == 0 or context == 64 or list(found) == sorted(found, reverse=True)
    alpha, beta = slicing.per_token(shape)
    dearest = (alpha + beta * shape.context) / (alpha * shape.context + beta * shape.context**2 / 2)  # the last token
    assert all(abs(share - 1 / n) <= dearest for share in shares(shape, found))
    assert sum(shares(shape, found)) == pytest.approx(1)


@pytest.mark.parametrize(
    "tokens, equal, slices",
    [(8192, 0.198, (2283, 2104, 1961, 1844)), (32768, 0.384, (11132, 8407, 7044, 6185)),
     (131072, 0.622, (56106, 30741, 23931, 20294))],
)  # fmt: skip
def test_equal_lengths_lose_with_long_rows_what_equal_cost_keeps(tokens, equal, slices):
    """4 ranks, 8 rows, a width of 4,096."""
    shape = hl.Shape(layers=1, width=4096, heads=32, context=tokens)
    schedule = hl.schedule("seq1f1b", 4, 8, slices=4)
    assert lengths(shape, 4, "cost") == slices
    overhead = lambda how: hl.simulate(schedule, with_slices(4, shares(shape, lengths(shape, 4, how)))).length / 24 - 1
    assert overhead("equal") == pytest.approx(equal, abs=5e-4)
    assert overhead("cost") == pytest.approx(3 / 32, abs=5e-4)
    assert hl.simulate(hl.schedule("1f1b", 4, 8)).bubble_overhead == 3 / 8


def test_with_a_latency_the_best_number_of_slices_is_finite():
    found = {}
    for n in (1, 2, 4, 8, 16):
        schedule = hl.lower(hl.schedule("seq1f1b", 4, 8, slices=n))
        costs = with_slices(4, [1 / n] * n, latency=0.05)
        found[n] = round(100 * (hl.simulate(schedule, costs).length / 24 - 1), 1)
    assert found == {1: 40.8, 2: 24.2, 4: 19.4, 8: 23.4, 16: 38.6}
