"""The first picture of the course in a real JupyterLab: small, few controls, plays once, in the reader's letters."""

import re
import shutil

import nbformat
import pytest

from browser.watched import Watched
from hybridlab.show.paper.style import STYLE
from tools.course import FOLDER

MOST_PX = 520
VIEW = ".hl-explorer"
FIRST = nbformat.read(FOLDER / "00_start.ipynb", as_version=4).cells[1].source
NAMED = FIRST.replace("hl.explore(", "explorer = hl.explore(") + "\nexplorer"
SCREENS = pytest.mark.parametrize("size", [(1440, 900), (1024, 768)], ids=["large", "small"])
COLUMN = """([x, from, to]) => {
  const canvas = document.querySelector('.hl-view canvas'), ratio = canvas.width / canvas.clientWidth;
  const [left, top, tall] = [x, from, to - from].map((one) => Math.round(one * ratio));
  const { data } = canvas.getContext('2d').getImageData(left, top, 1, tall);
  const hex = (at) => '#' + [0, 1, 2].map((k) => data[at + k].toString(16).padStart(2, '0')).join('').toUpperCase();
  return Array.from({ length: tall }, (_, y) => hex(4 * y));
}"""


def opened(browser, lab, name, *cells, reduced_motion="no-preference"):
    watched = Watched(browser, reduced_motion=reduced_motion)
    watched.page.set_viewport_size({"width": 1440, "height": 900})
    notebook = lab.open(watched.page, f"{name}.ipynb", *cells)
    watched.page.wait_for_selector(f"{VIEW} canvas[data-painted]", timeout=60_000)
    return watched, notebook


@pytest.fixture(scope="module")
def still(browser, lab):
    """The first picture of a reader who wants no motion."""
    watched, notebook = opened(browser, lab, "still", NAMED, reduced_motion="reduce")
    yield watched.page, notebook
    watched.check()
    watched.context.close()


def controls(page):
    """Kinds and names of what can be seen and moved."""
    said = page.locator(VIEW).aria_snapshot()
    return re.findall(r"- (slider|combobox|button|checkbox|radio|textbox) \"([^\"]+)\"", said)


def cursor(page):
    """How far the picture is played, as a share of its length."""
    return page.get_by_role("slider", name="time", exact=True).evaluate("one => one.value / one.max")


def number(page):
    return page.locator(".hl-figures b").inner_text()


def whole(page, part):
    """Whether a part of the page is in sight, with nothing scrolled away."""
    frame, box = (page.locator(one).first.bounding_box() for one in (".jp-WindowedPanel-outer", part))
    return frame["y"] <= box["y"] and box["y"] + box["height"] <= frame["y"] + frame["height"] + 1


def test_it_has_two_sliders_play_and_one_number_and_all_else_is_folded(still):
    page, _ = still
    assert controls(page) == [
        ("slider", "ranks p"), ("slider", "microbatches m"), ("button", "▶ Play"), ("slider", "time"),
    ]  # fmt: skip
    assert number(page) == "42.9%" and page.locator(".hl-figures b").count() == 1
    page.get_by_text("More controls").click()
    assert len(controls(page)) > 20
    page.get_by_text("More controls").click()


@SCREENS
def test_it_is_seen_whole_whatever_its_sliders_say(still, size, picture_of):
    page, notebook = still
    page.set_viewport_size({"width": size[0], "height": size[1]})
    for ranks, microbatches in ((32, 128), (1, 1), (4, 4)):
        notebook.ask(f"[setattr(explorer, 'ranks', {ranks}), setattr(explorer, 'microbatches', {microbatches})]")
        told = page.locator(".hl-summary", has_text=re.compile(f"{ranks} ranks?, {microbatches} micro"))
        told.wait_for(state="attached")
        page.wait_for_timeout(300)
        assert page.locator(VIEW).bounding_box()["height"] <= MOST_PX, (ranks, microbatches)
        assert whole(page, VIEW)
    picture_of(page, f"first-{size[0]}")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_a_slider_changes_the_number_beside_it(still):
    page, notebook = still
    page.get_by_role("slider", name="microbatches m").focus()
    page.keyboard.press("ArrowRight")
    notebook.until("explorer.microbatches", 5)
    page.wait_for_function("document.querySelector('.hl-figures b').textContent === '37.5%'")  # 3 of 8
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.hl-figures b').textContent === '42.9%'")


def test_idle_has_one_colour_in_the_bar_and_in_the_picture(still):
    page, _ = still
    box = page.locator(".hl-view canvas").bounding_box()
    [(left, right, lanes)] = page.evaluate(
        """() => { const em = parseFloat(getComputedStyle(document.querySelector('.hl-view')).fontSize);
        return [[5.9 * em, document.querySelector('.hl-view canvas').clientWidth - 3.4 * em, 2 * em]]; }"""
    )
    idle, busy = STYLE["light"]["bubble"], STYLE["light"]["muted"]
    begin, end = (page.evaluate(COLUMN, [x, 0, lanes]) for x in (left + 5, right - 5))
    assert idle not in begin and idle in end and busy not in begin + end  # only idle time is filled
    assert idle in page.evaluate(COLUMN, [right - 5, lanes, box["height"] / 2])


def test_its_letters_are_as_large_as_the_reader_has_them(still):
    page, _ = still
    size = "parseFloat(getComputedStyle(document.querySelector(one)).fontSize)"
    sizes = f"['.hl-view', '.hl-figures b'].map((one) => {size})"
    tall = page.locator(".hl-view canvas").bounding_box()["height"]
    assert page.evaluate(sizes) == [14, 35]
    page.evaluate("document.documentElement.style.setProperty('--jp-content-font-size1', '21px')")
    page.wait_for_timeout(300)
    assert page.evaluate(sizes) == [21, 52.5]
    assert page.locator(".hl-view canvas").bounding_box()["height"] == pytest.approx(1.5 * tall, rel=0.02)
    page.evaluate("document.documentElement.style.removeProperty('--jp-content-font-size1')")


def test_a_reader_who_wants_no_motion_gets_none(still):
    page, _ = still
    page.wait_for_timeout(500)
    painted = page.locator(".hl-view canvas").get_attribute("data-painted")
    page.wait_for_timeout(800)
    assert page.locator(".hl-view canvas").get_attribute("data-painted") == painted and cursor(page) == 1


def test_it_plays_once_slowly_and_ends_with_all_to_be_seen(browser, lab):
    watched, _ = opened(browser, lab, "moving", FIRST)
    page = watched.page
    page.get_by_role("button", name="Pause").wait_for()
    page.wait_for_timeout(1000)
    assert 0.05 < cursor(page) < 1
    assert page.locator(".hl-figures[data-counting]").count() == 1
    page.get_by_role("button", name="Play").wait_for(timeout=20_000)
    assert cursor(page) == 1 and number(page) == "42.9%"
    page.wait_for_timeout(800)
    assert cursor(page) == 1 and page.get_by_role("button", name="Play").count() == 1
    watched.check()
    watched.context.close()


@SCREENS
def test_shift_enter_brings_the_picture_into_sight(browser, lab, size):
    """As a student does it, in the notebook itself: the title, then the picture."""
    shutil.copy(FOLDER / "00_start.ipynb", lab.folder)
    watched = Watched(browser)
    page = watched.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    lab.show(page, "00_start.ipynb")
    page.locator(".jp-MarkdownCell").first.click(position={"x": 300, "y": 20})
    for _ in range(2):
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(300)
    page.wait_for_selector(f"{VIEW} canvas[data-painted]", timeout=60_000)
    page.get_by_role("button", name="Pause").wait_for()
    assert whole(page, VIEW)
    watched.check()
    watched.context.close()
