"""Pictures linked with words, in a page without a kernel: terms light their areas, grips are dragged, both themes."""

import pytest

LIT = "() => Array.from(document.querySelectorAll('svg [data-on]'), (one) => one.dataset.term.split(' ')[0])"
TALLEST = 520  # pixels


def drag(one, number, by):
    """Drag the grip of a choice by some pixels, as a hand does."""
    box = one.locator(f"[data-grip='{number}'] rect").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    one.mouse.move(x, y)
    one.mouse.down()
    for step in range(1, 6):
        one.mouse.move(x + by[0] * step / 5, y + by[1] * step / 5)
    one.mouse.up()


def value(one, name):
    return one.get_by_role("slider", name=name).evaluate("e => e.closest('label').querySelector('b').textContent")


def words(one):
    return " ".join(one.locator(".hl-words").inner_text().split())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_term_of_the_formula_lights_its_area(opened, theme, picture_of):
    one = opened("formula", theme=theme)
    assert one.locator(".hl-linked").get_attribute("data-theme") == theme
    assert one.locator(".hl-linked").bounding_box()["height"] <= TALLEST
    assert one.evaluate(LIT) == []
    one.locator("[data-lights=idle]").first.hover()
    assert set(one.evaluate(LIT)) == {"idle"} and len(one.evaluate(LIT)) == 1 + 3 + 3 + 2  # on each rank
    assert one.locator(".hl-readout").inner_text().startswith("p − 1 = 3 slots")
    picture_of(one.locator(".hl-linked"), f"formula-{theme}")
    one.mouse.move(5, 5)
    assert one.evaluate(LIT) == []
    one.locator("svg [data-term^=work]").first.hover()  # and the other way round
    assert one.locator(".hl-words [data-on]").first.get_attribute("data-lights") == "work"


def test_terms_are_reached_and_kept_by_keys(opened):
    one = opened("formula", reduced_motion="reduce")
    one.get_by_role("checkbox", name="projector").focus()
    one.keyboard.press("Tab")
    assert set(one.evaluate(LIT)) == {"idle"}
    one.keyboard.press("Enter")
    one.get_by_role("slider", name="ranks p").focus()
    one.keyboard.press("ArrowRight")
    assert value(one, "ranks p") == "5" and set(one.evaluate(LIT)) == {"idle"}  # kept while p changes
    assert "33.3 %" in words(one)


def test_grips_change_the_formula_and_the_schedule(opened):
    one = opened("formula")
    before = one.locator("svg").evaluate("svg => svg.outerHTML")
    drag(one, 0, (0, 70))
    assert value(one, "ranks p") == "6" and "38.5 %" in words(one)
    drag(one, 1, (-170, 0))
    assert value(one, "microbatches m") == "5" and "50.0 %" in words(one)
    assert one.locator("svg").evaluate("svg => svg.outerHTML") != before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_three_knives_cut_the_layers(opened, theme, picture_of):
    one = opened("knives", theme=theme)
    assert one.locator(".hl-linked").bounding_box()["height"] <= TALLEST
    assert "12 devices; the blue one holds 403 MB of weights 3.09 GB" in words(one)
    one.get_by_role("row", name="through width").hover()
    assert set(one.evaluate(LIT)) == {"t"}
    picture_of(one.locator(".hl-linked"), f"knives-{theme}")
    drag(one, 1, (500, 0))
    assert value(one, "parts t") == "1"
    drag(one, 0, (0, 300))
    assert value(one, "stages p") == "1"
    drag(one, 2, (500, 0))
    assert value(one, "copies d") == "1"
    assert "1 device; the blue one holds 2.42 GB of weights 0" in words(one)
    one.get_by_role("slider", name="copies d").focus()
    one.keyboard.press("End")
    assert value(one, "copies d") == "4" and one.locator("svg .hl-sent").count() == 3


def test_the_calculator_looks_up_what_fits(opened, picture_of):
    for theme in ("light", "dark"):
        one = opened("calculator", theme=theme)
        assert one.locator(".hl-calculator").bounding_box()["height"] <= TALLEST
        picture_of(one.locator(".hl-calculator"), f"calculator-{theme}")
    figures = one.locator(".hl-figures")
    assert figures.inner_text().startswith("fits") and "60.7 s" in figures.inner_text()
    one.get_by_role("button", name="gpt3-175b").focus()
    one.keyboard.press("Space")
    assert figures.inner_text().startswith("too large")
    told = one.locator(".hl-readout")
    assert told.inner_text().startswith("It does not fit: the largest part is")
    assert 'hl.memory("gpt3-175b", batch=1024, p=4, t=4, d=8, b=1, zero=1' in told.inner_text()
    one.get_by_role("slider", name="GPUs n").focus()
    one.keyboard.press("Home")
    assert one.get_by_role("alert").inner_text().startswith("p · t = 16 is more than 8 GPUs")
    one.keyboard.press("End")
    one.get_by_role("slider", name="stages p").focus()
    one.keyboard.press("Home")
    one.get_by_role("slider", name="parts t").focus()
    one.keyboard.press("Home")
    one.get_by_role("slider", name="microbatch b").focus()
    one.keyboard.press("End")
    assert one.get_by_role("alert").inner_text().startswith("d · b = 4096 is more than 1024 sequences")


def test_pictures_follow_the_button_of_the_site(opened):
    one = opened("formula", "calculator", "ring", "box", "compared")
    one.wait_for_function("document.querySelectorAll('.hl-view').length === 5")
    one.add_style_tag(content=":root[data-theme=dark] body { background: #111 !important }")
    themes = "() => Array.from(document.querySelectorAll('.hl-view'), (one) => one.dataset.theme)"
    assert one.evaluate(themes) == ["light"] * 5
    one.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert one.evaluate(themes) == ["dark"] * 5


def test_in_jupyterlab_keys_stay_in_the_picture_and_it_follows_the_theme(watched, lab, picture_of):
    names = "cut_model", "bubble_formula", "calculator"
    cells = ["import hybridlab as hl", *(f"hl.pictures.{name}()" for name in names)]
    notebook, one = lab.open(watched.page, "linked.ipynb", *cells), watched.page
    one.wait_for_selector(".hl-calculator .hl-bar", timeout=60_000)
    cut, formula = one.locator(".hl-linked").first, one.locator(".hl-linked").last
    cut.get_by_role("slider", name="copies d").focus()
    one.keyboard.press("ArrowRight")
    assert "24 devices; the blue one holds 403 MB of weights" in " ".join(cut.locator(".hl-words").inner_text().split())
    formula.locator("[data-lights=idle]").first.focus()
    one.keyboard.press("Enter")
    assert formula.locator("svg [data-on]").count() == 9
    notebook.theme("JupyterLab Dark")
    assert [part.get_attribute("data-theme") for part in (cut, formula)] == ["dark", "dark"]
    picture_of(cut, "knives-jupyterlab-dark")
    picture_of(formula, "formula-jupyterlab-dark")
    notebook.theme("JupyterLab Light")
    picture_of(one.locator(".hl-calculator"), "calculator-jupyterlab")
    notebook.no_error()
    watched.check()
