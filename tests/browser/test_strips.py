"""Cards of strips on a wide page, on the site's column and on a phone: whole, legible, and in the page's own ink."""

import pytest

from hybridlab import labs
from hybridlab.labs.by_machine import Machines
from tools import sheet

LEAST_PX = 12
NAME = "14.6B, p = 16, m = 128, v = 3: times as fast"
CARDS = [
    labs.compare(
        labs.Compared(NAME, 1.177, 1.4, "{:.3f}", why="smaller pieces of work, messages that do not overlap"),
        labs.Compared("idle / total", 0.25, 0.31, "{:.1%}", within=0.05),
        labs.Compared("sent", 2048, 2048, within=0),
    ),
    labs.compare(labs.Compared("forward", 17.9, 22.9, "{:.1f} ms", within=None, why="norms, nonlinearities")),
    labs.reveal(labs.Guess("busy", 0.9, 0.25, ".0%"), labs.Guess("speed-up", None, 7)),
    Machines(("predicted", "this machine", "2 cores x86_64, 2026-11-21"), {"exposed, buckets": (8e-5, 8e-3, 2e-3)}),
]
LETTERS = """() => [...document.querySelectorAll(".hl-card :is(b, span, text)")].filter((one) => one.textContent)
  .map((one) => parseFloat(getComputedStyle(one).fontSize) * (one.ownerSVGElement?.getScreenCTM().a ?? 1))"""
FITS = "all => all.filter((one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight).length"


@pytest.fixture
def shown(browser):
    """A function: the cards on a page of this width, with rules of style."""
    context = browser.new_context()

    def show(width, style=""):
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.set_content(sheet.page("Cards", "\n".join(one._repr_html_() for one in CARDS), style))
        return page

    yield show
    context.close()


@pytest.mark.parametrize("width", [1440, 960, 390])
def test_a_card_is_whole_and_legible(shown, width):
    page = shown(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".hl-card").evaluate_all(FITS) == 0
    assert min(page.evaluate(LETTERS)) >= LEAST_PX


@pytest.mark.parametrize("width, lines", [(1440, True), (390, False)])
def test_the_numbers_are_beside_the_strip_and_on_a_phone_under_it(shown, width, lines):
    line = shown(width).locator(".hl-line").nth(1)
    strip, number = (line.locator(part).first.bounding_box() for part in (".hl-strip", ".hl-number"))
    assert (number["x"] > strip["x"] + strip["width"]) == lines
    assert (number["y"] < strip["y"] + strip["height"]) == lines
    label = line.locator(".hl-number i").first.bounding_box()
    assert (label["width"] > 20) != lines, "the heads of the columns are in the sentence"


@pytest.mark.parametrize("ink", ["rgb(0, 0, 0)", "rgb(240, 240, 240)"])
def test_the_dot_has_the_ink_of_the_page(shown, ink):
    dot = shown(1440, f"body {{ color: {ink} }}").locator('.measured [fill="currentColor"]').first
    assert dot.evaluate("one => getComputedStyle(one).fill") == ink
