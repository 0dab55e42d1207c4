"""Every stored picture of the course, on a light page and on a dark one: its paper, the contrast of its texts, the size
of its letters; and in JupyterLab, whose theme changes while the reader's system stays light.
"""

import base64
import itertools
import json
from pathlib import Path

import pytest

from browser.watched import Watched
from browser.widgets import ASTRAY
from hybridlab.show.paper.style import STYLE

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
SVG, PLOTLY = "image/svg+xml", "application/vnd.plotly.v1+json"
PAPER = {"light": STYLE["paper"], "dark": STYLE["dark"]["edge"]}
SMALLEST = 13  # pixels of letters, where the page's have 16
SHARPER, LARGER = 1.5, 24  # a page at 150 %: pixels of the screen for one of the page; pixels of the page's letters
# The colour in the middle of a screenshot's left edge, some pixels inside: a page decodes the image.
PIXEL = """async (image) => {
  const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + image)).blob());
  const pen = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  pen.drawImage(bitmap, 0, 0);
  return Array.from(pen.getImageData(4, bitmap.height >> 1, 1, 1).data.slice(0, 3));
}"""
# [text, contrast] of every text that is not legible on the shape under it, or on its own rim.
ILLEGIBLE = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((one) => {
      const part = one / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const solid = (one) => {
    const { fill, fillOpacity, opacity } = getComputedStyle(one), pattern = fill.match(/url\\("(#.*)"\\)/);
    if (fillOpacity * opacity <= 0.6 || !one.hasAttribute("fill")) return null;
    if (!pattern) return fill.startsWith("rgb(") ? fill : null;
    const [tile, first] = [document.querySelector(pattern[1]), document.querySelector(`${pattern[1]} > rect`)];
    return first?.getAttribute("width") === tile.getAttribute("width") ? getComputedStyle(first).fill : null;
  };
  const under = (text, x, y) => { // null: something covers the text, as a chosen rank its ordinary number
    const all = document.elementsFromPoint(x, y).filter((one) => one.ownerSVGElement), at = all.indexOf(text);
    const fills = all.map((one) => (one.tagName === "text" ? null : solid(one)));
    return fills.slice(0, Math.max(at, 0)).some((one) => one) ? null : fills.slice(at + 1).find((one) => one);
  };
  return Array.from(document.querySelectorAll("svg text")).flatMap((text) => {
    const box = text.getBoundingClientRect(), { fill, stroke, paintOrder } = getComputedStyle(text);
    if (!text.textContent.trim() || !box.width) return [];
    const rim = stroke !== "none" && paintOrder.startsWith("stroke") ? stroke : null;
    const middle = box.top + box.height / 2;
    const grounds = [0.1, 0.5, 0.9].map((at) => rim ?? under(text, box.left + at * box.width, middle));
    const least = Math.min(...grounds.filter((one) => one).map((one) => contrast(fill, one)));
    const enough = /[\\p{L}\\d]/u.test(text.textContent) ? 4.5 : 3; // a cross is a mark
    return least < enough ? [[text.textContent, Math.round(100 * least) / 100]] : [];
  });
}"""
SIZES = "all => all.filter((one) => one.textContent.trim()).map((one) => parseFloat(getComputedStyle(one).fontSize))"


def pictures(name):
    """The stored pictures of a notebook, as SVG text."""
    outputs = [one for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
               for one in cell.get("outputs", [])]  # fmt: skip
    return ["".join(one["data"][SVG]) for one in outputs if SVG in one.get("data", {})]


def encoded(svg):
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def written(theme, body, more=""):
    return f'<!doctype html><body style="margin: 0; color-scheme: {theme}; {more}">{body}</body>'


def rgb(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.fixture
def opened(browser):
    made = []

    def page(**more):
        one = Watched(browser, **more)
        made.append(one)
        one.page.set_viewport_size({"width": 1000, "height": 12_000})
        return one.page

    yield page
    for one in made:
        one.context.close()


def paper_of(page, part):
    return page.evaluate(PIXEL, base64.b64encode(part.screenshot()).decode())


@pytest.mark.parametrize("theme, system", list(itertools.product(PAPER, PAPER)))
def test_a_picture_has_the_paper_of_its_page_whatever_the_system_prefers(opened, theme, system):
    """As an image, as JupyterLab and the site show it, and inside a widget."""
    page, svg = opened(color_scheme=system), pictures("30_megatron")[0]
    page.set_content(written(theme, f'<img width="800" src="{encoded(svg)}"><div style="width: 800px">{svg}</div>'))
    for part in ("img", "svg"):
        assert paper_of(page, page.locator(part)) == rgb(PAPER[theme])


@pytest.mark.parametrize("system", PAPER)
def test_a_picture_alone_in_a_window_follows_the_system(opened, system, tmp_path):
    file = tmp_path / "one.svg"
    file.write_text(pictures("30_megatron")[0], encoding="utf-8")
    page = opened(color_scheme=system)
    page.goto(file.as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('rect')).fill") == f"rgb{tuple(rgb(PAPER[system]))}"


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_stored_pictures_are_legible_large_and_apart_on_light_and_on_dark(opened, name):
    page, wrong = opened(), []
    for number, svg in enumerate(pictures(name)):
        for theme in PAPER:
            page.set_content(written(theme, svg))
            wrong += [(number, theme, *one) for one in page.evaluate(ILLEGIBLE)]
        wrong += [(number, one) for one in page.evaluate(f"() => ({ASTRAY})(document.body)")]
        wrong += [(number, size) for size in page.locator("svg text").evaluate_all(SIZES) if size < SMALLEST]
    assert wrong == []


@pytest.mark.parametrize("name", ["14_zero_bubble", "33_context", "41_choosing", "42_sc21"])
def test_at_150_percent_a_picture_grows_as_far_as_its_column_and_nothing_is_cut_off(opened, name):
    page = opened(device_scale_factor=SHARPER)
    for svg in pictures(name):
        widths = []
        for letters, column in ((16, 1400), (LARGER, 1400), (LARGER, 390)):
            page.set_viewport_size({"width": column, "height": 900})
            root = f"<style>:root {{ font-size: {letters}px }}</style>"
            page.set_content(written("light", root + svg))
            assert page.evaluate("document.documentElement.scrollWidth") <= column
            assert page.evaluate(f"() => ({ASTRAY})(document.body)") == []
            widths.append(page.locator("svg").first.evaluate("one => one.getBoundingClientRect().width"))
        assert widths[0] < widths[1] <= 1.5 * widths[0] + 1 and widths[2] <= 390


def test_jupyterlab_and_its_pictures_change_their_theme_together(lab, browser):
    """A still, a widget of ipywidgets, and a chart of plotly, while the reader's system is light."""
    watched = Watched(browser)
    cells = (
        "import hybridlab as hl\nfrom hybridlab.labs.context.pictures import packed\npacked()",
        "from hybridlab.labs.convolution.pictures import spans\nspans()",
        "hl.draw(hl.simulate(hl.schedule('1f1b', ranks=2, microbatches=4)))",
    )
    notebook = lab.open(watched.page, "dark.ipynb", *cells)
    page = watched.page
    parts = (".jp-RenderedSVG img", ".widget-html svg", ".jp-RenderedPlotly .main-svg >> nth=0")
    for part in parts:
        page.locator(part).first.wait_for(timeout=60_000)
    for theme, name in (("dark", "JupyterLab Dark"), ("light", "JupyterLab Light"), ("dark", "JupyterLab Dark")):
        notebook.theme(name)
        for part in parts:
            assert paper_of(page, page.locator(part).first) == rgb(PAPER[theme]), (part, theme)
        ink = page.locator(".jp-RenderedPlotly .legendtext tspan").first.evaluate("one => getComputedStyle(one).fill")
        assert ink == f"rgb{tuple(rgb(STYLE[theme]['ink']))}"
    notebook.no_error()
    watched.context.close()
