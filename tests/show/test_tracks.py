"""The tracks' picture: every piece is drawn once, on its lane, to scale; messages that overlap lie below each other."""

import re
from xml.etree import ElementTree

import pytest

from hybridlab.predict.time.overlap import Layer, Piece, chain, exposed, length
from hybridlab.show.paper.style import look
from hybridlab.show.timelines.lanes import RIGHT, WIDTH
from hybridlab.show.timelines.tracks import LEFT, Row, beside, in_words, tracks

SVG = "{http://www.w3.org/2000/svg}"
LAYERS = [Layer(*(each / 1e3 for each in (3, 4, 5, 1, 2, 6, 1)))] * 3
PLAIN, UNDER = (chain(LAYERS, overlapped) for overlapped in (False, True))


def boxes(still, fill):
    """(left edge, width) of the boxes with this fill, without the legend's."""
    every = ElementTree.fromstring(still.svg).iter(f"{SVG}rect")
    found = [
        (float(one.get("x")), float(one.get("width")), float(one.get("y"))) for one in every if one.get("fill") == fill
    ]
    return sorted((x, wide) for x, wide, y in found if y > 50)


@pytest.mark.parametrize("kind, name", [("F", "Y"), ("I", "dX"), ("W", "dW")])
def test_every_product_is_a_box_to_scale(kind, name):
    drawn = boxes(tracks(Row("one", UNDER)), look(kind).fill)
    pieces = [one for one in UNDER if one.name.split()[0] == name]
    assert len(drawn) == len(pieces) == 3
    scale = (WIDTH - LEFT - RIGHT) / length(UNDER)
    for (x, wide), one in zip(drawn, sorted(pieces, key=lambda one: one.begin)):
        assert x == pytest.approx(LEFT + scale * one.begin, abs=0.3)
        assert wide == pytest.approx(scale * (one.end - one.begin), abs=0.3)


def test_every_message_is_a_box_and_what_was_measured_is_lighter():
    sent = sum(one.track != "compute" for one in UNDER)
    both = tracks(Row("predicted", UNDER), Row("measured", UNDER, measured=True))
    for measured in (False, True):
        assert len(boxes(both, look("message", measured=measured).fill)) == sent
    assert look("message").fill != look("message", measured=True).fill


def test_rows_share_one_axis():
    long, short = [Piece("compute", "Y 0", 0.0, 0.04)], [Piece("compute", "Y 0", 0.0, 0.01)]
    (_, one), (_, other) = sorted(
        boxes(tracks(Row("a", long), Row("b", short)), look("F").fill), key=lambda box: -box[1]
    )
    assert one == pytest.approx(4 * other, rel=0.01)


def test_messages_at_the_same_time_lie_below_each_other_and_nothing_is_covered():
    pieces = [
        Piece("z", f"RS {i}", begin, end) for i, (begin, end) in enumerate([(0, 5), (1, 3), (2, 4), (3, 6), (6, 7)])
    ]
    lines = {}
    for one, line in beside(pieces):
        assert all(one.begin >= other.end or other.begin >= one.end for other in lines.get(line, []))
        lines.setdefault(line, []).append(one)
    assert len(lines) == 3 and sum(map(len, lines.values())) == len(pieces)


def test_words_say_how_much_has_no_product():
    told = in_words(Row("overlapped", UNDER))
    whole, bare, sent = map(float, re.findall(r"([\d.]+) ms", told))
    assert whole == pytest.approx(1e3 * length(UNDER)) and bare == pytest.approx(1e3 * exposed(UNDER))
    assert sent == pytest.approx(1e3 * sum(one.end - one.begin for one in UNDER if one.track != "compute"))
    assert tracks(Row("plain", PLAIN), Row("overlapped", UNDER)).summary.splitlines()[1] == told


def test_nothing_leaves_the_sheet():
    still = tracks(Row("plain", PLAIN), Row("overlapped", UNDER))
    wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', still.svg).groups())
    for one in ElementTree.fromstring(still.svg).iter(f"{SVG}rect"):
        if one.get("x"):
            assert float(one.get("x")) + float(one.get("width")) <= wide - 20
            assert float(one.get("y")) + float(one.get("height")) <= tall
