"""The slides: from disk, the network cut; one key for each beat, and the place kept in the address."""

import pytest

from browser.watched import Watched
from tools import sheet
from tools.course import books


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    book = books()["11_gpipe"]
    file = tmp_path_factory.mktemp("slides") / "11_gpipe.html"
    file.write_text(sheet.slides(book.title, book.cells), encoding="utf-8")
    watched = Watched(browser, offline=True)
    watched.page.goto(file.as_uri())
    yield watched
    watched.check()
    watched.context.close()


def shown(page):
    """(the address, how many beats can be seen)"""
    beats = page.locator("section.now .beat")
    return page.url.partition("#")[2], sum(beats.nth(i).is_visible() for i in range(beats.count()))


def test_one_key_for_each_beat_and_back_again(opened, picture_of):
    page = opened.page
    assert shown(page) == ("1.1", 1)
    for key, place in ("ArrowRight", "2.1"), (" ", "2.2"), ("ArrowLeft", "2.1"), ("ArrowLeft", "1.1"), ("n", "2.1"):
        page.keyboard.press(key)
        assert shown(page) == (place, int(place[-1]))
    page.keyboard.press("a")
    assert shown(page)[1] == page.locator("section.now .beat").count() > 1
    picture_of(page.locator("body"), "slides")


def test_a_place_is_found_again_and_the_ends_hold(opened):
    page = opened.page
    page.evaluate("location.hash = '#6.3'")
    page.wait_for_function("document.querySelectorAll('section.now .beat:not(.later)').length === 3")
    page.reload()
    assert shown(page) == ("6.3", 3)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert shown(page) == ("1.1", 1)


def test_the_newest_beat_is_in_sight_and_letters_are_large(opened):
    page = opened.page
    page.evaluate("location.hash = '#6.1'")
    while shown(page)[0] != "7.1":
        box = page.locator("section.now .beat:not(.later)").last.bounding_box()
        assert box["y"] >= 0 and (box["y"] + box["height"] <= 1000 or box["y"] < 60)
        page.keyboard.press("ArrowRight")
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 20
