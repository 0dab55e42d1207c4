"""What moves: boxes that glide from one picture to the next, and the machine view at the time of the cursor."""

import json
import re

import pytest

from browser.test_canvas import FINE, PAGE, PAPER, differences, timeline
from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.picture import picture, to_json


def opened(browser, *drawn, calm=False, theme="light", machine=False):
    """A page that shows the first of these timelines; `next()` shows the one after it."""
    motion = "reduce" if calm else "no-preference"
    page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=FINE, reduced_motion=motion)
    pictures = ",".join(to_json(picture(one)) for one in drawn)
    data = json.dumps({"style": STYLE}, separators=(",", ":"))[:-1] + f',"pictures":[{pictures}]}}'
    body = PAGE.format(style=stylesheet(), paper=PAPER[theme], data=data, module=module())
    for old, new in (
        ("const { style, picture }", "const { style, pictures }"),
        ('getElementById("here"), style)', f'getElementById("here"), style, {json.dumps({"machine": machine})})'),
        (
            "shown.show(picture);",
            "let picture; window.next = () => { picture = pictures.shift(); shown.show(picture); };",
        ),
    ):
        assert old in body
        body = body.replace(old, new)
    body = body.replace("window.lanes", "next();\nwindow.lanes")
    page.set_content(body)
    page.wait_for_selector("canvas[data-painted]")
    return page


def cursor_to(page, time):
    move = "(e, time) => { e.value = time; e.dispatchEvent(new Event('input')); }"
    page.get_by_role("slider", name="time").evaluate(move, time)


def test_boxes_glide_to_their_new_places_and_come_to_rest_there(browser):
    before, after = timeline("gpipe"), timeline("1f1b")
    page = opened(browser, before, after)
    page.evaluate("next()")
    page.wait_for_selector("canvas[data-gliding]", timeout=3000)
    assert differences(page, after, "light")  # on the way
    page.wait_for_selector("canvas:not([data-gliding])", timeout=10_000)
    assert differences(page, after, "light") == []
    page.close()


def test_where_motion_is_unwelcome_the_new_picture_is_there_at_once(browser):
    after = timeline("zb_h1")
    page = opened(browser, timeline("1f1b"), after, calm=True)
    page.evaluate("next()")
    assert page.locator("canvas[data-gliding]").count() == 0 and differences(page, after, "light") == []
    page.close()


@pytest.mark.parametrize("name, more", [("1f1b", {}), ("interleaved", {"chunks": 2}), ("zb_h1", {})], ids=str)
def test_the_machine_view_says_what_each_rank_does_and_holds(browser, name, more):
    one = timeline(name, **more)
    page = opened(browser, one, machine=True)
    for time in (0.5, 0.37 * one.length, 0.71 * one.length):
        cursor_to(page, time)
        told = page.locator(".hl-machine canvas").get_attribute("aria-label")
        for rank in range(one.schedule.ranks):
            mine = [s for s in one.spans if s.rank == rank and s.lane == "compute"]
            now = [s for s in mine if s.begin <= time < s.end]
            wanted = str(now[0].action).split("@")[0] if now else "idle"
            taken = sum(s.action.kind == "F" and s.begin <= time for s in mine)
            freed = sum(s.action.kind in ("B", "W") and s.end <= time for s in mine)
            said = re.search(rf"rank {rank} (\w+), holds (\d+)", told)
            assert said and said[1] == wanted, (time, rank, told, wanted)
            assert int(said[2]) == taken - freed
    page.close()


def test_a_picture_with_the_machine_view_opens_where_ranks_work(browser):
    page = opened(browser, timeline("1f1b"), machine=True)
    told = page.locator(".hl-machine canvas").get_attribute("aria-label")
    assert told.startswith("machine view. 1f1b at 7:") and "rank 1 1B0, holds 2; rank 2 2B1" in told
    page.close()


def test_the_machine_view_opens_and_closes(browser):
    page = opened(browser, timeline("1f1b"))
    assert page.locator("canvas").count() == 1
    page.get_by_role("checkbox", name="machine view").check()
    page.get_by_role("button", name="Pause").click()  # it plays as it opens: at the end, all ranks are idle
    assert page.locator(".hl-machine canvas").bounding_box()["height"] > 80
    page.get_by_role("checkbox", name="machine view").uncheck()
    assert page.locator("canvas").count() == 1
    page.close()


def test_colours_of_microbatches_are_those_of_the_style(browser):
    page = opened(browser, timeline("gpipe", 3, 4))
    page.get_by_label("colour by microbatch").check()
    lanes = page.evaluate("lanes()")
    unit = (lanes["right"] - lanes["left"]) / timeline("gpipe", 3, 4).length
    for m in range(4):
        x = lanes["left"] + (m + 0.5) * unit
        raw = page.evaluate("(where) => row(where)", [lanes["tops"][0] + 0.14 * lanes["tall"], x, x + 1])
        fill = STYLE["tints"][m]["forward"]["fill"]
        assert raw[:3] == [int(fill[i : i + 2], 16) for i in (1, 3, 5)]
    assert "microbatch 3" in page.locator(".hl-legend").inner_text()
    page.close()
