"""Notebooks 13 and 14: what their real runs count, and what their pictures show."""

import dataclasses
from xml.etree import ElementTree

import pytest

import hybridlab as hl
from hybridlab.labs.interleaved import thin_stages as interleaved
from hybridlab.labs.interleaved.pictures import gain_and_loss, valleys
from hybridlab.labs.zero_bubble import halves as zero_bubble
from hybridlab.labs.zero_bubble.pictures import plane

H1 = hl.schedule("zb_h1", ranks=4, microbatches=8)

# --- real runs ---------------------------------------------------------------------------------------------------


def _simulated(v, latency):
    """What a machine without any overhead would bring home from `interleaved.sweep`."""
    return hl.simulate(interleaved.thinned(v, 4, 4), interleaved.costs(v, latency, interleaved.UNIT))


def test_chunks_share_the_work_of_a_rank():
    for v in (1, 2, 4):
        assert max(_simulated(v, 0).busy) == pytest.approx(12 * interleaved.UNIT)
    for plan in (H1, hl.schedule("zb_v", ranks=4, microbatches=8)):
        assert max(hl.simulate(plan, zero_bubble.in_shares(plan)).busy) == 24


def test_the_sweep_crosses_every_line():
    """What notebook 13 says of its columns, and far enough apart for clocks to see it."""
    orders = {}
    for latency in interleaved.LATENCIES:
        lengths = {v: interleaved.length(v, latency) for v in (1, 2, 4)}
        orders[latency] = sorted(lengths, key=lengths.get)
        ranked = sorted(lengths.values())
        assert all(later > 1.07 * sooner for sooner, later in zip(ranked, ranked[1:]))
    assert orders == {0: [4, 2, 1], 0.5: [2, 1, 4], 1.5: [1, 2, 4]}


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_a_run_with_slow_messages_is_counted_and_no_shorter_than_predicted():
    real = interleaved.run(2, latency=0.5, unit=0.02)
    assert interleaved.sent(real) == 2 * 4 * (2 * 4 - 1) * 2048
    assert interleaved.sent(dataclasses.replace(real, ledger=real.ledger[::2])) < interleaved.sent(real)
    assert real.length >= 0.99 * 0.02 * interleaved.length(2, 0.5) > 0.02 * interleaved.length(2, 0.25)


@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_it_is_the_ranks_own_count_that_is_told():
    plan = hl.schedule("zb_v", ranks=4, microbatches=8)
    real = zero_bubble.run(plan, unit=0.004)
    assert zero_bubble.held(real) == zero_bubble.held(hl.simulate(plan))
    counted = dataclasses.replace(real, origin=real.origin | {"peak_live": [1, 2, 30, 4]})
    assert zero_bubble.held(counted) == 30 / plan.chunks


# --- pictures ---------------------------------------------------------------------------------------------------


def drawn(figure, mark):
    """How often an element stands in the static twin, which must be well formed."""
    return sum(element.tag.endswith(mark) for element in ElementTree.fromstring(figure.twin).iter())


@pytest.mark.long
def test_points_of_a_machine_without_overhead_lie_on_the_lines():
    real = {(v, latency): _simulated(v, latency) for v in (1, 2, 4) for latency in interleaved.LATENCIES}
    figure = gain_and_loss(real)
    lines, points = figure.data[:3], figure.data[3:]
    for line, dots in zip(lines, points):
        assert (line.y[0], line.y[-1]) == (pytest.approx(dots.y[0]), pytest.approx(dots.y[-1]))
        assert (line.mode, dots.mode) == ("lines", "markers") and tuple(dots.x) == interleaved.LATENCIES
    assert drawn(figure, "polyline") == 3 + 3  # lines, and their samples in the legend
    slow = real | {(4, 1.5): hl.simulate(interleaved.thinned(4, 4, 4), interleaved.costs(4, 3, interleaved.UNIT))}
    assert gain_and_loss(slow).data[5].y[-1] > points[2].y[-1]


def test_the_plane_has_two_bubbles_and_a_measured_one():
    plans = [H1, hl.schedule("zb_h2", ranks=4, microbatches=8)]
    predicted = {plan.name: hl.simulate(plan) for plan in plans}
    alone, both = plane(predicted), plane(predicted, predicted)
    assert "2 of them measured" in both.summary
    span, fraction, measured = (trace for trace in both.data if trace.name)
    assert [trace.name for trace in alone.data if trace.name] == [span.name, fraction.name]
    assert span.x == (4, 7) and span.y[1] == 0 < span.y[0] and "zb_h2" in both.twin
    assert fraction.x == (7,) and fraction.y[0] > 0  # a ring only where it is not the span
    assert measured.y == tuple(predicted[plan.name].bubble_fraction for plan in plans)
    joins = [trace for trace in both.data if trace.mode == "lines" and trace not in alone.data]
    assert [(line.x[1], line.y[1]) for line in joins] == list(zip(measured.x, measured.y))  # to its own prediction
    assert [line.x[0] for line in joins] == [4, 7]


def test_valleys_draw_every_latency():
    figure = valleys({0: [3, 2, 1], 0.5: [3, 2, 4]}, (1, 2, 4))
    assert [trace.y for trace in figure.data] == [(3, 2, 1), (3, 2, 4)]
    assert "message 0.5" in figure.twin and drawn(figure, "polyline") == 2 + 2
