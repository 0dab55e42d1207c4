"""The colours are told apart by numbers: by colour-blind readers, and in grey; and each is said once, in the style.

How somebody sees a colour: Machado, Oliveira and Fernandes 2009, *A Physiologically-based Model for Simulation of
Color Vision Deficiency*, IEEE TVCG 15(6), table 1 at severity 1.0, on linear RGB. How far two colours lie apart: ΔE of
CIE 1976, the distance in L*a*b* (white D65); about 2 is the least that an eye notices.
"""

import ast
import base64
import itertools
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

import hybridlab
import hybridlab as hl
from hybridlab.labs.convolution import pictures as convolution
from hybridlab.labs.search import pictures as search
from hybridlab.show.layouts import tiles
from hybridlab.show.live.module import HERE, stylesheet
from hybridlab.show.paper.style import IN_THE_DARK, STYLE, contrast, look
from hybridlab.show.paper.theme import rules
from hybridlab.show.paper.themed_chart import themed
from hybridlab.show.plans import shares
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.spans import BUBBLE
from hybridlab.show.timelines.svg import svg

SEEN = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "grey": [[0.2126, 0.7152, 0.0722]] * 3,
    "all colours": np.eye(3),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
COMPUTE_KINDS = ("F", "B", "I", "W")
LEAST = [("protan", 20), ("deutan", 20), ("tritan", 20), ("grey", 10)]


def lab(colour, seen):
    """CIE L*a*b* of a colour as somebody sees it."""
    share = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.array(SEEN[seen]) @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one, other, seen):
    return float(np.linalg.norm(lab(one, seen) - lab(other, seen)))


def closest(fills, seen):
    return min(difference(a, b, seen) for a, b in itertools.combinations(sorted(fills), 2))


@pytest.mark.parametrize("seen, least", LEAST)
def test_forward_backward_and_weight_half_are_told_apart(seen, least):
    fills = {look(kind).fill for kind in COMPUTE_KINDS}
    assert len(fills) == 3  # B and I are one colour: I is a part of B, and its letter says which
    assert closest(fills, seen) >= least


@pytest.mark.parametrize("seen", SEEN)
def test_no_box_can_be_taken_for_idle_time_or_for_the_page(seen):
    """By its fill, or, where that is dark wine on dark grey, by its stripes."""
    for theme, paper in (("light", "#FFFFFF"), ("dark", "#111111")):
        for one, empty in itertools.product(map(look, COMPUTE_KINDS), (STYLE[theme]["bubble"], paper)):
            inks = [one.fill, one.hatch] if one.hatch else [one.fill]
            assert max(difference(ink, empty, seen) for ink in inks) >= 10, (theme, one.kind, empty)


def test_a_microbatch_is_legible_in_each_tone_and_its_backward_is_not_its_forward():
    for tint in STYLE["tints"]:
        assert all(contrast(one["fill"], one["text"]) >= 4.5 for one in tint.values())
        for seen in SEEN:
            assert difference(tint["forward"]["fill"], tint["backward"]["fill"], seen) >= 20


@pytest.mark.parametrize(
    "parts",
    [
        list(shares.PARTS.values()),
        list(search.LOOKS.values()),
        [shares.Part("has", convolution.HERE), convolution.HALO, shares.Part("makes", convolution.MADE)],
    ],
)
def test_parts_that_some_reader_sees_alike_differ_in_their_stripes(parts):
    for one, other in itertools.combinations(parts, 2):
        apart = min(difference(one.fill, other.fill, seen) for seen in SEEN)
        assert apart >= 15 or (one.stripes, one.outline) != (other.stripes, other.outline), (one.name, other.name)


def test_the_measure_itself_can_tell_a_bad_choice():
    blue, green, orange = "#0072B2", "#009E73", "#E69F00"  # Okabe and Ito's, the obvious three: they fail
    assert difference(blue, green, "tritan") < 20 and closest({blue, green, orange}, "grey") < 20
    assert difference(orange, orange, "protan") == 0


def test_the_measure_is_the_published_one():
    assert difference("#000000", "#FFFFFF", "grey") == pytest.approx(100, abs=0.1)
    assert lab("#FF0000", "all colours") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)  # sRGB red under D65
    assert lab("#0000FF", "all colours") == pytest.approx([32.30, 79.19, -107.86], abs=0.05)
    for seen, matrix in SEEN.items():  # whoever sees grey sees grey: each row sums to one
        assert np.sum(matrix, axis=1) == pytest.approx(1, abs=1e-5), seen


def test_text_on_every_box_is_readable():
    for kind in STYLE["kinds"]:
        for chunk in range(3):
            for seen in (False, True):
                one = look(kind, chunk, seen)
                assert contrast(one.text, one.fill) >= 4.5, one
                assert not one.hatch or contrast(one.text, one.hatch) >= 4.5, one
    assert look("F").text == "#FFFFFF" and look("B").text == look("I").text == "#000000"


@pytest.mark.parametrize("colour", STYLE["curves"])
def test_lines_and_marks_are_legible_on_dark_paper(colour):
    for drawing in (f'<path stroke="{colour}"/>', f'<path fill="{colour}" stroke="{colour}"/>'):
        shown = re.findall(rf"light-dark\({colour}, (#\w+)\)", rules(drawing))
        assert all(contrast(one, STYLE["dark"]["edge"]) >= 4.5 for one in shown or [colour])


def test_a_chart_lightens_lines_and_marks_but_not_the_fill_of_a_bar():
    """The text and the stripes of a box were chosen for its fill: the key of a legend must be like the box."""
    wine, lines = STYLE["kinds"]["W"]["fill"], {"line": {"color": STYLE["kinds"]["W"]["fill"]}}
    data = [{"type": "scatter", "marker": {"color": wine}}, {"type": "bar", "marker": {"color": wine} | lines}]
    curve, bar = (one["marker"] for one in themed({"data": data, "layout": {}})["data"])
    assert bar["color"] == wine and bar["line"] == {"color": curve["color"]}
    assert all(contrast(curve["color"], paper) >= 3 for paper in ("#FFFFFF", STYLE["dark"]["edge"]))
    (labelled,) = themed({"data": [{"type": "scatter", "text": ["one", ""]}], "layout": {}})["data"]
    axis = themed({"data": [], "layout": {"xaxis": {"title": {"text": "p"}}}})["layout"]["xaxis"]
    assert axis["title"]["text"] == '<span style="fill:light-dark(#1A1A1A, #F0F0F0)">p</span>'
    assert labelled["text"] == ['<span style="fill:light-dark(#1A1A1A, #F0F0F0)">one</span>', ""]


def test_the_legend_of_a_timeline_has_the_colours_of_its_boxes_in_the_dark_too():
    halves = hl.simulate(hl.schedule("zb_h1", ranks=2, microbatches=4))
    wine = STYLE["kinds"]["W"]["fill"]
    assert f'width="18" height="15" fill="{wine}"' in svg(halves)
    assert not re.findall(rf'\[fill="{wine}"\][^{{]*{{ fill:', svg(halves))


def test_the_bubbles_of_a_large_picture_follow_the_page():
    """Its boxes are one image, which does not."""
    large = hl.simulate(hl.schedule("gpipe", ranks=8, microbatches=128))
    drawn = svg(large)
    (under,) = re.findall(rf'<path fill="{STYLE["light"]["bubble"]}" d="([^"]*)"', drawn)
    assert under.count("M") == (boxes(large).kind == BUBBLE).sum() > 0
    image = base64.b64decode(re.search('href="data:image/png;base64,([^"]*)"', drawn)[1])
    rows = zlib.decompress(image[image.index(b"IDAT") + 4 : image.index(b"IEND") - 8])
    wide = int.from_bytes(image[16:20])
    first = np.frombuffer(rows, np.uint8)[1 : 1 + 4 * wide].reshape(wide, 4)
    assert set(first[:, 3]) >= {0, 255}, "of rank 0, the bubble is left out"


def test_both_themes_have_readable_words():
    for theme, page in (("light", "#FFFFFF"), ("dark", "#111111")):
        assert contrast(STYLE[theme]["ink"], page) >= 7 and contrast(STYLE[theme]["muted"], page) >= 4.5


# --- said once ----------------------------------------------------------------------------------------------------

PACKAGE = Path(hybridlab.__file__).parent
COLOUR = re.compile(r"(?<![\w&/])#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})(?![\w-])|\b(?:rgb|hsl)a?\(\s*\d")
DASHES = re.compile(r"""dasharray[="': ]+\d|^\d+(?: \d+)+$|setLineDash\(\[\d""")


def said(name: str, text: str):
    """(line, string) of every string of a program, without docstrings; of anything else, its lines."""
    if not name.endswith(".py"):
        yield from enumerate(text.splitlines(), 1)
        return
    tree = ast.parse(text)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def looks_in(name: str, text: str) -> list[str]:
    """Where a text says a colour or a pattern of dashes itself."""
    return [f"{name}:{line}" for line, one in said(name, text) if COLOUR.search(one) or DASHES.search(one)]


@pytest.mark.slow
def test_no_file_but_the_style_says_a_colour_or_a_dash():
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".js", ".css", ".html"}]
    assert len(files) > 500
    assert [found for path in files if path.name != "style.py"
            for found in looks_in(str(path.relative_to(PACKAGE)), path.read_text("utf-8"))] == []  # fmt: skip


@pytest.mark.parametrize(
    "name, text",
    [
        ("one.py", 'pen = "#0072B2"'),
        ("one.py", 'f\'<path stroke="#abc" d="{d}"/>\''),
        ("one.py", 'f\'<path stroke-dasharray="4 3" d="{d}"/>\''),
        ("one.py", 'PENS = {"send": "9 5 2 5"}'),
        ("one.css", "a { color: #fff }"),
        ("one.css", "a { color: rgba(0, 0, 0, .5) }"),
        ("one.js", "pen.setLineDash([4, 3]);"),
        ("one.html", '<path stroke-dasharray="4 3"/>'),
    ],
)
def test_a_colour_or_a_dash_would_be_found(name, text):
    assert looks_in(name, f"\n{text}\n") == [f"{name}:2"]


@pytest.mark.parametrize(
    "name, text",
    [
        ("one.py", '"""The grey #DEDEDE; see #160285."""'),
        ("one.py", 'more = "[the map](41_choosing#the-map)", dashed("limit")'),
        ("one.css", ".hl-fab { color: var(--hl-ink) }"),
        ("one.js", "pen.setLineDash([]);"),
    ],
)
def test_what_only_looks_like_one_is_left_alone(name, text):
    assert looks_in(name, text) == []


def test_style_sheets_have_every_colour_that_they_name():
    css = stylesheet("game.css", "plan_map.css", "shows.css")
    programs = "\n".join(path.read_text("utf-8") for path in HERE.glob("*.js"))
    given = set(re.findall(r"(--hl-[\w-]+)\s*:", css)) | set(re.findall(r'setProperty\("(--hl-[\w-]+)"', programs))
    assert set(re.findall(r"var\((--hl-[\w-]+)\)", css)) == given


def test_further_stages_differ_from_other_kinds_in_grey():
    for kind in ("F", "B", "W"):
        assert look(kind, chunk=1).edge == look(kind).fill  # and an edge tells them apart in any case
    fills = [look("F").fill, look("F", chunk=1).fill, look("I").fill, look("I", chunk=1).fill, look("bubble").fill]
    assert closest(set(fills), "grey") >= 8


def test_the_stripes_of_a_sum_differ_in_grey():
    assert closest(set(tiles.HUES[:4]), "grey") >= 12
    assert min(difference(hue, tiles.GROUND, "grey") for hue in tiles.HUES) >= 15


@pytest.mark.parametrize("kind", STYLE["kinds"])
def test_text_on_a_box_is_legible_in_the_dark(kind):
    """A lost rank had the grey of another picture, which gets darker in the dark, under black letters."""
    one = look(kind)
    grounds = [IN_THE_DARK.get(fill, fill) for fill in (one.fill, one.hatch) if fill]
    if kind not in ("bubble", "arrived") and not one.dotted:  # no text, or that of the page
        assert min(contrast(one.text, ground) for ground in grounds) >= 4.5
