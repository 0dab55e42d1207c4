"""The box of ranks in a real JupyterLab: pointer, click and keys light a rank's groups; both themes."""

import pytest

from browser.widgets import ASTRAY

BOX = "import hybridlab as hl\nhl.pictures.box_of_ranks(hl.Mesh(pp=3, dp=2, tp=2), rank=5, per_node=4)"
LIT = """() => Array.from(document.querySelectorAll('.hl-box [data-of]'))
  .filter((one) => one.style.display !== 'none').map((one) => one.dataset.of).sort()"""


@pytest.fixture(scope="module")
def notebook(watched, lab):
    opened = lab.open(watched.page, "box.ipynb", BOX)
    watched.page.wait_for_selector(".hl-box [data-rank]", timeout=60_000)
    return opened


def test_the_rank_under_the_pointer_or_in_focus_lights_its_groups(watched, notebook, picture_of):
    page = watched.page
    assert page.evaluate(LIT) == ["1 5 9", "4 5", "5", "5 7"]
    assert page.locator(".hl-box").evaluate(ASTRAY) == []
    picture_of(page.locator(".hl-box"), "box-light")
    page.locator(".hl-box [data-rank='11']").hover()
    assert page.evaluate(LIT) == ["10 11", "11", "3 7 11", "9 11"]
    assert page.locator(".hl-box .hl-readout").inner_text().startswith("rank 11: stage 2, copy 1, part 1.")
    page.locator(".hl-box [data-rank='0']").click()
    assert page.evaluate(LIT) == ["0", "0 1", "0 2", "0 4 8"]
    page.locator(".hl-box [data-rank='6']").focus()
    assert "6" in page.evaluate(LIT)
    watched.check()


def test_in_the_dark_it_takes_the_paper_of_the_page(watched, notebook, picture_of):
    page, ink = watched.page, "getComputedStyle(document.querySelector('.hl-box svg > text')).fill"
    light = page.evaluate(ink)
    notebook.theme("JupyterLab Dark")
    assert page.locator(".hl-box").get_attribute("data-theme") == "dark" and page.evaluate(ink) != light
    picture_of(page.locator(".hl-box"), "box-dark")
    notebook.theme("JupyterLab Light")
