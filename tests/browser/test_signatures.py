"""Shift-Tab and Tab in a real JupyterLab: the arguments of a verb are shown, and completed."""

import inspect
import re

import pytest

import hybridlab as hl

VERBS = ("check", "run", "train", "dry_run", "plan", "explore")


@pytest.fixture(scope="module")
def notebook(watched, lab):
    opened = lab.open(watched.page, "signatures.ipynb", "import hybridlab as hl", "")
    opened.until("'hl' in globals()", True, seconds=60)
    return opened


@pytest.fixture
def cell(notebook, watched):
    """The last cell, empty, with the cursor in it."""
    editor = watched.page.locator(".jp-NotebookPanel .jp-CodeCell .cm-content").last
    editor.click()
    watched.page.keyboard.press("Control+a")
    watched.page.keyboard.press("Delete")
    yield watched.page.keyboard
    watched.page.keyboard.press("Escape")


@pytest.mark.parametrize("name", VERBS)
def test_shift_tab_shows_every_argument(name, cell, watched):
    cell.type(f"hl.{name}(")
    cell.press("Shift+Tab")
    watched.page.wait_for_selector(".jp-Tooltip", timeout=60_000)
    told = watched.page.locator(".jp-Tooltip").inner_text()
    signature = inspect.signature(getattr(hl, name)).parameters
    assert [one for one in signature if not re.search(rf"\b{one}\b", told)] == []
    shown = told.split("Docstring")[0]
    assert [one for one in signature if not re.search(rf"\b{one}\b", shown)] == []


@pytest.mark.parametrize("name, begun, whole", [("check", "microb", "microbatches="), ("plan", "contex", "contexts=")])
def test_tab_completes_an_argument(name, begun, whole, cell, watched):
    cell.type(f"hl.{name}({begun}")
    lines = watched.page.locator(".jp-NotebookPanel .jp-CodeCell .cm-content")
    shown = lambda: lines.last.inner_text() + "".join(watched.page.locator(".jp-Completer").all_inner_texts())
    for _ in range(12):  # the first answer about a verb may take as long as its imports
        cell.press("Tab")
        watched.page.wait_for_timeout(5000 if whole not in shown() else 0)
        if whole in shown():
            break
    assert whole in shown()
