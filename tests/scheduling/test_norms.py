"""The norm as part of a schedule: the cost of the barrier, and of doing without."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.when.along import lines
from hybridlab.scheduling.norms import in_a_row, posted_before_valid, repeated, with_norm

SPAN_WITHOUT_BUBBLE = {"zb_h2": 1, "zb_v": 2}  # chunks on each rank; a chunk's costs are those of a stage


def period(one, validated, costs=None):
    """The time from one step to the next, after the first ones."""
    lengths = [hl.simulate(in_a_row(with_norm(one, validated), steps), costs).length for steps in (3, 4)]
    return lengths[1] - lengths[0]


def test_the_papers_figure():
    """p = 8, m = 24: 72 units of work on each rank; the fill's 7 come back if every rank waits for the norm."""
    one = hl.schedule("zb_h2", ranks=8, microbatches=24)
    assert [period(one, validated) for validated in (None, "before", "after")] == [72, 79, 72]
    assert 79 / 72 - 1 == pytest.approx((8 - 1) / (3 * 24))


@settings(max_examples=12)
@given(st.sampled_from(sorted(SPAN_WITHOUT_BUBBLE)), st.integers(1, 6), st.integers(0, 7))
def test_the_barrier_costs_the_fill_and_post_validation_nothing(name, p, more):
    """With m ≥ 2p-1 and F = I = W: 3m without norm and with post-validation; (p-1)F more with the barrier."""
    m, v = 2 * p - 1 + more, SPAN_WITHOUT_BUBBLE[name]
    one = hl.schedule(name, ranks=p, microbatches=m)
    assert period(one, None) == period(one, "after") == 3 * v * m
    assert period(one, "before") == 3 * v * m + p - 1


@settings(max_examples=12)
@given(
    st.sampled_from(["gpipe", "1f1b", "zb_h1", "interleaved", "zb_interleaved"]), st.integers(1, 4), st.integers(0, 3)
)
def test_with_idle_time_inside_the_span_the_barrier_costs_nothing_more(name, p, more):
    """These have their fill inside every rank's span: no rank could begin the next step sooner."""
    one = hl.schedule(name, ranks=p, microbatches=2 * p - 1 + more)
    assert period(one, None) == period(one, "before") == hl.simulate(one).length


def of_one_copy(name) -> bool:
    """Whether a schedule can have the norm behind its optimizer step: it flushes, and begins at one end."""
    one = hl.schedule(name, ranks=4, microbatches=8)
    return not one.window and one.replicas == 1


@pytest.mark.parametrize("name", filter(of_one_copy, hl.schedules()))
@pytest.mark.parametrize("p, m", [(2, 3), (4, 4), (4, 8), (3, 12), (8, 8)])
def test_post_validation_costs_nothing(name, p, m):
    """Also with chunks, whose second forwards wait for the norm, and with few microbatches: a rank that has fewer
    forwards before its VALID than the norm's way takes must not wait for those of the next rank."""
    if name == "dualpipe_v":
        m += 2 * p
    one = hl.schedule(name, ranks=p, microbatches=m)
    assert period(one, "after") == period(one, None)


@settings(max_examples=12)
@given(st.integers(2, 6), st.integers(0, 7), st.integers(1, 4))
def test_the_barrier_costs_a_forward_for_each_hop_at_other_costs_too(p, more, forward):
    one = hl.schedule("zb_h2", ranks=p, microbatches=2 * p - 1 + more)
    costs = hl.Costs(F=forward, I=forward, W=forward)
    assert period(one, "before", costs) - period(one, "after", costs) == (p - 1) * forward


@pytest.mark.parametrize("name", hl.schedules())
def test_every_schedule_with_flush_can_have_the_norm(name):
    one = hl.schedule(name, ranks=4, microbatches=8)
    if one.window:
        with pytest.raises(ValueError, match="has messages or optimizer steps already: give a schedule"):
            with_norm(one)
        return
    for validated in (None, "before") + ("after",) * (one.replicas == 1):
        step = with_norm(one, validated)
        for lowered in (hl.lower(step), posted_before_valid(hl.lower(step)), hl.lower(in_a_row(step, 3))):
            hl.validate(lowered)
    if one.replicas > 1:
        with pytest.raises(ValueError, match="has several ranks for a stage in one pipeline"):
            with_norm(one, "after")


@pytest.mark.parametrize("p, m", [(2, 4), (4, 8), (8, 24), (8, 5)])
def test_forwards_before_valid_are_as_many_as_the_total_needs(p, m):
    one = with_norm(hl.schedule("zb_h2", ranks=p, microbatches=m))
    forwards = [len(program) for program in repeated(one).program]
    assert forwards == [max(min(2 * (p - 1 - r), m - 1 - r), 0) for r in range(p)]
    assert {action.kind for program in repeated(one).program for action in program} <= {"F"}


def test_each_copy_of_a_pipeline_sums_its_own_norm():
    one = hl.schedule("zb_h2", ranks=3, microbatches=5, dp=2)
    assert lines(one) == [[0, 1, 2], [3, 4, 5]]
    assert period(one, "before") == 3 * 5 + 2 and period(one, "after") == 3 * 5


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda one: with_norm(one, "never"), "'never' is not known: choose one of before, after, or None"),
        (lambda one: with_norm(with_norm(one)), "has messages or optimizer steps already"),
        (lambda one: with_norm(hl.lower(one)), "has messages or optimizer steps already"),
        (lambda one: in_a_row(one, 2), "has no optimizer step: add one with hl.orders.with_norm"),
        (lambda one: in_a_row(with_norm(one), 0), "steps=0 is not possible: give 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make(hl.schedule("zb_h2", ranks=2, microbatches=3))


def test_a_backward_before_valid_is_refused():
    text = "0F0,0F1,0B0,0VALID,0B1,0REDUCE_GRAD,0NORM,0OPT"
    with pytest.raises(ValueError, match="0B0 comes before 0VALID, which may undo the weights that it uses: put VALID"):
        hl.validate(hl.Schedule.from_csv(text))
    hl.validate(hl.Schedule.from_csv(text.replace("0B0,0VALID", "0VALID,0B0")))
