"""Small multiples: four timelines on one screen, each on the same scale, with numbers that can be read."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.drawn import EITHER, LATER_SLICES, LATER_STAGES, LEFT, RIGHT, SECOND_COPY, USUAL_WIDTH
from hybridlab.show.timelines.noted import strokes
from hybridlab.show.timelines.notes import fill_work_drain, triangles
from hybridlab.show.timelines.svg import page

FOUR = ("zb_v", "v_min", "chimera", "dualpipe")


def predicted(name, microbatches=8):
    halves = name in ("zb_v", "v_min")  # a stage is half of what a rank owns
    costs = hl.Costs(F=0.5, I=0.5, W=0.5) if halves else hl.Costs(F=1, I=1, W=1)
    return hl.simulate(hl.schedule(name, 4, microbatches), costs)


@pytest.fixture(scope="module")
def four():
    return [predicted(name) for name in FOUR]


def scale(picture):
    return (USUAL_WIDTH - LEFT - RIGHT) / picture.width


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_every_column_has_the_same_axis_and_no_box_leaves_it(four, columns):
    picture = boxes(*four, columns=columns)
    assert len(picture.axes) == columns and picture.axes[0] == 0
    for number, timeline in enumerate(four):
        mine = slice(picture.starts[number], picture.starts[number + 1])
        begin = picture.axes[number % columns]
        assert {picture.lanes[lane].x for lane in picture.lane[mine]} == {begin}
        assert picture.x0[mine].min() == begin
        assert picture.x1[mine].max() - begin == pytest.approx(timeline.length) and timeline.length <= picture.length
    gaps = np.diff(picture.axes) - picture.length
    assert (gaps * scale(picture) > 60).all()  # there the names of lanes stand
    assert scale(picture) * picture.width == pytest.approx(USUAL_WIDTH - LEFT - RIGHT)


def test_pictures_of_one_row_begin_at_one_height_and_rows_do_not_overlap(four):
    picture = boxes(*four, columns=2)
    tops = [[lane.top for lane in picture.lanes if lane.timeline == number] for number in range(4)]
    assert tops[0][0] == tops[1][0] and tops[2][0] == tops[3][0] > max(tops[0] + tops[1]) + 1
    assert [round(one.y, 6) for one in picture.headings][::2] == [round(one.y, 6) for one in picture.headings][1::2]


def test_four_pictures_fit_on_one_screen_and_three_large_ones_do_not(four):
    height = lambda *more, **how: float(ElementTree.fromstring(page(boxes(*more, **how))).get("viewBox").split()[3])
    assert height(*four, columns=1) < 880 and height(*four, columns=2) < 540
    assert height(*four) > 900


def test_numbers_in_boxes_are_readable_below_each_other_and_in_two_columns(four):
    for picture in (boxes(*four, columns=1), boxes(*(predicted(name) for name in FOUR[2:]), columns=2)):
        size, labels = picture.labels(scale(picture), picture.lane_pixels)
        assert size >= 13
        own = np.flatnonzero((picture.kind >= 0) & (picture.x1 > picture.x0))
        assert np.mean([bool(labels[i]) for i in own]) == 1


@pytest.mark.slow
def test_the_numbers_stand_in_the_headings_and_not_below(four):
    picture = boxes(*four, columns=1, titles=("ZB-V", "V-Min", "Chimera", "DualPipe"))
    assert [(one.text, one.told) for one in picture.headings][1::2] == [
        ("V-Min", "29.5 units, idle/total 18.6%, holds at most 4 activations of one stage"),
        ("DualPipe", "26 units, idle/total 7.7%, holds at most 5 activations"),
    ]
    assert boxes(*four, columns=2).headings[1].told == "29.5 units, idle/total 18.6%, holds ≤ 4 of one stage"
    figure = hl.draw(*four, columns=1)
    (caption,) = [note for note in figure.layout.annotations if note.name == "caption"]
    assert caption.text == "" and figure.summary.split("\n") == [one.summary for one in four]
    assert four[0].summary not in "".join(e.text or "" for e in ElementTree.fromstring(figure.twin) if "text" in e.tag)
    assert not any(one.told for one in boxes(*four, columns=1, numbers=False).headings)
    (alone,) = boxes(four[2], columns=1).headings
    assert (alone.text, alone.told) == ("chimera", "30 units, idle/total 20.0%, holds at most 4 activations")


@pytest.mark.slow
def test_chart_and_twin_name_every_lane_of_every_column(four):
    figure = hl.draw(*four, columns=2)
    ranks = [f"rank {rank}" for rank in range(4)]
    assert list(figure.layout.yaxis.ticktext) == ranks * 2
    written = [note.text for note in figure.layout.annotations if note.text.startswith("rank")]
    assert written == ranks * 2
    texts = [e.text for e in ElementTree.fromstring(figure.twin).iter() if e.tag.endswith("text")]
    assert sum(text in ranks for text in texts) == 16 and texts.count("0") >= 2 and set(FOUR) <= set(texts)
    zeros = [v for v, text in zip(figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext) if text == "0"]
    assert zeros == list(boxes(*four, columns=2).axes)


def test_hovering_tells_the_time_of_its_own_axis(four):
    picture = boxes(*four, columns=2)
    first = picture.starts[1]
    assert picture.x0[first] > picture.length
    assert picture.hover(first).endswith("0 to 0.5 units, for 0.5")


def test_notes_stand_in_the_column_of_their_timeline(four):
    notes = [*fill_work_drain(four[1], 0), *triangles(four[1])]
    picture = boxes(*four, columns=2, notes=notes)
    for line in strokes(picture.notes, scale(picture), picture.lane_pixels):
        assert min(x for x, _ in line) >= picture.axes[1] and max(x for x, _ in line) <= picture.width + 1e-9


@pytest.mark.slow
def test_lighter_boxes_are_what_the_legend_says():
    lighter = lambda *names: boxes(*map(predicted, names)).lighter
    assert [lighter("zb_v"), lighter("dualpipe"), lighter("zb_v", "chimera")] == [LATER_STAGES, SECOND_COPY, EITHER]
    copies = hl.sharded(hl.schedule("looped_bfs", ranks=1, microbatches=2, chunks=2, dp=2))
    assert boxes(hl.simulate(copies)).lighter == LATER_STAGES  # its copies are on other ranks
    sliced = hl.simulate(hl.schedule("seq1f1b", ranks=2, microbatches=2, slices=2))
    assert boxes(sliced).lighter == LATER_SLICES and "activations of one slice held" in sliced.summary
    assert lighter("1f1b", "dualpipe") == SECOND_COPY and lighter("1f1b", "zb_v") == LATER_STAGES


@pytest.mark.slow
def test_a_legend_that_fits_no_line_gets_room_over_the_plot(four):
    margins = [hl.draw(*some, columns=1).layout.margin.t for some in (four[:1], four)]
    assert margins[1] > margins[0] and hl.draw(*four, columns=1).layout.legend.entrywidth


def test_titles_are_one_for_each(four):
    with pytest.raises(ValueError, match="give the same number of titles, not 1"):
        hl.draw(*four, titles=["ZB-V"])
    assert [one.text for one in boxes(four[0], titles=["alone"]).headings] == ["alone"]
