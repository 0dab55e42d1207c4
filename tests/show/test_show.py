"""The pictures: every span is a box at its place, every picture has its words and its twin."""

import base64
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import hybridlab as hl
from hybridlab.predict.bytes.live import live
from hybridlab.show import __main__ as gallery
from hybridlab.show.charts.curves import curves
from hybridlab.show.live.quickly import simulated
from hybridlab.show.live.report import report
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.draw import draw
from hybridlab.show.timelines.drawn import LEFT, RIGHT, SECOND_COPY, USUAL_WIDTH
from hybridlab.show.timelines.grid import MANY, grid, png
from hybridlab.show.timelines.notebook import register
from hybridlab.show.timelines.spans import BUBBLE
from hybridlab.show.timelines.svg import animated, svg

SHOW = pathlib.Path(gallery.__file__).parent
PLOTLY, SVG, TEXT = "application/vnd.plotly.v1+json", "image/svg+xml", "text/plain"


def predicted(name="1f1b", ranks=4, microbatches=8, **more):
    return hl.simulate(hl.schedule(name, ranks=ranks, microbatches=microbatches, **more), hl.Costs(F=1, B=2))


def measured(timeline, unit=0.02, stretch=1.0):
    """A stand-in for a run: the prediction in seconds, each action a little late."""
    late = np.arange(timeline.begin.size).reshape(timeline.begin.shape) % 7 * 1000
    begin, end = (
        np.round(c * timeline.tick * unit * stretch * 1e9).astype(np.int64) for c in (timeline.begin, timeline.end)
    )
    columns = {"ready": begin, "begin": np.minimum(begin + late, end), "end": end}
    return dataclasses.replace(timeline, **columns, tick=1e-9, unit="s", origin={"kind": "measured"})


# --- geometry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, more", [("1f1b", {}), ("gpipe", {"dp": 3}), ("naive", {})])
def test_every_span_is_one_box_at_its_place(name, more):
    timeline = predicted(name, ranks=2 if more else 4, **more)
    picture = boxes(timeline)
    work = np.flatnonzero(picture.kind != BUBBLE)
    spans = list(timeline.spans)
    assert len(work) == len(spans)
    for box, span in zip(work, spans):
        assert (picture.x0[box], picture.x1[box]) == (span.begin, span.end)
        assert (picture.rank[box], picture.stage[box]) == (span.rank, span.action.stage)
        assert picture.microbatch[box] == span.action.microbatch
        top = picture.lanes[span.rank].top
        assert (picture.y0[box] == top) == (span.lane == "compute")
    assert [lane.label for lane in picture.lanes] == [f"rank {rank}" for rank in range(timeline.schedule.ranks)]
    assert [lane.top for lane in picture.lanes] == sorted(lane.top for lane in picture.lanes)


def test_the_bubbles_fill_exactly_the_rest():
    timeline = predicted()
    picture = boxes(timeline)
    for rank in range(4):
        mine = np.flatnonzero(picture.rank == rank)
        mine = mine[np.argsort(picture.x0[mine], kind="stable")]
        assert picture.x0[mine[0]] == 0 and picture.x1[mine[-1]] == timeline.length
        assert (picture.x1[mine[:-1]] == picture.x0[mine[1:]]).all()
        idle = mine[picture.kind[mine] == BUBBLE]
        assert (picture.x1[idle] - picture.x0[idle]).sum() == timeline.length - timeline.busy[rank]


def test_messages_lie_half_a_lane_high_under_their_own_lane():
    picture = boxes(hl.simulate(hl.lower(hl.schedule("1f1b", ranks=3, microbatches=4)), hl.Costs(latency=0.5)))
    messages = [i for i in range(len(picture)) if picture.looks[picture.look[i]].kind == "message"]
    assert len(messages) == 2 * 2 * 2 * 4  # to and fro over two edges, seen at both ends, four microbatches
    for i in messages:
        bottom, following = picture.lanes[picture.rank[i]].top + 1, picture.rank[i] + 1
        end = picture.lanes[following].top if following < 3 else picture.height
        assert picture.label(i, wide=True) == ""
        assert bottom < picture.y0[i] < picture.y1[i] <= end and picture.y1[i] - bottom < 0.6


def test_a_fused_pair_shares_its_lane_in_halves():
    rows = "0F0,(0F1;0B0)OVERLAP_F_B,0B1"
    picture = boxes(hl.simulate(hl.Schedule.from_csv(rows), hl.Costs(F=1, B=2)))
    heights = {
        picture.label(i, True): (picture.y0[i], picture.y1[i]) for i in range(len(picture)) if picture.kind[i] != BUBBLE
    }
    assert heights == {"F0": (0, 1), "F1": (0, 0.5), "B0": (0.5, 1), "B1": (0, 1)}


def test_a_measurement_lies_under_its_prediction_in_milliseconds():
    plan = predicted()
    real = measured(plan)
    ideal = hl.simulate(plan.schedule, hl.Costs(F=0.02, B=0.04))
    for order in ((ideal, real), (real, ideal)):
        picture = boxes(*order)
        assert picture.unit == "ms" and not picture.headings
        assert picture.length == pytest.approx(33 * 20)
        for seen in (False, True):
            mine = [picture.looks[n].measured == seen for n in picture.look]
            assert picture.x1[mine].max() == pytest.approx(33 * 20)
        lanes = [(lane.rank, lane.measured) for lane in picture.lanes]
        assert lanes == [(rank, seen) for rank in range(4) for seen in (False, True)]
        half = [lane.label for lane in picture.lanes]
        assert half[:4] == ["rank 0", "measured", "rank 1", "measured"]
    assert any(one.measured for one in picture.looks)


def test_a_prediction_in_toy_units_is_stretched_and_says_so():
    plan = predicted()
    picture = boxes(plan, measured(plan))
    own = picture.x1[[not picture.looks[n].measured for n in picture.look]]
    assert own.max() == pytest.approx(33 * 20, rel=0.01)
    assert re.search(r"1 unit = (19\.9\d|20(\.0\d)?) ms", picture.captions[0])
    assert "1 unit" not in boxes(hl.simulate(plan.schedule, hl.Costs(F=0.03, B=0.05)), measured(plan)).captions[0]


def test_different_programs_stand_below_each_other_on_one_time_axis():
    picture = boxes(predicted("naive"), predicted("gpipe"))
    assert [heading.text for heading in picture.headings] == ["naive", "gpipe"]
    assert picture.length == 96 and len(picture.lanes) == 8
    assert picture.headings[0].y < picture.lanes[0].top < picture.lanes[3].top < picture.headings[1].y


def test_a_later_chunk_is_lighter_and_the_legend_says_so():
    two_chunks = hl.Schedule.from_csv("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0")
    picture = boxes(hl.simulate(two_chunks))
    chunk = {(picture.label(i, True), int(picture.stage[i])): picture.looks[picture.look[i]].chunk for i in range(8)}
    assert chunk["0F", 0] == 0 and chunk["2F", 2] == 1 and chunk["3B", 3] == 1
    assert "lighter: the rank's further stages" in dict(picture.legend)
    assert "lighter: the rank's further stages" not in dict(boxes(predicted()).legend)


def test_boxes_say_their_stage_where_each_rank_has_several_and_one_microbatch():
    one, two = (hl.schedule("looped_bfs", ranks=1, microbatches=m, chunks=2) for m in (1, 2))
    first, second = (boxes(hl.simulate(schedule, hl.Costs(F=1, B=2))) for schedule in (one, two))
    assert [first.label(i, True) for i in range(4)] == ["0F", "1F", "1B", "0B"] and first.label(1, False) == "1"
    assert second.label(0, True) == "F0" and boxes(predicted("naive")).label(0, True) == "F0"


def test_the_second_copy_of_a_model_is_lighter_and_the_legend_says_so():
    for name in ("dualpipe", "chimera"):
        plan = hl.schedule(name, ranks=4, microbatches=8)
        picture = boxes(hl.simulate(plan))
        assert SECOND_COPY in dict(picture.legend)
        lighter = {int(picture.microbatch[i]) for i in range(len(picture)) if picture.looks[picture.look[i]].chunk}
        assert lighter == {m for m, replica in enumerate(plan.replica_of) if replica}
    assert "lighter: the rank's further stages" in dict(boxes(hl.simulate(hl.schedule("zb_v", 4, 8))).legend)


def test_labels_are_in_one_form_and_only_where_they_fit():
    picture = boxes(predicted())
    wide, narrow, none = (picture.labels(px, 34)[1] for px in (40, 20, 3))
    assert {"F0", "B7"} <= set(wide) and {"0", "7"} <= set(narrow) and "F0" not in narrow
    assert set(none) == {""} and set(picture.labels(40, 8)[1]) == {""}
    assert all(not text for text, kind in zip(wide, picture.kind) if kind == BUBBLE)


def test_what_takes_no_time_is_in_no_legend_and_shortens_no_label():
    rows = "0F0,0B0,0REDUCE_GRAD,0OPT"
    for cost, named in ((0, ["forward", "backward"]), (1, ["forward", "backward", "optimizer"])):
        picture = boxes(hl.simulate(hl.Schedule.from_csv(rows), hl.Costs(optimizer=cost)))
        assert [name for name, _ in picture.legend] == named
        assert picture.labels(40, 34)[1][:2] == ["F0", "B0"]


def test_nothing_to_draw_is_refused_in_a_sentence():
    for nothing in ((), (hl.schedule("1f1b", ranks=2, microbatches=2),)):
        with pytest.raises(ValueError, match="there is nothing to draw"):
            boxes(*nothing)


def test_a_pixel_that_one_box_covers_has_its_colour():
    picture = boxes(predicted())
    pixels = grid(
        picture, columns=66, rows=10 * round(10 * picture.height)
    )  # two pixels per unit: nothing falls between
    tall = len(pixels) / picture.height
    for at in range(len(picture)):
        rows = slice(int(np.ceil(picture.y0[at] * tall)), int(picture.y1[at] * tall))
        columns = slice(round(2 * picture.x0[at]), round(2 * picture.x1[at]))
        fill = bytes.fromhex(picture.looks[picture.look[at]].fill[1:])
        assert (pixels[rows, columns] == np.array([*fill, 255])).all() and pixels[rows, columns].size


@pytest.mark.slow
def test_boxes_thinner_than_a_pixel_are_mixed_alike_on_every_rank():
    """In the steady state every rank is a third forward: no rank may look all backward, as where pixels pick a box."""
    picture = boxes(predicted(ranks=8, microbatches=1024))
    middle = slice(int(0.2 * 300), int(0.8 * 300))
    pixels = grid(picture, columns=300, rows=round(8 * picture.height))[:, middle].astype(float)
    lanes = np.unique(pixels.mean(axis=1).round(3), axis=0)
    painted = lanes[lanes[:, 3] > 250, :3]  # between lanes, the paper shows through
    blue, orange = ([*bytes.fromhex(STYLE["kinds"][kind]["fill"][1:])] for kind in "FB")
    assert np.abs(painted - (np.array(blue) + 2 * np.array(orange)) / 3).max() < 8


def test_an_image_holds_its_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 4), np.uint8)
    file = base64.b64decode(png(pixels).partition(",")[2])
    packed = zlib.decompress(file[file.index(b"IDAT") + 4 : file.index(b"IEND") - 8])
    lines = np.frombuffer(packed, np.uint8).reshape(7, 21)
    assert lines[:, 0].tolist() == [0, *[2] * 6]  # 2: what is written is added to the line above
    assert (np.cumsum(lines[:, 1:], axis=0, dtype=np.uint8).reshape(7, 5, 4) == pixels).all()


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b"])
def test_the_curve_of_held_activations_peaks_where_the_timeline_says(name):
    timeline = predicted(name)
    curves_of_ranks = live(timeline)
    assert [int(counts.max()) for _, counts in curves_of_ranks] == timeline.peak_live
    for times, counts in curves_of_ranks:
        assert (np.diff(times) >= 0).all() and counts[-1] == 0 and counts.min() == 0


# --- the static twin -------------------------------------------------------------------------------------------


def parts(text):
    """The elements of an SVG by tag, and the picture's title and description."""
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    return [e for e in root.iter()], root.findtext(f"{space}title"), root.findtext(f"{space}desc")


@pytest.mark.parametrize("make", [svg, animated])
def test_the_twin_is_xml_with_words_and_always_the_same(make):
    text = make(predicted())
    elements, title, summary = parts(text)
    assert summary == predicted().summary and "1f1b" in title
    assert text == make(predicted())
    written = [e.text for e in elements if e.tag.endswith("text")]
    assert {"rank 0", "rank 3", "F0", "B7", "forward"} <= set(written)
    sizes = [float(e.get("font-size")) for e in elements if e.get("font-size")]
    assert min(sizes) >= 13


def test_the_twin_has_a_rectangle_for_every_box():
    timeline = predicted()
    paths = [e.get("d") for e in parts(svg(timeline))[0] if e.tag.endswith("path") and e.get("d").endswith("z")]
    assert sum(d.count("M") for d in paths) == len(boxes(timeline))


def test_a_title_is_escaped_and_several_timelines_have_a_line_each():
    _, title, summary = parts(svg(predicted("naive"), predicted("gpipe"), title="a < b & c"))
    assert title == "a < b & c"
    assert summary.split("\n") == [predicted("naive").summary, predicted("gpipe").summary]


@pytest.mark.long
def test_a_very_large_picture_stays_small():
    large = predicted("1f1b", ranks=32, microbatches=256)
    assert len(boxes(large)) > MANY
    assert len(svg(large)) < 170_000
    parts(svg(large))


def test_motion_stands_still_where_it_is_unwelcome():
    text = animated(predicted())
    assert re.search(r"prefers-reduced-motion:\s*reduce\)\s*\{\.curtain\{animation:none", text)
    assert "<script" not in text and "curtain" not in svg(predicted())


def test_the_pictures_of_the_readme_are_what_the_code_draws():
    docs = SHOW.parent.parent / "docs"
    for name, text in gallery.pictures().items():
        assert (docs / name).read_text(encoding="utf-8") == text, f"run python -m hybridlab.show for {name}"


# --- draw ------------------------------------------------------------------------------------------------------


def test_draw_carries_chart_twin_and_words():
    timeline = predicted()
    figure = draw(timeline, title="four ranks")
    bundle = figure._repr_mimebundle_()
    assert set(bundle) == {PLOTLY, SVG, TEXT}
    assert bundle[TEXT] == figure.summary == timeline.summary
    assert bundle[SVG] == svg(timeline, title="four ranks")
    json.dumps(bundle[PLOTLY])
    assert ">four ranks<" in bundle[PLOTLY]["layout"]["title"]["text"]


def test_draw_has_a_bar_for_every_box_and_no_shape():
    timeline = predicted()
    figure, picture = draw(timeline), boxes(timeline)
    bars = sorted((b, b + x, y - w / 2) for t in figure.data for b, x, y, w in zip(t.base, t.x, t.y, t.width))
    assert np.allclose(bars, sorted(zip(picture.x0, picture.x1, picture.y0)))
    assert not figure.layout.shapes
    assert [t.name for t in figure.data if t.showlegend] == ["forward", "backward", "bubble (idle)"]
    top, bottom = figure.layout.yaxis.range[::-1]
    assert top < bottom and figure.layout.yaxis.ticktext[0] == "rank 0" and figure.layout.yaxis.tickvals[0] == 0.5


@pytest.mark.slow
def test_very_many_boxes_become_an_image():
    many, few = draw(predicted(ranks=16, microbatches=64)), draw(predicted())
    assert len(many.layout.images) == 1 and all(t.x == (None,) for t in many.data)
    assert not few.layout.images and {t.type for t in few.data} == {"bar"}


def test_captions_stand_under_the_plot():
    plan = predicted()
    figure = draw(plan, measured(plan))
    (caption,) = [note for note in figure.layout.annotations if note.name == "caption"]
    assert "predicted: length 33 units" in caption.text and "measured: length" in caption.text.replace("<br>", " ")


@pytest.mark.slow
def test_a_timeline_that_stands_last_in_a_cell_is_drawn():
    shell = InteractiveShell.instance()
    register(shell)
    data, _ = shell.display_formatter.format(predicted())
    assert {PLOTLY, SVG, TEXT} <= set(data)
    data, _ = shell.display_formatter.format(draw(predicted()))
    assert {PLOTLY, SVG, TEXT} <= set(data)


@pytest.mark.slow
def test_importing_the_package_loads_no_chart_library():
    program = (
        "import sys, hybridlab; print([name for name in ('plotly', 'anywidget', 'IPython') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


# --- curves and the report -------------------------------------------------------------------------------------


def test_curves_that_coincide_differ_in_width_dash_and_marker():
    figure = curves({"one device": [3.0, 2.0], "pp=2": [3.0, 2.0], "dp=2": [3.0, 2.5]}, title="losses")
    assert set(figure._repr_mimebundle_()) == {PLOTLY, SVG, TEXT}
    pens = [(t.line.width, t.line.dash, t.marker.symbol, t.line.color) for t in figure.data]
    widths = [pen[0] for pen in pens]
    assert widths == sorted(widths, reverse=True) and all(len(set(column)) == 3 for column in zip(*pens))
    assert figure.summary.endswith("largest gap between two curves 0.5")
    assert parts(figure.twin)[2] == figure.summary


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [1.0, float("nan")]}])
def test_no_curve_is_refused_in_a_sentence(series):
    with pytest.raises(ValueError, match="curve"):
        curves(series)


@pytest.mark.slow
def test_a_report_holds_all_that_it_shows(tmp_path):
    table = [{"parameter": "<head>", "gap": 1.5e-16}, {"parameter": "embed", "gap": 0.0, "bytes": 4096}]
    sections = [("Losses & gaps", "First.\n\nSecond <b>.", [curves({"a": [2, 1]}), table]), ("Time", "", [predicted()])]
    path = report(tmp_path / "check.html", "a < b", sections)
    page = path.read_text(encoding="utf-8")
    body = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", body)
    assert not re.search(r"<script[^>]*\bsrc\b|<link\b|@import", page)
    assert page.count("Plotly.newPlot(") >= 2 and len(re.findall(r"plotly\.js v\d", page)) == 1
    assert body.count("<figcaption>") == 2 and f"<figcaption>{predicted().summary}</figcaption>" in body
    assert "<h1>a &lt; b</h1>" in body and "Losses &amp; gaps" in body and "<p>Second &lt;b&gt;.</p>" in body
    assert "<td>&lt;head&gt;</td>" in body and '<td class="number">4096</td>' in body
    assert body.count('<th scope="col">') == 3 and body.count("<svg ") == 2


def test_a_report_without_figures_carries_no_program(tmp_path):
    path = report(tmp_path / "words.html", "words", [("Only", "words", [])])
    assert path.stat().st_size < 10_000


def test_a_report_says_what_it_cannot_show(tmp_path):
    with pytest.raises(ValueError, match="cannot show a set"):
        report(tmp_path / "x.html", "x", [("x", "", [{1, 2}])])


def test_a_stored_chart_does_not_hold_the_last_bits_of_a_coordinate():
    """log2 and division differ in them between processors, and a stored output is compared as it stands."""
    lowest, highest = 147.94925818103943, 147.94925818103948
    charts = [
        Figure.of([{"type": "scatter", "x": [1], "y": [value]}], {}, "", "")._repr_mimebundle_()[PLOTLY]
        for value in (lowest, highest)
    ]
    assert lowest != highest and charts[0] == charts[1]
    assert charts[0]["data"][0]["x"] == [1] and charts[0]["data"][0]["y"] == [147.949258181]


# --- what a number says, and what a grey print shows ------------------------------------------------------------------


def test_the_slices_of_one_row_have_the_same_numbers_on_every_rank():
    sliced = boxes(predicted("terapipe", microbatches=1, slices=8))
    written = [[sliced.label(i, wide=False) for i in np.flatnonzero(sliced.rank == rank)[:8]] for rank in range(4)]
    assert written == [list("01234567")] * 4
    assert sliced.legend[0][0] == "forward; a number is a slice"


def test_a_kind_has_numbers_in_nearly_all_of_its_boxes_or_in_none():
    many = boxes(predicted("1f1b", microbatches=16))
    _, labels = many.labels((USUAL_WIDTH - LEFT - RIGHT) / many.width, many.lane_pixels)
    letters = [many.looks[number].letter for number in many.look]
    assert not any(label for label, letter in zip(labels, letters) if letter == "F")
    assert all(label for label, letter in zip(labels, letters) if letter == "B")


def test_a_measurement_beside_its_prediction_is_in_the_legend():
    timeline = predicted()
    assert "paler: measured" in dict(boxes(timeline, measured(timeline)).legend)
    assert "paler: measured" not in dict(boxes(timeline).legend)


def test_a_rank_without_actions_is_drawn_as_lost():
    picture = boxes(hl.simulate(hl.rerouted(hl.schedule("1f1b", ranks=2, microbatches=2), dp=2, lost=[1])))
    lost = [picture.looks[number].kind == "lost" for number in picture.look]
    assert picture.rank[lost].tolist() == [1] and picture.label(lost.index(True), wide=False) == "lost"
    assert "lost rank" in dict(picture.legend)
    waits = hl.Schedule.from_csv("0F0,0B0\n1B0,1F0")
    assert "lost rank" not in dict(boxes(simulated(waits, hl.Costs())).legend)


def test_captions_have_the_given_titles():
    pair = predicted("gpipe"), predicted("1f1b")
    assert [one.partition(",")[0] for one in boxes(*pair, titles=["a", "b"]).captions] == ["a", "b"]


def test_the_memory_of_a_dry_run_names_what_the_rank_does_and_leaves_out_what_cannot_be_seen():
    dry = hl.dry_run(hl.Mesh(pp=2), "1f1b", microbatches=8)
    text = draw(dry).twin
    assert all(f">{word}<" in text for word in ("rank 0", "F0", "B0", "sums", "update", "gradients", "939 kB"))
    assert ">in flight<" not in text and ">data<" not in text
    assert {"url(#part-1)", "url(#part-2)", "url(#part-3)"} <= {*re.findall(r"url\(#part-\d\)", text)}
