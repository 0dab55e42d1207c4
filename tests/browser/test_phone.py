"""The site on a phone: no page scrolls sideways, letters in pictures keep their size, words on a canvas are whole."""

import pytest

from browser.watched import Watched
from browser.without_kernel import page
from tools import website

SIZE = {"width": 390, "height": 844}
LEAST_PX = 8  # of the letters of a picture whose usual letters have 15
WORDS = """() => {
  const draw = CanvasRenderingContext2D.prototype.fillText;
  window.outside = new Set();
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
    const wide = this.measureText(text).width, room = this.canvas.clientWidth || this.canvas.width / devicePixelRatio;
    const left = { left: x, center: x - wide / 2, right: x - wide }[this.textAlign] ?? x;
    if (left < -1 || left + wide > room + 1) window.outside.add(text);
    draw.call(this, text, x, ...more);
  };
}"""


HEAD = '<!doctype html><meta name="viewport" content="width=device-width">'


@pytest.fixture(scope="module")
def phone(browser):
    one = Watched(browser, is_mobile=True, has_touch=True, device_scale_factor=2)
    one.page.set_viewport_size(SIZE)
    yield one.page
    one.check()
    one.context.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return website.build(tmp_path_factory.mktemp("site") / "site")


def test_no_page_of_the_site_scrolls_sideways(phone, site):
    wide = {}
    for file in (one for one in site if one.suffix == ".html" and "slides" not in one.parts):
        phone.goto(file.as_uri(), wait_until="domcontentloaded")
        wide[file.name] = phone.evaluate("document.documentElement.scrollWidth")
    assert len(wide) > 50 and {name: px for name, px in wide.items() if px > SIZE["width"]} == {}


def test_a_stored_picture_keeps_its_letters_and_scrolls_by_itself(phone, site):
    phone.goto(next(one for one in site if one.name == "41_choosing.html" and "slides" not in one.parts).as_uri())
    share = "all => all.map((one) => one.clientWidth / one.naturalWidth)"
    shares = phone.locator(".out > img:visible").evaluate_all(share)
    assert len(shares) > 5 and 15 * min(shares) >= LEAST_PX
    assert phone.locator(".out:has(> img)").first.evaluate("one => one.scrollWidth > one.clientWidth")


@pytest.mark.parametrize("name", ["deadlock", "compared", "large"])
def test_words_on_a_canvas_are_whole(phone, name):
    counted = f"<script>({WORDS})()</script>"
    phone.set_content(HEAD + counted + page([name], "light"))
    phone.wait_for_selector("canvas[data-painted]")
    phone.get_by_text("More controls").click()
    assert phone.evaluate("[...outside]") == []
    assert phone.evaluate("document.documentElement.scrollWidth") <= SIZE["width"]


@pytest.mark.parametrize("name", ["ring", "grid", "box", "formula", "knives"])
def test_a_live_picture_keeps_its_letters_and_scrolls_by_itself(phone, name):
    phone.set_content(HEAD + page([name], "light"))
    phone.wait_for_selector(".hl-view svg")
    tall = "all => all.map((one) => one.getBoundingClientRect().height).filter((px) => px > 0)"
    assert min(phone.locator(".hl-view svg text").evaluate_all(tall)) >= LEAST_PX
    assert phone.evaluate("document.documentElement.scrollWidth") <= SIZE["width"]


def test_the_calculator_is_as_wide_as_the_phone(phone):
    phone.set_content(HEAD + page(["calculator"], "light"))
    phone.wait_for_selector(".hl-calculator .hl-bar")
    assert phone.evaluate("document.documentElement.scrollWidth") <= SIZE["width"]
