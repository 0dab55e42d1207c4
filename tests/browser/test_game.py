"""You are the scheduler, played in a real JupyterLab: by mouse, by keys alone, to the end, and run for real."""

import pytest

GAME = "import hybridlab as hl\ngame = hl.play(ranks=2, microbatches=2)\ngame"
CHOSEN = "len(game.hand.chosen)"


@pytest.fixture(scope="module")
def notebook(watched, lab):
    opened = lab.open(watched.page, "game.ipynb", GAME)
    watched.page.wait_for_selector(".hl-game canvas[data-painted]", timeout=60_000)
    return opened


@pytest.fixture
def fresh(notebook, watched):
    """A game in which nothing is chosen yet."""
    watched.page.get_by_role("button", name="Begin again").click()
    notebook.until(CHOSEN, 0)
    yield watched.page
    notebook.no_error()
    watched.check()


def press(page, notebook, rank, name):
    before = notebook.ask(CHOSEN)
    page.get_by_role("button", name=f"rank {rank}: {name}", exact=True).click()
    notebook.until(CHOSEN, before + 1)


def test_only_what_is_possible_can_be_pressed_and_the_rest_says_why(fresh, notebook):
    impossible = fresh.get_by_role("button", name="rank 1: F0", exact=True)
    assert impossible.get_attribute("aria-disabled") == "true"
    impossible.click(force=True)
    assert fresh.locator(".hl-asked").inner_text().startswith("Not now: 1F0 comes after 0F0 on rank 0")
    assert notebook.ask(CHOSEN) == 0
    press(fresh, notebook, 0, "F0")
    assert impossible.get_attribute("aria-disabled") == "false"
    impossible.hover()
    assert fresh.locator(".hl-asked").inner_text() == "1F0 on rank 1: 1 to 2, after waiting 1"


def test_a_game_played_to_its_end_by_mouse_and_run_for_real(fresh, notebook, picture_of):
    canvas, painted = fresh.locator(".hl-game canvas"), []
    for rank, name in [(0, "F0"), (0, "F1"), (1, "F0"), (1, "B0"), (0, "B0"), (1, "F1"), (1, "B1"), (0, "B1")]:
        press(fresh, notebook, rank, name)
        painted.append(canvas.screenshot())
    assert len(set(painted)) == 8  # each choice shows
    assert "No order of F and B on these ranks is shorter than yours." in fresh.locator(".hl-told").inner_text()
    assert notebook.ask("[one['name'] for one in game.picture['timelines']]") == ["by hand", "1f1b", "automatic"]
    fresh.set_viewport_size({"width": 1280, "height": 1500})
    picture_of(fresh, "game-finished-light")
    notebook.theme("JupyterLab Dark")
    picture_of(fresh, "game-finished-dark")
    notebook.theme("JupyterLab Light")
    fresh.get_by_role("button", name="Run it for real").click()
    notebook.until("game.running['on']", True)
    notebook.until("game.running['on']", False, seconds=60)
    assert fresh.locator(".hl-told").inner_text().startswith("Measured on 2 real processes")
    assert notebook.ask("[one['measured'] for one in game.picture['timelines']]") == [False, True]
    picture_of(fresh, "game-measured-light")
    fresh.set_viewport_size({"width": 1280, "height": 1000})


def test_a_game_played_by_keys_alone(fresh, notebook, picture_of):
    """Letters choose and arrows move; no key reaches JupyterLab, where B adds a cell and 0 0 restarts the kernel."""
    cells = "jupyterapp.shell.currentWidget.content.model.cells.length"
    there = fresh.evaluate(cells)
    fresh.keyboard.press("Shift+Tab")  # from Begin again, where the last click was, back past Take back
    fresh.keyboard.press("Shift+Tab")
    assert fresh.evaluate("document.activeElement.getAttribute('aria-label')").startswith("rank ")
    fresh.keyboard.press("ArrowUp")
    for keys in ("f", "f", "ArrowDown f", "b", "ArrowUp b", "ArrowDown f", "ArrowRight Enter", "ArrowUp b"):
        before = notebook.ask(CHOSEN)
        for key in keys.split():
            fresh.keyboard.press(key)
        notebook.until(CHOSEN, before + 1)
    picture_of(fresh, "game-by-keys-light")
    notebook.until("game.finished", True)
    fresh.keyboard.press("u")
    notebook.until(CHOSEN, 7)
    assert fresh.evaluate(cells) == there
    assert notebook.ask("str(game.schedule)").endswith("1F0 1B0 1F1 1B1")
