"""The slides: from disk, the network cut; one key for each beat, and the place kept in the address."""

import pytest

import hybridlab as hl
from browser.watched import Watched
from tools import lecture, sheet
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


@pytest.fixture(scope="module")
def lectured(browser, tmp_path_factory):
    file = tmp_path_factory.mktemp("lecture") / "lecture.html"
    file.write_text(lecture.deck(), encoding="utf-8")
    watched = Watched(browser, offline=True)
    watched.page.set_viewport_size({"width": 1440, "height": 900})
    watched.page.goto(file.as_uri())
    yield watched
    watched.check()
    watched.context.close()


def test_every_slide_of_the_lecture_fits_on_the_screen_and_nothing_is_dimmed(lectured):
    page = lectured.page
    for number in range(len(lecture.beats()) + 1):
        page.evaluate(f"location.hash = '#{number + 1}.1'")
        page.wait_for_function(f"document.querySelectorAll('section')[{number}].classList.contains('now')")
        page.keyboard.press("a")
        tall, room = page.evaluate("(s => [s.scrollHeight, s.clientHeight])(document.querySelector('section.now'))")
        assert tall <= room, lecture.beats()[number - 1].ask
        dimmed = (
            "[...document.querySelectorAll('section.now .beat')].filter(b => getComputedStyle(b).opacity < 1).length"
        )
        page.wait_for_function(f"{dimmed} === 0")


def test_pictures_of_the_lecture_fill_their_slides_and_are_read_from_the_back_row(lectured):
    """Letters of 15 pixels in a picture have at least 1.8 % of the screen's height, and captions make room for them."""
    page = lectured.page
    scales = """all => all.map((one) => [one.alt.slice(0, 30),
      Math.min(one.clientWidth / one.naturalWidth, one.clientHeight / one.naturalHeight)])"""
    seen = 0
    for number in range(len(lecture.beats()) + 1):
        page.evaluate(f"location.hash = '#{number + 1}.3'")
        page.wait_for_function(f"document.querySelectorAll('section')[{number}].classList.contains('now')")
        for told, scale in page.locator("section.now .out > img:visible").evaluate_all(scales):
            seen += 1
            assert 15 * scale / 900 >= 0.018, (number, told, scale)
        for live in page.locator("section.now .hl-view").all():
            size = live.evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
            assert size / 900 >= 0.018
    assert seen > 12


def test_code_notes_and_clock_are_behind_a_key(lectured):
    page = lectured.page
    page.evaluate("location.hash = '#5.3'")
    page.wait_for_function("document.querySelectorAll('section')[4].classList.contains('now')")
    for key, part in ("c", ".source"), ("s", ".notes"):
        here = page.locator(f"section.now {part}")
        assert not here.is_visible()
        page.keyboard.press(key)
        assert here.is_visible()
        page.keyboard.press(key)
        assert not here.is_visible()
    assert "minute" not in page.locator(".bar output").inner_text()
    page.keyboard.press("t")
    assert f"minute 0, this slide until {lecture.ends()[3]}" in page.locator(".bar output").inner_text()


def test_the_explorer_of_a_slide_moves_without_a_kernel(lectured):
    page = lectured.page
    page.evaluate("location.hash = '#2.2'")
    live = page.locator("section.now .hl-live")
    live.locator("canvas[data-painted]").first.wait_for()
    told = lambda p, m: hl.simulate(hl.schedule("naive", ranks=p, microbatches=m)).summary
    live.locator("summary").click()
    assert live.locator(".hl-summary").inner_text() == told(4, 8)
    live.get_by_role("slider", name="ranks").focus()
    page.keyboard.press("ArrowRight")
    assert live.locator(".hl-summary").inner_text() == told(6, 8)
    assert page.url.endswith("#2.2"), "a key in the explorer has moved the slides"
    live.get_by_role("button", name="Play").click()
    live.get_by_role("button", name="Pause").wait_for()


def test_without_javascript_the_stored_picture_is_there(browser, tmp_path):
    file = tmp_path / "lecture.html"
    file.write_text(lecture.deck(), encoding="utf-8")
    watched = Watched(browser, offline=True, java_script_enabled=False)
    watched.page.goto(file.as_uri())
    pictures = watched.page.locator(".hl-live img")
    assert pictures.count() == lecture.deck().count(sheet.LIVE) > 0
    watched.page.evaluate("document.body.classList.add('live')")  # as it is before the pictures come to life
    for section in watched.page.locator("section:has(.hl-live img)").all():
        section.evaluate("(one) => one.classList.add('now')")
        assert section.evaluate("one => one.scrollHeight <= one.clientHeight"), section.inner_text()
        section.evaluate("(one) => one.classList.remove('now')")
    watched.page.evaluate("document.body.classList.remove('live')")
    assert all(one.is_visible() for one in pictures.all())
    watched.context.close()
