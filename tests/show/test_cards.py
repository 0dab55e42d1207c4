"""Strips and cards: marks stand where the numbers are, and a reader without the drawing gets the same sentence."""

import html
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nbval.plugin import get_sanitize_patterns

from hybridlab import labs
from hybridlab.labs.by_machine import Machines
from hybridlab.show.charts import strip
from hybridlab.show.charts.card import Head, Line, card
from hybridlab.show.paper.style import STYLE, contrast, mix

HOUSE = Path(__file__).parents[2]
SHEET = HOUSE / "hybridlab/show/charts/card.css"
NBVAL = Path(__file__).parents[1] / "nbval.cfg"
MIDDLE, LEFT, RIGHT = strip.WIDE / 2, strip.INSET, strip.WIDE - strip.INSET
LINE = re.compile(r'<div class="hl-line".*?</div>')


def marks(drawn: str, kind: str) -> list[float]:
    """The x of each mark of a kind on a strip."""
    shape, pen = (re.escape(part) for part in strip.PENS[kind])
    return [float(x) for x in re.findall(rf'd="{shape}" {pen} transform="translate\(([\d.]+) ', drawn)]


def compared(text: str) -> str:
    """A text as nbval compares it."""
    for pattern, replacement in get_sanitize_patterns(NBVAL.read_text(encoding="utf-8")):
        text = re.sub(pattern, replacement, text)
    return text


def words(shown: str) -> list[str]:
    """The sentences of a card's lines, as a screen reader has them."""
    return [html.unescape(re.sub("<svg.*?</svg>|<[^>]*>", "", line)) for line in LINE.findall(shown)]


# --- where the marks are ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("off, share", [(0, 0), (0.1, 0.5), (-0.05, -0.25), (0.2, 1)])
def test_a_dot_is_as_far_from_the_prediction_as_the_measurement(off, share):
    drawn = strip.within(off, 0.1, yours=-off)
    assert marks(drawn, "predicted") == [MIDDLE]
    assert marks(drawn, "measured") == [pytest.approx(MIDDLE + share * (RIGHT - MIDDLE))]
    assert marks(drawn, "yours") == [pytest.approx(MIDDLE - share * (RIGHT - MIDDLE))]


def test_the_band_ends_at_the_tolerance():
    low, high = re.search(r'd="M([\d.]+) 4H([\d.]+)V24', strip.within(0, 0.1)).groups()
    assert marks(strip.within(-0.1, 0.1), "measured") == [float(low)]
    assert marks(strip.within(0.1, 0.1), "measured") == [float(high)]


@pytest.mark.parametrize("off, way, end", [(0.21, 1, RIGHT), (-9, -1, LEFT)])
def test_what_is_far_off_is_an_arrow_at_the_end(off, way, end):
    drawn = strip.within(off, 0.1)
    assert marks(drawn, "measured") == [] and strip.RING in drawn
    assert f'd="{strip.FACING[way]}" {strip.PENS["measured"][1]} transform="translate({end} ' in drawn


def test_ratios_are_on_a_logarithmic_scale():
    at = [marks(strip.ratio(times), "measured")[0] - MIDDLE for times in (0.5, 1, 2, 4)]
    assert at == [pytest.approx(step * (RIGHT - MIDDLE) / 2, abs=0.06) for step in (-1, 0, 1, 2)]
    assert strip.FACING[-1] in strip.ratio(0) and strip.FACING[1] in strip.ratio(4.1)


def test_values_are_on_a_scale_from_zero():
    drawn = strip.on_scale([("predicted", 1.0), ("measured", 1.5), ("other 0", 2.0)], "{:g} s".format)
    at = [marks(drawn, kind)[0] for kind in ("predicted", "measured", "other 0")]
    assert at == [pytest.approx(LEFT + share * (RIGHT - LEFT)) for share in (0.5, 0.75, 1)]
    assert re.findall(">([^<>]+)</text>", drawn) == ["0 s", "2 s"]


def test_values_far_apart_are_on_a_logarithmic_scale():
    drawn = strip.on_scale([("yours", 10), ("measured", 1000)], "{:g}".format)
    assert re.findall(">([^<>]+)</text>", drawn) == ["10", "100", "1000"]
    (yours,), (right,) = marks(drawn, "yours"), marks(drawn, "measured")
    ticks = [float(x) for x in re.findall(r'<text x="([\d.]+)"', drawn)]
    assert [yours, (yours + right) / 2, right] == [pytest.approx(x, abs=0.1) for x in ticks]


def test_a_result_without_end_is_an_arrow():
    drawn = strip.on_scale([("yours", 2), ("measured", math.inf)], "{:g}".format)
    assert marks(drawn, "measured") == [] and strip.FACING[1] in drawn and marks(drawn, "yours")[0] < RIGHT - 20


# --- what is seen -----------------------------------------------------------------------------------------------


STRIPS = [
    strip.within(0.3, 0.1, 9), strip.equal(0), strip.equal(-2), strip.ratio(3, 1), strip.hidden(),
    strip.on_scale([("predicted", 1), ("other 2", 80)], "{:g} s".format, measured=True), strip.sign("tolerance"),
]  # fmt: skip


@pytest.mark.parametrize("drawn", STRIPS)
def test_a_strip_has_the_ink_of_its_page_and_is_passed_over_by_screen_readers(drawn):
    root = ElementTree.fromstring(drawn)
    inks = {one.get(name) for one in root.iter() for name in ("fill", "stroke")}
    assert inks <= {None, "none", "currentColor", STYLE["error"]}
    assert root.get("aria-hidden") == "true"
    sizes = [float(one.get("font-size")) for one in root.iter() if one.tag.endswith("text")]
    assert all(size >= STYLE["pixels"]["smallest"] for size in sizes)


@pytest.mark.parametrize("ground, ink", [("#FFFFFF", STYLE["light"]["ink"]), ("#111111", STYLE["dark"]["ink"])])
def test_the_coloured_marks_are_seen_on_light_and_on_dark(ground, ink):
    blue = re.search("#[0-9A-F]{6}", strip.BLUE)[0]
    assert "80%" in strip.BLUE
    assert min(contrast(mix(blue, ink, 0.2), ground), contrast(STYLE["error"], ground)) >= 3


def test_kinds_of_marks_differ_in_shape():
    shapes = [shape for shape, _ in strip.PENS.values()]
    assert len(set(shapes)) == len(shapes)


# --- a card in words --------------------------------------------------------------------------------------------


CARDS = [
    labs.compare(
        labs.Compared("a < b", 46, 50, "{:.0f} ms", yours=40, why="messages"),
        labs.Compared("idle", 0.25, 0.31, "{:.0%}", within=0.05),
        labs.Compared("sent", 24, 24, within=0),
        labs.Compared("slow", 1, 9, within=None),
    ),
    labs.reveal(labs.Guess("busy", 0.3, 0.25, ".0%"), labs.Guess("speed-up", None, 7), labs.Guess("n", "x", 7)),
    Machines(("predicted", "this machine", "a GPU"), {"a step": (1.0, 2.0, None), "x": (None, 1e-3, 3e-2)}),
]


@pytest.mark.parametrize("one", CARDS)
def test_a_card_is_read_as_its_text(one):
    shown = [line.replace(", your guess is 20%", ", 20%") for line in words(one._repr_html_())]
    assert shown == repr(one).split("\n")


def test_a_cause_that_all_lines_share_is_said_once():
    both = labs.compare(*(labs.Compared(name, 1, 2, why="messages") for name in ("one", "two")))._repr_html_()
    assert both.count("messages") == 1 and "<figcaption>Likely cause: messages.</figcaption>" in both
    one = labs.compare(labs.Compared("one", 1, 2, why="messages"), labs.Compared("two", 1, 2))._repr_html_()
    assert "figcaption>" not in one and words(one)[0].endswith("; likely cause: messages")


def test_a_column_without_texts_is_left_out_and_without_styles_the_heads_are_hidden():
    shown = card("Two", [Head("a"), Head("b", "measured")], [Line("x", "", ("1", "")), Line("y", "", ("2", ""))])
    assert ">a</span>" in shown and "b" not in re.sub("<[^>]*>", "", shown.partition("</style>")[2])
    assert 'class="hl-heads" hidden="hidden"' in shown and 'aria-label="Two"' in shown


def test_what_is_not_guessed_is_nowhere_in_a_card():
    shown = labs.reveal(labs.Guess("speed-up", None, 7.25))._repr_html_().partition("</style>")[2]
    assert "7.25" not in shown and strip.hidden() in shown
    assert shown == labs.reveal(labs.Guess("speed-up", None, 8))._repr_html_().partition("</style>")[2]


# --- what a notebook is compared by -----------------------------------------------------------------------------


@pytest.mark.parametrize("within", [0.1, None])
def test_a_measurement_may_be_anywhere_and_a_prediction_may_not(within):
    card = lambda name, predicted, measured: labs.compare(labs.Compared(name, predicted, measured, within=within))
    one, again, other, renamed = (
        compared(card(*values)._repr_html_()) for values in (("a", 2, 2.1), ("a", 2, 9), ("a", 3, 3), ("b", 2, 2.1))
    )
    assert one == again and one != other and one != renamed


def test_a_count_that_must_be_equal_is_compared():
    one, other = (compared(labs.compare(labs.Compared("a", 2, n, within=0))._repr_html_()) for n in (2, 3))
    assert one != other


def test_other_machines_change_nothing_that_is_compared():
    one = Machines(("predicted", "this machine"), {"a": (1.0, 1.1), "b": (2.0, 9.0)})
    more = Machines(("predicted", "this machine", "A, 2026-12-01", "B, 2026-12-02"),
                    {"a": (1.0, 1.2, None, 30.0), "b": (2.0, 2.1, 4.0, 1e-3)})  # fmt: skip
    assert one._repr_html_() != more._repr_html_()
    assert compared(one._repr_html_()) == compared(more._repr_html_())
    fewer = Machines(("this machine",), {"a": (1.1,), "b": (9.0,)})
    assert compared(one._repr_html_()) != compared(fewer._repr_html_())


def test_a_class_of_cards_is_in_no_other_style_sheet():
    """On the site a card is on one page with live pictures, whose style sheets would move its cells."""
    own = {one for one in re.findall(r"\.(hl-[\w-]+)", SHEET.read_text("utf-8")) if one != "hl-card"}
    every = [one for room in ("hybridlab/show", "tools/look") for one in (HOUSE / room).rglob("*.css")]
    others = [one for one in every if one != SHEET]
    named = {one.name: {*re.findall(r"\.(hl-[\w-]+)", one.read_text("utf-8"))} for one in others}
    found = {(name, both) for name, its in named.items() for both in own & its}
    assert len(own) > 5 and len(others) > 3 and found == set()


def test_negative_numbers_have_minus_signs():
    (line,) = words(card("One", [Head("difference")], [Line("a step", "", ("≈-8.0 %, of 3-5",))]))
    assert line.endswith("≈−8.0 %, of 3-5")
    assert ">−3<" in strip.on_scale([("predicted", -3), ("measured", 5)], "{:g}".format)
