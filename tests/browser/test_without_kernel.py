"""Live pictures inside a page without a kernel: a ring, a grid, a box, a deadlock; the switch for the projector."""

import pytest

from browser.widgets import ASTRAY

MOVED = "() => document.querySelectorAll('.hl-moving [transform]:not([style*=none])').length"
THERE = """() => Array.from(document.querySelectorAll('.hl-moving text'))
  .filter((one) => one.checkVisibility()).map((one) => one.textContent)"""


def to(page, time):
    move = "(e, time) => { e.value = time; e.dispatchEvent(new Event('input')); }"
    page.get_by_role("slider", name="time").evaluate(move, time)


@pytest.mark.parametrize("theme, size", [("light", (1440, 900)), ("dark", (1920, 1080))])
def test_the_ring_moves_and_counts_the_bytes(opened, theme, size, picture_of):
    page = opened("ring", theme=theme, wide=size[0], tall=size[1])
    assert "0 MB sent by each rank" in page.evaluate(THERE)
    page.get_by_role("application").focus()
    for step in range(1, 7):
        page.keyboard.press("ArrowRight")
        assert f"{3 * step} MB sent by each rank" in page.evaluate(THERE)
        assert page.locator(".hl-readout").inner_text().startswith(f"step {step} of 6")
        assert page.evaluate(MOVED) == 0  # all have arrived
        assert page.locator(".hl-moving").evaluate(ASTRAY) == []
    assert page.locator(".hl-readout").inner_text().endswith("Complete: 16 of 16.")
    to(page, 2.5)
    assert page.evaluate(MOVED) == 4  # one chunk from each rank
    picture_of(page.locator(".hl-moving"), f"ring-{theme}")
    page.get_by_role("slider", name="ranks p").focus()
    for ranks in range(5, 9):
        page.keyboard.press("ArrowRight")
        end = 2 * (ranks - 1) / ranks * 12
        assert f"2·(p−1)/p·n = 2·{ranks - 1}/{ranks}·12 MB = {end:.4g} MB" in page.evaluate(THERE)
    to(page, 0.5)
    assert page.evaluate(MOVED) == 8


def test_the_ring_plays_and_where_motion_is_unwelcome_it_steps(opened):
    page = opened("ring")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"({MOVED})() === 4")
    page.get_by_role("button", name="Pause").click()
    page = opened("ring", reduced_motion="reduce")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('.hl-readout').textContent.startsWith('step 1')")
    assert page.evaluate(MOVED) == 0


@pytest.mark.parametrize("theme, size", [("light", (1440, 900)), ("dark", (390, 844))])
def test_a_matmul_on_a_grid_moves_and_counts_the_bytes(opened, theme, size, picture_of):
    page = opened("grid", theme=theme, wide=size[0], tall=size[1])
    page.get_by_role("application").focus()
    for step, sent in enumerate(["21.33", "53.33", "85.33"], 1):
        page.keyboard.press("ArrowRight")
        assert f"{sent} MB" in page.evaluate(THERE)
        assert page.locator(".hl-readout").inner_text().startswith(f"step {step} of 3")
        assert page.evaluate(MOVED) == 0  # all have arrived
        assert page.locator(".hl-moving").evaluate(ASTRAY) == []
    to(page, 1.5)
    assert page.evaluate(MOVED) == 18 + 18  # two blocks from each rank, and the places that they leave
    picture_of(page.locator(".hl-moving"), f"grid-{theme}")
    page.get_by_role("button", name="SUMMA").focus()
    page.keyboard.press("Space")
    assert page.get_by_role("button", name="SUMMA").get_attribute("aria-pressed") == "true"
    assert page.get_by_role("button", name="Cannon").get_attribute("aria-pressed") == "false"
    page.get_by_role("slider", name="side of the grid").focus()
    for side, move in ((2, "ArrowLeft"), (4, "End")):
        page.keyboard.press(move)
        block = 144 // side**2
        formula = f"2·(q−1) = {2 * (side - 1)} blocks of {block} MB = {2 * (side - 1) * block} MB"
        assert formula in page.evaluate(THERE) and page.locator(".hl-moving").evaluate(ASTRAY) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_box_lights_the_groups_of_a_rank(opened, theme, picture_of):
    page = opened("box", theme=theme)
    assert page.locator(".hl-readout").inner_text().startswith("rank 5:")
    page.locator("[data-rank='11']").hover()
    assert page.locator(".hl-readout").inner_text().startswith("rank 11: stage 2, copy 1, part 1.")
    page.locator("[data-rank='0']").focus()
    lit = page.locator(".hl-box [data-of]:not([style*=none])").evaluate_all("all => all.map((one) => one.dataset.of)")
    assert sorted(lit) == ["0", "0 1", "0 2", "0 4 8"]
    assert page.locator(".hl-box").get_attribute("data-theme") == theme
    picture_of(page.locator(".hl-box"), f"box-without-kernel-{theme}")


def test_the_box_plays_a_step(opened, picture_of):
    shown = "filter((one) => one.style.display !== 'none').length"
    lit = f"() => [...document.querySelectorAll('.hl-box [data-of]')].{shown}"
    on_the_way = f"() => [...document.querySelectorAll('.hl-token')].{shown}"
    page = opened("box", reduced_motion="reduce")
    said = page.locator(".hl-readout")
    told = []
    for _ in range(40):
        page.get_by_role("button", name="Step ▶").click()
        told.append(said.inner_text())
        if told[-1].startswith("update"):
            assert page.evaluate(lit) == 6  # every data group, no other
        if "microbatch 0 goes from stage 0 to 1" in told[-1]:
            assert page.evaluate(on_the_way) == 4  # of each copy and part
            picture_of(page.locator(".hl-box"), "box-step")
        if told[-1].startswith("In this step"):
            break
    assert told[0].startswith("forward: stage 0 computes microbatch 0") and told[-1].endswith("added 1 time.")
    assert page.evaluate(on_the_way) == 0
    page.locator("[data-rank='11']").click()
    assert said.inner_text().startswith("rank 11:")
    page = opened("box")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"({on_the_way})() === 4")
    page.get_by_role("button", name="Pause").click()


@pytest.mark.parametrize("theme, size", [("light", (1440, 900)), ("dark", (1920, 1080))])
def test_in_a_deadlock_the_cards_say_for_whom_they_wait(opened, theme, size, picture_of):
    page = opened("deadlock", theme=theme, wide=size[0], tall=size[1])
    cards = page.locator(".hl-machine canvas")
    assert "rank 1 1B1 waits for rank 2, holds 1; rank 2 2F0 waits for rank 1, holds 0" in cards.get_attribute(
        "aria-label"
    )
    assert "rank 2: 2F0 waits for rank 1" in page.locator(".hl-readout").inner_text()
    assert page.locator(".hl-figures").inner_text().split("\n")[0] == "deadlock"  # and no share of a step
    picture_of(page.locator(".hl-view"), f"deadlock-{theme}")
    stuck = cards.evaluate("one => one.toDataURL()")
    to(page, 0.5)
    assert "waits" not in cards.get_attribute("aria-label")
    assert cards.evaluate("one => one.toDataURL()") != stuck


def test_one_switch_makes_all_pictures_large(opened):
    page = opened("deadlock", "ring", "box", wide=1920, tall=1080)
    page.locator("summary").click()
    sizes = (
        "() => Array.from(document.querySelectorAll('.hl-view'), (one) => parseFloat(getComputedStyle(one).fontSize))"
    )
    page.wait_for_function("document.querySelectorAll('.hl-view').length === 3")
    assert page.evaluate(sizes) == [15, 15, 15]
    switches = page.get_by_role("checkbox", name="projector")
    switches.last.focus()
    page.keyboard.press("Space")
    assert page.evaluate(sizes) == [24, 24, 24]
    assert [one.is_checked() for one in switches.all()] == [True] * 3
    page.wait_for_function("document.querySelector('.hl-view canvas').clientHeight > 300")
    switches.first.click()
    assert page.evaluate(sizes) == [15, 15, 15]


def test_a_frame_of_1024_microbatches_on_16_ranks_is_little_work(opened, record_property):
    page = opened("large")
    page.evaluate("""() => {
      const frames = window.frames_ms = [], ask = window.requestAnimationFrame;
      window.requestAnimationFrame = (act) => ask((now) => {
        const began = performance.now();
        act(now);
        frames.push(performance.now() - began);
      });
    }""")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("frames_ms.length > 60", timeout=60_000)
    page.get_by_role("button", name="Pause").click()
    median = page.evaluate("frames_ms.sort((a, b) => a - b)[frames_ms.length >> 1]")
    record_property("median_ms", median)
    print(f"work of a frame: median {median:.1f} ms")
    assert median < 100  # on a machine that does other things too; 16 where it is quiet


def test_a_reader_chooses_another_schedule(opened):
    """The tour asks for it; a page without a kernel had the one schedule only."""
    page, shown = opened("naive", wide=390, tall=844), {}
    for name in ("naive", "gpipe", "1f1b", "zb_h1"):
        page.get_by_label("schedule").select_option(name)
        shown[name] = page.locator(".hl-figures b").inner_text()
    assert shown == {"naive": "75.0%", "gpipe": "27.3%", "1f1b": "27.3%", "zb_h1": "11.1%"}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened("large").get_by_label("schedule").count() == 1
