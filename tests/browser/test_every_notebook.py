"""Every notebook of the course in a real JupyterLab: run from top to bottom, and each control of each widget moved.

What is looked for is what a reader would see: an error, a widget or a chart that is not shown, a control that does
nothing, words that are cut off. HYBRIDLAB_SHOTS=folder keeps what was seen, one screenful after the other.
"""

import os
import pathlib
import shutil

import pytest

from browser.watched import Watched
from browser.widgets import widgets

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
DARK = ("02_one_device", "41_choosing")  # seen in the dark theme too
SCREEN = {"width": 1280, "height": 1600}
SHOWN = """() => {
  const cells = jupyterapp.shell.currentWidget.content.widgets.filter((one) => one.outputArea), wrong = [];
  let charts = 0;
  for (const { model, outputArea } of cells) {
    if (!model.executionCount && model.sharedModel.source.trim()) wrong.push(`${model.id} has not been run`);
    for (let i = 0; i < outputArea.model.length; i++) {
      const { type, data } = outputArea.model.get(i);
      if (type === "error") wrong.push(`${model.id} shows an error: ${outputArea.node.innerText.slice(-600)}`);
      if (data["application/vnd.plotly.v1+json"]) charts++;
    }
    if (/Error displaying widget|Loading widget|Error creating/.test(outputArea.node.innerText))
      wrong.push(`${model.id} does not show its widget: ${outputArea.node.innerText.slice(0, 300)}`);
  }
  const drawn = document.querySelectorAll(".jp-RenderedPlotly .main-svg:first-child").length;
  if (drawn !== charts) wrong.push(`${drawn} of ${charts} charts are drawn`);
  const pictures = Array.from(document.querySelectorAll(".jp-RenderedSVG img, .jp-RenderedImage img"));
  const hidden = pictures.filter((one) => !one.complete || !one.naturalWidth);
  if (hidden.length) wrong.push(`${hidden.length} of ${pictures.length} pictures are not shown`);
  return wrong;
}"""
SCROLL = """top => {
  const all = document.querySelector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer");
  all.scrollTop = top;
  return [all.scrollTop, all.clientHeight];
}"""
END = """async () => {
  const { sessions } = jupyterapp.serviceManager;
  await sessions.refreshRunning();
  await sessions.shutdownAll();
}"""


@pytest.fixture(scope="module")
def copies(lab):
    """The notebooks, copied to where JupyterLab serves them."""
    for path in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(path, lab.folder)


@pytest.fixture
def watched(browser):
    """A page for one notebook alone; with it goes its kernel."""
    one = Watched(browser)
    one.page.set_viewport_size(SCREEN)
    yield one
    one.page.evaluate(END)
    one.context.close()


@pytest.fixture
def seen(watched, tmp_path):
    """Keeps what a reader sees of a notebook, from top to bottom."""
    folder = pathlib.Path(os.environ.get("HYBRIDLAB_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name):
        number, top, reached = 0, 0, -1
        while reached != (now := watched.page.evaluate(SCROLL, top))[0]:
            watched.page.wait_for_timeout(150)  # what was out of sight is painted
            watched.page.screenshot(path=folder / f"{name}-{number:02}.png")
            reached, tall = now
            number, top = number + 1, reached + tall - 40

    return keep


def missing(page, seconds=10):
    """What is not shown, or is an error; whoever paints charts and pictures is given some seconds."""
    for _ in range(10 * seconds):
        if not (wrong := page.evaluate(SHOWN)):
            break
        page.wait_for_timeout(100)
    return wrong


@pytest.mark.long  # the longest of all: every notebook does all that it does
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_every_control_does_something(name, lab, copies, watched, seen):
    notebook = lab.open_file(watched.page, f"{name}.ipynb")
    assert missing(watched.page) == []
    faults = [fault for widget in widgets(watched.page) for fault in widget.faults()]
    seen(name)
    if name in DARK:
        notebook.theme("JupyterLab Dark")
        seen(f"{name}-dark")
        notebook.theme("JupyterLab Light")
    assert faults == []
    watched.check()
