"""Messages in pictures: a bar ends with the transfer; a thin line says that what arrived is not yet used."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.picture import boxes_of, picture
from hybridlab.show.timelines.spans import ARRIVED, BUBBLE, RECEIVE_Y, waiting
from hybridlab.show.timelines.twin import twin

NAME = STYLE["kinds"]["arrived"]["name"]


def predicted(name="1f1b", ranks=4, microbatches=8, latency=0.5, **more):
    schedule = hl.lower(hl.schedule(name, ranks=ranks, microbatches=microbatches, **more))
    return hl.simulate(schedule, hl.Costs(F=1, B=2, latency=latency))


def in_seconds(timeline, unit=0.02):
    """A stand-in for a run of it."""
    to = round(timeline.tick * unit * 1e9)
    columns = {name: getattr(timeline, name) * to for name in ("ready", "begin", "end")}
    return replace(timeline, **columns, tick=1e-9, unit="s", origin={"kind": "measured"})


def by_hand(timeline):
    """{(stage, letter, microbatch): (when it came, when it was used)} of messages that wait."""
    spans = {(s.action.stage, s.action.kind, s.action.microbatch): s for s in timeline.spans}
    found = {}
    for (stage, kind, m), span in spans.items():
        if kind.startswith("RECV"):
            taker = spans.get((stage, kind[-1], m)) or spans[stage, "I", m]
            if taker.begin > span.end:
                found[stage, kind, m] = (span.end, taker.begin)
    return found


@pytest.mark.parametrize("name, more", [("zb_h1", {}), ("1f1b", {}), ("interleaved", {"chunks": 2})])
@pytest.mark.parametrize("as_run", [False, True])
def test_a_line_leads_from_every_arrival_to_its_use_and_bars_end_there(name, more, as_run):
    t = predicted(name, **more)
    t = in_seconds(t) if as_run else t
    drawn, wanted, to = boxes(t), by_hand(t), 1e3 if as_run else 1
    lines = np.flatnonzero(drawn.kind == ARRIVED)
    ends = sorted((drawn.x0[i], drawn.x1[i]) for i in lines)
    assert wanted and len(ends) == len(wanted) and np.allclose(ends, to * np.array(sorted(wanted.values())))
    assert sorted((drawn.stage[i], drawn.microbatch[i]) for i in lines) == sorted((s, m) for s, _, m in wanted)
    for i in lines:
        lane = drawn.lanes[drawn.lane[i]]
        inside = lane.top + RECEIVE_Y[0] < drawn.y0[i] < drawn.y1[i] < lane.top + RECEIVE_Y[1]
        assert inside and lane.rank == drawn.rank[i] and drawn.y1[i] - drawn.y0[i] < 0.1
    bars = np.array([one.kind == "message" for one in drawn.looks])[drawn.look]
    assert np.allclose((drawn.x1 - drawn.x0)[bars], 0.5 * 20 if as_run else 0.5)  # as long as a message takes


def test_without_messages_or_where_nothing_waits_there_is_no_line():
    plain = hl.simulate(hl.schedule("1f1b", ranks=4, microbatches=8), hl.Costs(F=1, B=2))
    for t in (plain, predicted("naive", microbatches=1)):
        assert not len(waiting(t)[0]) and NAME not in dict(boxes(t).legend) and boxes(t).summary == t.summary


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb_h1"])
@pytest.mark.parametrize("latency", [0, 0.5])
def test_nothing_of_a_rank_reaches_into_the_lane_of_the_next(name, latency):
    """Messages that take no time are not drawn, but what has arrived and waits is."""
    shown = boxes(predicted(name, latency=latency))
    tops = sorted({lane.top for lane in shown.lanes})
    below = dict(zip(tops, [*tops[1:], shown.height]))
    own = np.array([below[lane.top] for lane in shown.lanes])[shown.lane]
    assert (shown.kind == ARRIVED).any() and (shown.y1 <= own + 1e-9).all()


def test_the_bubbles_stay_what_they_were():
    t = predicted()
    drawn = boxes(t)
    idle = drawn.kind == BUBBLE
    assert (drawn.x1 - drawn.x0)[idle].sum() == pytest.approx(4 * t.length - sum(t.busy))


def test_what_is_too_short_to_be_seen_has_no_line():
    t = predicted()
    came, used = waiting(t)
    end = t.end.copy()
    end[0, came[0]] = used[0] - 1  # it came a tick before it was used
    finer = replace(t, **{c: 1000 * col for c, col in (("ready", t.ready), ("begin", t.begin))}, end=1000 * end)
    assert len(waiting(finer)[0]) == len(came)
    shorter = finer.end.copy()
    shorter[0, came[0]] = 1000 * used[0] - 1
    assert came[0] not in waiting(replace(finer, end=shorter))[0]


@pytest.mark.slow
def test_chart_twin_explorer_and_words_say_it_alike():
    t = predicted()
    run = in_seconds(t)
    figure = hl.draw(t, run)
    assert "1f1b, predicted, arrived, not yet used: 3 messages, at most 8 units" in figure.summary.split("\n")
    assert "1f1b, measured, arrived, not yet used: 3 messages, at most 160 ms" in figure.summary.split("\n")
    named = [trace for trace in figure.data if trace.name == NAME and trace.showlegend is not False]
    assert [(trace.type, trace.mode) for trace in named] == [("scatter", "lines")]
    bars = [trace for trace in figure.data if trace.name == NAME and trace.type == "bar"]
    assert sum(len(trace.x) for trace in bars) == 6 and all("not yet used" in one for one in bars[0].hovertext)
    shown = picture(t, run)
    for svg in (figure.twin, twin(shown)):
        root = ElementTree.fromstring(svg)
        assert NAME in [e.text for e in root.iter() if e.tag.endswith("text")]
        assert "not yet used: 3 messages" in root.findtext("{http://www.w3.org/2000/svg}desc")
    assert boxes_of(shown).summary == shown["summary"] == figure.summary


def test_where_numbers_are_a_question_waits_are_not_told():
    assert hl.draw(predicted(), numbers=False).summary == "1f1b, 4 ranks, 8 microbatches, predicted"


def test_a_bar_as_narrow_as_its_edge_is_not_hidden_by_it():
    t = predicted(latency=0.01)
    green = STYLE["kinds"]["message"]["fill"]
    drawn = boxes(t)
    bars = np.flatnonzero([drawn.looks[number].kind == "message" for number in drawn.look]).tolist()
    assert set(drawn.edges(bars, 25)) == {green} and set(drawn.edges(bars, 2500)) == {STYLE["paper"]}
    assert re.search(f'fill="{green}" stroke="{green}" d="M', hl.draw(t).twin)
