"""How fast the explorer answers: its canvas beside the same timeline as plotly bars, in a real JupyterLab.

    python bench/explorer.py           one table: medians, ratios, PASS or MISS
    python bench/explorer.py --json    the same, and one JSON object on the last line

Both are widgets in a notebook of JupyterLab on loopback, seen by headless Chromium. A key moves the slider "backward ÷
forward"; Python simulates, sends, the browser paints. Timed is from the key to two frames after the picture changed:
the whole path. Plotly gets the least that shows the same boxes: one trace of bars per look, changed in place in one
message, without labels and without hover; the explorer also sends and shows these, and causes and curves.
The first draw is timed from the begin of the cell that shows the widget; everything was imported in the cell before.

Needs Chromium and the extra `browser`. Both are alternated in one run; each size and way has a page of its own.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
from functools import partial

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "browser"))
from lab import Lab

SIZES = {2048: (16, 64), 10240: (32, 160)}  # boxes of actions: ranks, microbatches
MOVES, PATIENCE = 8, 300_000  # slider moves on a page; milliseconds
TARGETS = {("moved", 2048): 0.6, ("moved", 10240): 0.25, ("first", 2048): 0.2, ("first", 10240): 0.2}  # at most
IMPORTS = """
import time
import ipywidgets
import numpy as np
import plotly.graph_objects as go
import hybridlab as hl
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.live.explorer import explore, simulated
"""
CANVAS = """
began = time.time()
widget = explore("1f1b", ranks={ranks}, microbatches={microbatches})
widget
"""
PLOTLY = """
began = time.time()
plan = hl.schedule("1f1b", ranks={ranks}, microbatches={microbatches})

def columns(ratio):
    picture = boxes(simulated(plan, hl.Costs(F=1, I=ratio / 2, W=ratio / 2)))
    for number, look in enumerate(picture.looks):
        mine = picture.look == number
        x0, x1, y0, y1 = (column[mine] for column in (picture.x0, picture.x1, picture.y0, picture.y1))
        yield look, {{"base": x0, "x": x1 - x0, "y": (y0 + y1) / 2, "width": y1 - y0}}

markers = lambda look: {{"color": look.fill, "line": {{"color": look.edge, "width": 1}}}}
bars = [go.Bar(orientation="h", marker=markers(look), name=look.name, hoverinfo="skip", **values)
        for look, values in columns(2)]
widget = go.FigureWidget(bars, {{"barmode": "overlay", "template": "none", "height": 700}})
slider = ipywidgets.FloatSlider(2, min=0, max=4, step=0.5, description="ratio")

def move(change):
    with widget.batch_update():
        for bar, (_, values) in zip(widget.data, columns(change["new"])):
            bar.update(values)

slider.observe(move, "value")
ipywidgets.VBox([slider, widget])
"""
WAYS = {"canvas": CANVAS, "plotly": PLOTLY}
SLIDER = {"canvas": ".hl-sliders label:has-text('backward') input", "plotly": ".widget-slider .noUi-handle"}
PROBE = """
const mark = () => {
  const canvas = document.querySelector(".hl-view canvas"), plot = document.querySelector(".js-plotly-plot");
  if (canvas?.dataset.painted) return canvas.getAttribute("aria-label");
  if (!plot?.querySelector(".barlayer path") || !plot.on) return null;
  if (!plot.counted) { plot.counted = 1; plot.on("plotly_afterplot", () => { plot.counted += 1; }); }
  return String(plot.counted);
};
const once = (changed, done) => {
  const frame = requestAnimationFrame, look = () => (changed() ? frame(() => frame(done)) : frame(look));
  look();
};
once(mark, () => { window.first = Date.now() / 1000; });
document.addEventListener("keydown", () => {
  const begin = performance.now(), before = mark();
  window.moved = 0;
  once(() => mark() !== before, () => { window.moved = performance.now() - begin; });
}, true);
"""


def timed(lab, browser, way: str, boxes: int) -> dict:
    """{"first": seconds of the first draw, "moved": [seconds of every move]} on a fresh page."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.add_init_script(PROBE)
    cell = WAYS[way].format(ranks=SIZES[boxes][0], microbatches=SIZES[boxes][1])
    notebook = lab.open(page, f"{way}-{boxes}.ipynb", IMPORTS, cell)
    page.wait_for_function("window.first", timeout=PATIENCE)
    first = page.evaluate("window.first") - notebook.ask("began")
    page.wait_for_timeout(1500)
    handle, moves = page.locator(SLIDER[way]).first, []
    for i in range(MOVES):
        handle.focus()
        page.keyboard.press("ArrowRight" if i % 4 < 2 else "ArrowLeft")
        page.wait_for_function("window.moved", timeout=PATIENCE)
        moves.append(page.evaluate("window.moved") / 1000)
        page.wait_for_timeout(300)
    page.close()
    return {"first": first, "moved": moves}


def measured(rounds: int) -> dict:
    """{(what, boxes, way): median seconds}."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    found = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        root = pathlib.Path(folder)
        (root / "notebooks").mkdir()
        lab = Lab(root / "notebooks", root)
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            for _ in range(rounds):
                for boxes in SIZES:
                    for way in WAYS:
                        one = timed(lab, browser, way, boxes)
                        found.setdefault(("first", boxes, way), []).append(one["first"])
                        found.setdefault(("moved", boxes, way), []).extend(one["moved"])
        finally:
            browser.close()
            lab.stop()
    return {key: statistics.median(values) for key, values in found.items()}


def main(rounds: int, as_json: bool) -> int:
    """Print the table; returns 1 if a target is missed."""
    found, told, missed = measured(rounds), [], 0
    print(f"{'':24}{'canvas':>10}{'plotly':>10}{'ratio':>8}{'at most':>9}")
    for (what, boxes), most in TARGETS.items():
        ours, theirs = (found[what, boxes, way] for way in WAYS)
        verdict = "PASS" if ours <= most * theirs else "MISS"
        missed += verdict == "MISS"
        name = f"{'slider to painted' if what == 'moved' else 'first draw'}, {boxes}"
        line = partial("{:24}{:8.0f} ms{:7.0f} ms{:8.2f}{:9.2f}  {}".format, name, ours * 1e3, theirs * 1e3)
        print(line(ours / theirs, most, verdict))
        told.append({"what": what, "boxes": boxes, "canvas_s": ours, "plotly_s": theirs, "at_most": most})
    if as_json:
        print(json.dumps({"rows": told, "ok": not missed}))
    return int(bool(missed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=2, help="pages of every size and way (default: 2)")
    asked = parser.parse_args()
    sys.exit(main(asked.rounds, asked.json))
