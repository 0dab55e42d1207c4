"""What the browser tests share: the browser, a JupyterLab, and pages that watch what leaves them.

They need Chromium (`apt install chromium`) and the extra `browser`; `make test-browser` runs them. Without a browser
they skip and say so, unless HYBRIDLAB_BROWSER=required.
"""

import os
import pathlib
import shutil

import pytest

from browser.lab import Lab
from browser.watched import Watched
from browser.without_kernel import page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
SCREENSHOTS = pathlib.Path(__file__).resolve().parents[2] / "build" / "screenshots"


def pytest_collection_modifyitems(items):
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser():
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        why = "no browser was found: apt install chromium"
        if os.environ.get("HYBRIDLAB_BROWSER") == "required":
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=program, headless=True, args=OPTIONS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def lab(browser, tmp_path_factory):
    server = Lab(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def watched(browser):
    one = Watched(browser)
    yield one
    one.context.close()


@pytest.fixture
def opened(browser):
    """Open pages with these pictures and no kernel; at the end, they must have asked no other host."""
    made = []

    def open_page(*names, theme="light", wide=1440, tall=900, **more):
        one = Watched(browser, color_scheme=theme, **more)
        one.page.set_viewport_size({"width": wide, "height": tall})
        one.page.set_content(page(names, theme))
        one.page.wait_for_selector(".hl-view")
        made.append(one)
        return one.page

    yield open_page
    for one in made:
        one.check()
        one.context.close()


@pytest.fixture
def picture_of():
    """Save a screenshot of a part of a page under build/screenshots."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return lambda part, name: part.screenshot(path=SCREENSHOTS / f"{name}.png")
