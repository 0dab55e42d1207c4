"""The explorer in a real JupyterLab: sliders, play, typed schedules, a run on real ranks, keys alone, both themes."""

import re

import pytest

from hybridlab.show.live.explorer import SLIDERS

MADE = "hl.explore('interleaved', '1f1b', ranks=4, microbatches=8, controls='all')"
EXPLORER = f"import hybridlab as hl\nexplorer = {MADE}\nexplorer"
METRICS = """one => {
  const { fontSize, fontFamily, lineHeight, paddingTop, paddingLeft, borderTopWidth } = getComputedStyle(one);
  return [fontSize, fontFamily, lineHeight, paddingTop, paddingLeft, borderTopWidth];
}"""


@pytest.fixture(scope="module")
def notebook(watched, lab):
    watched.page.set_viewport_size({"width": 1280, "height": 1500})
    opened = lab.open(watched.page, "explorer.ipynb", EXPLORER)
    watched.page.wait_for_selector(".hl-explorer canvas[data-painted]", timeout=60_000)
    return opened


@pytest.fixture
def page(notebook, watched):
    yield watched.page
    notebook.no_error()
    watched.check()


def paintings(page):
    return int(page.locator("canvas").first.get_attribute("data-painted"))


def pixels(page):
    return page.locator("canvas").first.screenshot()


def slider(page, label):
    return page.locator(".hl-row label", has_text=label).locator("input[type=range]")


def cursor(page):
    return float(page.get_by_role("slider", name="time", exact=True).input_value())


@pytest.mark.parametrize("trait, label, least, most, step", SLIDERS, ids=[one[0] for one in SLIDERS])
def test_each_slider_changes_picture_and_kernel(page, notebook, trait, label, least, most, step):
    if trait == "slices":  # of some schedules only: without one, its slider is idle
        assert slider(page, label).is_disabled()
        choose(page, notebook, "seq1f1b")
    before, image = notebook.ask(f"explorer.{trait}"), pixels(page)
    slider(page, label).focus()
    steps = 4 if trait == "microbatches" else 1  # interleaved takes them in groups
    for _ in range(steps):
        page.keyboard.press("ArrowRight")
    notebook.until(f"explorer.{trait}", before + steps * step)
    notebook.until("explorer.problem", "")
    page.wait_for_timeout(300)
    assert pixels(page) != image
    for _ in range(steps):
        page.keyboard.press("ArrowLeft")
    notebook.until(f"explorer.{trait}", before)
    if trait == "slices":
        choose(page, notebook, "1f1b")


def choose(page, notebook, name):
    """The lower schedule becomes this one."""
    page.locator(".hl-chosen select").nth(1).select_option(name)
    notebook.until("explorer.schedules[1]", name)
    notebook.until("explorer.problem", "")
    page.wait_for_timeout(700)  # boxes glide to their places


def test_a_slider_moved_by_mouse(page, notebook):
    box = slider(page, "microbatches m").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    notebook.until("explorer.microbatches > 100", True)
    slider(page, "microbatches m").focus()
    page.keyboard.press("Home")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    notebook.until("explorer.microbatches", 8)


def test_it_plays_steps_and_scrubs(page):
    begin, image = paintings(page), pixels(page)
    page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(400)
    page.get_by_role("button", name="Pause").click()
    assert paintings(page) > begin + 3 and 0 < cursor(page)
    stopped = cursor(page)
    page.wait_for_timeout(200)
    assert cursor(page) == stopped and pixels(page) != image
    page.get_by_role("button", name="Start", exact=True).click()
    assert cursor(page) == 0
    page.get_by_role("button", name="Step ▶").click()
    first = cursor(page)
    assert first > 0
    page.get_by_role("button", name="◀ Step").click()
    assert cursor(page) == 0
    box = page.get_by_role("slider", name="time", exact=True).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert cursor(page) > first
    page.get_by_role("button", name="End", exact=True).click()


def test_a_wrong_and_a_right_schedule_are_typed(page, notebook, picture_of):
    page.get_by_text("Type a schedule of your own").click()
    text = page.locator(".hl-typed textarea")
    text.fill("0F0 0F1 0B0 0B1\n1F0 1Q0 1F1 1B1")
    page.locator(".hl-typed [role=alert]", has_text="1Q0").wait_for()
    assert page.locator(".hl-sheet mark").inner_text() == "1Q0"
    written, framed = (page.locator(f".hl-sheet {one}").evaluate(METRICS) for one in ("textarea", "pre"))
    assert written == framed  # else the frame stands beside the word
    assert notebook.ask("explorer.fault['text']").startswith("line 2, cell 2")
    picture_of(page, "explorer-typed-wrong-light")
    text.fill("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1")
    notebook.until("explorer.fault", {})
    notebook.until("[one.schedule.ranks for one in explorer.timelines][0]", 2)
    assert page.locator(".hl-sheet mark").count() == 0
    notebook.until("len(explorer.timelines)", 3)
    picture_of(page, "explorer-typed-right-light")
    text.fill("")
    notebook.until("len(explorer.timelines)", 2)
    page.get_by_text("Type a schedule of your own").click()


def test_the_critical_path_and_a_box_under_the_pointer(page):
    image = pixels(page)
    page.get_by_label("critical path").check()
    assert pixels(page) != image
    page.get_by_label("critical path").uncheck()
    canvas = page.locator("canvas").first
    canvas.hover(position={"x": 90, "y": 75})
    assert ": 0F0" in page.locator(".hl-readout").inner_text()


def test_both_themes(page, notebook, picture_of):
    picture_of(page, "explorer-light")
    light = pixels(page)
    notebook.theme("JupyterLab Dark")
    picture_of(page, "explorer-dark")
    assert pixels(page) != light and page.locator(".hl-view").get_attribute("data-theme") == "dark"
    notebook.theme("JupyterLab Light")
    assert page.locator(".hl-view").get_attribute("data-theme") == "light"


def test_keys_alone(page, notebook):
    """From the first control by tab, with arrows, letters and space; nothing of it reaches JupyterLab."""
    cells = "jupyterapp.shell.currentWidget.content.model.cells.length"
    there, before = page.evaluate(cells), notebook.ask("explorer.ranks")
    page.locator(".hl-explorer select").first.focus()
    seen = []
    for _ in range(60):
        seen.append(page.evaluate("document.activeElement.closest('.hl-explorer') && document.activeElement.tagName"))
        if not seen[-1]:
            break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"no visible focus on control {len(seen)}"
        label = page.evaluate("document.activeElement.closest('label')?.textContent ?? ''")
        if label.startswith("ranks p"):
            page.keyboard.press("ArrowRight")
            notebook.until("explorer.ranks", before + 1)
            page.keyboard.press("ArrowLeft")
            notebook.until("explorer.ranks", before)
        page.keyboard.press("Tab")
    assert not seen[-1] and seen.count("INPUT") >= len(SLIDERS) and {"SELECT", "CANVAS", "SUMMARY"} <= set(seen)
    page.locator(".hl-explorer canvas").focus()
    for key in ("Home", "ArrowRight", "ArrowDown", "+", "0", "b", "a", "d", "d"):
        page.keyboard.press(key)
    assert cursor(page) > 0 and "rank 1" in page.locator(".hl-readout").inner_text()
    page.keyboard.press("Space")
    page.wait_for_timeout(300)
    page.keyboard.press("Space")
    page.keyboard.press("End")
    assert page.evaluate(cells) == there and notebook.ask("explorer.problem") == ""


def test_every_control_has_a_name(page):
    """What a screen reader says: no slider, select or button without a name."""
    said = page.locator(".hl-explorer").aria_snapshot()
    controls = re.findall(r"- (slider|combobox|button|checkbox|radio|textbox)( \"[^\"]+\")?", said)
    assert len(controls) >= len(SLIDERS) + 8
    assert [kind for kind, name in controls if not name] == []


def test_a_run_on_real_ranks_lays_measured_lanes_under_the_prediction(page, notebook, picture_of):
    page.get_by_role("button", name="− Remove").click()
    notebook.until("explorer.schedules", ["interleaved"])
    page.locator(".hl-explorer select").first.select_option("1f1b")
    notebook.until("explorer.schedules", ["1f1b"])
    page.get_by_role("button", name="Run 1f1b for real").click()
    page.wait_for_function("document.querySelector('.hl-progress').textContent.startsWith('step')", timeout=60_000)
    picture_of(page, "explorer-running-light")
    page.wait_for_function("document.querySelector('.hl-progress').textContent.startsWith('measured')", timeout=60_000)
    assert notebook.ask("[one['measured'] for one in explorer.picture['timelines']]") == [False, True]
    assert notebook.ask("sum(lane['measured'] for lane in explorer.picture['lanes'])") == 4
    picture_of(page, "explorer-measured-light")
