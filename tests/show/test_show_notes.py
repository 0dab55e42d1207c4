"""Notes on timelines: what they say is the timeline's, they stand where they mean, and every renderer shows them."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.show.paper.sheet import prose_width
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.drawn import LEFT, RIGHT, USUAL_WIDTH
from hybridlab.show.timelines.noted import ASIDE, strokes, texts
from hybridlab.show.timelines.notes import (
    Brace,
    busy_and_idle,
    fill_work_drain,
    in_words,
    lines,
    told,
    triangles,
)
from hybridlab.show.timelines.svg import svg

THREE = ("(p−1)F", "m(F+B)", "(p−1)B")


def predicted(name="gpipe", ranks=4, microbatches=8, F=1.0, B=2.0, **more):
    return hl.simulate(hl.schedule(name, ranks=ranks, microbatches=microbatches, **more), hl.Costs(F=F, B=B))


def in_seconds(timeline, unit=0.02):
    """A stand-in for a run of it."""
    columns = {
        c: np.round(getattr(timeline, c) * timeline.tick * unit * 1e9).astype(np.int64) for c in ("begin", "end")
    }
    columns["ready"] = columns["begin"]
    return replace(timeline, **columns, tick=1e-9, unit="s", origin={"kind": "measured"})


def value(formula, **letters):
    """What a formula such as (p−1)F/v comes to."""
    spelled = re.sub(r"(?<=[\w)])(?=[A-Za-z(])", "*", formula.replace("−", "-"))
    return eval(spelled, {}, letters)


# --- what they say ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("p, m, F, B", [(4, 8, 1, 2), (3, 5, 2, 3), (2, 2, 1, 1)])
def test_the_last_rank_fills_works_and_drains_as_the_formulas_say(name, p, m, F, B):
    notes = fill_work_drain(predicted(name, p, m, F, B), formulas=THREE)
    assert [note.length for note in notes] == [value(note.formula, p=p, m=m, F=F, B=B) for note in notes]
    assert [(note.name, note.rank) for note in notes] == [("fill", p - 1), ("work", p - 1), ("drain", p - 1)]


@pytest.mark.parametrize("p, m, F, B", [(4, 8, 1, 2), (3, 5, 2, 3)])
def test_the_first_rank_of_gpipe_idles_between_forwards_and_backwards(p, m, F, B):
    notes = busy_and_idle(predicted("gpipe", p, m, F, B), 0, ("mF", "(p−1)(F+B)", "mB"))
    assert [note.length for note in notes] == [value(note.formula, p=p, m=m, F=F, B=B) for note in notes]
    assert [note.name for note in notes] == ["work", "idle", "work"]
    assert [note.end for note in notes[:-1]] == [note.begin for note in notes[1:]]


@pytest.mark.parametrize("v", [1, 2, 4])
def test_chunks_shrink_both_triangles(v):
    t = predicted("interleaved" if v > 1 else "1f1b", 4, 8, 1 / v, 2 / v, **({"chunks": v} if v > 1 else {}))
    fill, drain = triangles(t, ("(p−1)F/v", "(p−1)B/v"))
    for note, per_rank in ((fill, 1 / v), (drain, 2 / v)):
        assert note.length == pytest.approx(value(note.formula, p=4, F=1, B=2, v=v))
        assert [end - begin for begin, end in note.slots] == pytest.approx([rank * per_rank for rank in range(4)])


def test_periods_without_length_have_no_note():
    assert [note.name for note in fill_work_drain(predicted(), 0)] == ["work"]
    assert triangles(predicted("gpipe", ranks=1)) == []


def test_formulas_are_one_for_each_period():
    with pytest.raises(ValueError, match=r"rank 0 has 3 periods \(work, idle, work\), not 2"):
        busy_and_idle(predicted(), 0, ("mF", "mB"))


def test_a_note_is_two_lines_and_one_in_words():
    (work,) = fill_work_drain(predicted(), 0, ("", "all", ""))
    assert lines(work) == ("work", "all = 33") and lines(work, numbers=False) == ("work", "all")
    assert in_words(work) == "work all = 33"
    (run,) = fill_work_drain(in_seconds(predicted()), 0)
    assert lines(run) == ("work", "660 ms") and in_words(run, numbers=False) == "work"


def test_words_are_by_timeline_and_rank():
    t = predicted()
    said = told([*fill_work_drain(t, -1), *fill_work_drain(t, 0), *triangles(t)])
    assert said == [
        "gpipe, rank 0: work 33",
        "gpipe, rank 3: fill 3, work 24, drain 6",
        "gpipe, outlined, longest on one rank: fill 3, drain 6",
    ]


# --- where they stand ---------------------------------------------------------------------------------------------


def pixels(picture):
    return (USUAL_WIDTH - LEFT - RIGHT) / picture.length, picture.lane_pixels


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_a_brace_spans_its_stretch_beside_its_lane_and_its_text_lies_on_no_box(ranks):
    t = predicted(ranks=ranks)
    notes = [*busy_and_idle(t, 0), *fill_work_drain(t), *fill_work_drain(t, 1)]
    picture = boxes(t, notes=notes)
    time_px, lane_px = pixels(picture)
    for note, line in zip(notes, strokes(picture.notes, time_px, lane_px)):
        xs, ys = np.array(line).T
        assert xs.min() * time_px == pytest.approx(note.begin * time_px, abs=2)
        assert xs.max() * time_px == pytest.approx(note.end * time_px, abs=2)
        top = picture.lanes[note.rank].top
        edge = (top - ys) if note.rank == 0 else (ys - top - 1)
        assert (edge > 0).all() and (edge * lane_px < 15).all()
    for one in texts(picture.notes, picture.length, time_px, lane_px):
        upper, lower = one.y - one.size / 2 / lane_px, one.y + one.size / 2 / lane_px
        assert not any(lane.top < lower and upper < lane.top + 1 for lane in picture.lanes)
        assert 0 <= upper + 0.05 and lower < picture.height + 0.1 and one.size >= 13


def test_texts_of_one_row_stand_apart_and_inside_the_picture():
    t = predicted(microbatches=16)
    picture = boxes(t, notes=fill_work_drain(t, -1, ("a long formula", "in the middle", "another long one")))
    written = texts(picture.notes, picture.length, *pixels(picture))
    for row in {one.y for one in written}:
        ends = [
            (one.x * pixels(picture)[0], prose_width(one.text, one.size) / 2)
            for one in sorted((w for w in written if w.y == row), key=lambda w: w.x)
        ]
        assert all(a + wide < b - its for (a, wide), (b, its) in zip(ends, ends[1:]))
        assert ends[0][0] >= ends[0][1] - ASIDE and ends[-1][0] + ends[-1][1] <= USUAL_WIDTH - LEFT - RIGHT


def within(corners, x, y):
    """Whether a point lies inside a polygon."""
    crossings = [
        x < x0
        for (x0, y0), (x1, y1) in zip(corners, corners[1:])
        if x0 == x1 and min(y0, y1) < y < max(y0, y1)  # upright sides
    ]
    return sum(crossings) % 2 == 1


@pytest.mark.parametrize("name, more", [("1f1b", {}), ("interleaved", {"chunks": 2})])
def test_an_outline_holds_the_idle_time_of_start_and_end_and_nothing_else(name, more):
    t = predicted(name, **more)
    picture = boxes(t, notes=triangles(t))
    for i in range(len(picture)):
        rank, middle = picture.rank[i], (picture.x0[i] + picture.x1[i]) / 2
        inside = any(within(note.outline, middle, picture.lanes[rank].top + 0.5) for note in picture.notes)
        edge = picture.kind[i] == -1 and (picture.x0[i] == 0 or picture.x1[i] == t.length)
        assert inside == edge


def test_a_note_opens_room_at_its_own_lane_only():
    t = predicted()
    plain, noted = boxes(t), boxes(t, notes=fill_work_drain(t, 1))
    moved = [b.top - a.top for a, b in zip(plain.lanes, noted.lanes)]
    assert moved[:2] == [0, 0] and moved[2:] == pytest.approx([noted.height - plain.height] * 2)
    assert moved[2] > 1
    over = boxes(t, notes=[Brace(t, 2, 0, 1, "here", above=True)])
    assert over.lanes[1].top == plain.lanes[1].top and over.lanes[2].top > plain.lanes[2].top


def test_notes_follow_their_timeline_onto_an_axis_in_milliseconds():
    t = predicted()
    run = in_seconds(t)
    picture = boxes(t, run, notes=[*fill_work_drain(t), *fill_work_drain(run)])
    ends = [edge for note in picture.notes for edge in (note.x0, note.x1)]
    assert ends[:6] == pytest.approx(ends[6:])
    assert picture.notes[3].lines == ("fill", "60 ms") and picture.notes[0].y < picture.notes[3].y


# --- every renderer -----------------------------------------------------------------------------------------------


def test_figure_twin_and_words_show_the_same_notes():
    t = predicted()
    notes = [*fill_work_drain(t, -1, THREE), *triangles(t)]
    figure = hl.draw(t, notes=notes)
    root = ElementTree.fromstring(figure.twin)
    written = [e.text for e in root.iter() if e.tag.endswith("text")]
    annotated = [re.sub("</?b>", "", note.text) for note in figure.layout.annotations if note.name == "note"]
    assert {"fill", "(p−1)F = 3", "m(F+B) = 24", "(p−1)B = 6"} <= set(annotated) <= set(written)
    assert "gpipe, rank 3: fill (p−1)F = 3, work m(F+B) = 24, drain (p−1)B = 6" in figure.summary.split("\n")
    assert sum(e.tag.endswith("polyline") for e in root.iter()) == len(notes) == 5
    lines_of = [trace for trace in figure.data if trace.type == "scatter"]
    assert sum(list(trace.x).count(None) for trace in lines_of) == 5 and not figure.layout.shapes
    assert not any(trace.showlegend for trace in lines_of)


def test_where_numbers_are_asked_for_notes_say_none():
    t = predicted()
    figure = hl.draw(t, notes=fill_work_drain(t, -1, THREE), numbers=False)
    assert figure.summary.split("\n")[1] == "gpipe, rank 3: fill (p−1)F, work m(F+B), drain (p−1)B"
    assert not any("=" in note.text for note in figure.layout.annotations)


def test_without_notes_a_picture_is_as_it_was():
    t = predicted()
    assert svg(t) == hl.draw(t, notes=[]).twin and "polyline" not in svg(t)
    assert boxes(t).told == () and boxes(t).summary == t.summary


def test_a_note_about_what_is_not_drawn_is_refused():
    with pytest.raises(ValueError, match="'fill' refers to a timeline that is not drawn"):
        hl.draw(predicted(), notes=fill_work_drain(predicted("1f1b")))


def test_a_text_that_is_wider_than_its_period_stays_at_its_brace():
    t = predicted(microbatches=16)
    note = fill_work_drain(t, -1, ("(p−1)F/n, long",))[0]
    picture = boxes(t, notes=[note])
    time_px, lane_px = pixels(picture)
    assert {one.x for one in texts(picture.notes, picture.length, time_px, lane_px)} == {(note.begin + note.end) / 2}
