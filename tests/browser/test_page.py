"""The static page: one file from the disk, the network cut; every choice shows the picture that Python computes."""

import json

import pytest

import hybridlab as hl
from browser.watched import Watched
from hybridlab.show.live import page as module

MOST_BYTES = 3_500_000  # all pictures, packed: each schedule adds some 0.1 MB


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page as `make page` writes it."""
    return module.write(tmp_path_factory.mktemp("page") / "hybridlab.html")


@pytest.fixture(params=["light", "dark"])
def opened(browser, file, request):
    watched = Watched(browser, color_scheme=request.param, offline=True)
    watched.page.goto(file.as_uri())
    watched.page.wait_for_selector("canvas[data-painted]")
    watched.name = request.param
    yield watched
    watched.check()
    watched.context.close()


def summary(page):
    return page.locator(".hl-summary").inner_text()


def computed(name, ranks, microbatches, ratio):
    schedule = hl.schedule(name, ranks=ranks, microbatches=microbatches)
    return hl.simulate(schedule, hl.Costs(F=1, I=ratio / 2, W=ratio / 2)).summary


def paintings(page):
    return int(page.locator("canvas").get_attribute("data-painted"))


def test_it_is_one_small_file(file):
    text = file.read_text("utf-8")
    assert file.stat().st_size <= MOST_BYTES
    assert 'src="' not in text and "import " not in text.split('<script type="module">')[1].split("</script>")[0]
    assert "default-src 'none'" in text


def test_every_choice_shows_what_python_computes(opened, picture_of):
    page = opened.page
    compared = summary(page).split("\n")
    assert compared == [computed(name, **module.FIRST) for name in module.COMPARED]
    picture_of(page, f"page-compared-{opened.name}")
    page.get_by_label("schedule").select_option("1f1b")
    assert summary(page) == computed("1f1b", **module.FIRST)
    picture_of(page, f"page-1f1b-{opened.name}")
    at = dict(module.FIRST)
    for name, (label, values) in module.AXES.items():
        page.get_by_role("slider", name=label).focus()
        for value in values[values.index(at[name]) + 1 :]:
            page.keyboard.press("ArrowRight")
            at[name] = value
            assert summary(page) == computed("1f1b", **at)
        page.keyboard.press("Home")
        at[name] = values[0]
        assert summary(page) == computed("1f1b", **at)


def test_what_cannot_be_says_why_and_the_address_leads_back(opened, file):
    page = opened.page
    page.goto(f"{file.as_uri()}#dualpipe/4/8/2")
    assert summary(page) == computed("dualpipe", 4, 8, 2)
    page.get_by_role("slider", name="ranks p").focus()
    page.keyboard.press("ArrowLeft")
    with pytest.raises(ValueError) as refused:
        hl.schedule("dualpipe", ranks=3, microbatches=8)
    assert page.get_by_role("alert").inner_text() == str(refused.value)
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("alert").count() == 0 and page.url.endswith("#dualpipe/4/8/2")


def test_it_plays_steps_and_scrubs(opened):
    page = opened.page
    before = paintings(page)
    page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(300)
    page.get_by_role("button", name="Pause").click()
    assert paintings(page) > before + 2
    page.get_by_role("button", name="Start", exact=True).click()
    assert float(page.get_by_role("slider", name="time", exact=True).input_value()) == 0
    page.get_by_role("button", name="Step ▶").click()
    assert float(page.get_by_role("slider", name="time", exact=True).input_value()) == 1  # the first forward ends
    assert "so far" in page.locator(".hl-counters b").first.evaluate("one => getComputedStyle(one, '::after').content")


def test_the_check_of_strangers_can_fail(browser, file):
    """The page with one request to a stranger in it: it is stopped, and seen."""
    watched = Watched(browser)
    watched.page.goto(file.as_uri())
    watched.page.evaluate("() => { document.querySelector('meta[http-equiv]').remove(); }")
    watched.page.set_content("<img src='http://example.com/a.png'>")
    with pytest.raises(AssertionError, match="example"):
        watched.check()
    watched.context.close()


def test_the_check_of_errors_can_fail(browser, file):
    watched = Watched(browser)
    watched.page.goto(file.as_uri())
    watched.page.evaluate("() => { setTimeout(() => nobodyDefinesThis()); }")
    watched.page.wait_for_timeout(200)
    with pytest.raises(AssertionError, match="nobodyDefinesThis"):
        watched.check()
    watched.context.close()


def test_a_smaller_grid_is_the_same_page(browser, tmp_path):
    text = module.page(ranks=(2,), microbatches=(2,), ratio=(1,))
    grid = json.loads(text.split('id="grid">')[1].split("</script>")[0])
    assert grid["first"] == [0, 0, 0, 0] and len(grid["pictures"]) < 30_000
    (tmp_path / "small.html").write_text(text, encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "small.html").as_uri())
    page.wait_for_selector("canvas[data-painted]")
    assert summary(page).split("\n")[2] == computed("1f1b", 2, 2, 1)
    page.close()
