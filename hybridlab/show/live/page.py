"""The page: one HTML file with the explorer's picture and a grid of precomputed schedules; it needs no server.

`make page` writes it (`python -m hybridlab.show.live.page FILE`). It opens from the disk: no server, no install, no
network. The JavaScript (`module`) and the JSON of each picture (`picture`) are those of the widgets, compressed.
"""

import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hybridlab.core.files import put
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule, schedules
from hybridlab.show.live.module import HERE, module, packed, stylesheet
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.picture import picture, to_json
from hybridlab.show.timelines.svg import svg

FILE = Path("build/hybridlab.html")
COMPARED = ("naive", "gpipe", "1f1b", "zb_h1")  # one below the other on one time axis, as the first choice
AXES = {  # the choices besides the schedule: name, label, values
    "ranks": ("ranks p", (2, 3, 4, 6, 8)),
    "microbatches": ("microbatches m", (1, 2, 4, 8, 12, 16)),
    "ratio": ("backward ÷ forward", (1, 2, 3)),
}
FIRST = {"ranks": 4, "microbatches": 8, "ratio": 2}


def write(file: Path = FILE) -> Path:
    """Write the page to a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    put(file, page())
    return file


def page(**axes) -> str:
    """The page as text; `axes` replaces the values of some of `AXES`."""
    values = {name: axes.get(name, values) for name, (_, values) in AXES.items()}
    names = {", ".join(COMPARED): COMPARED} | {name: (name,) for name in schedules()}
    pictures = [_picture(chosen, *point) for chosen in names.values() for point in itertools.product(*values.values())]
    first = [values[name].index(FIRST[name]) if FIRST[name] in values[name] else 0 for name in AXES]
    labels = {label: values[name] for name, (label, _) in AXES.items()}
    parts = {
        "STYLE": stylesheet(),
        "MODULE": module("grid.js", "page.js"),
        "GRID": grid(list(names), labels, [0, *first], pictures),
        "TWIN": svg(*_timelines(COMPARED, **FIRST)),
    }
    text = (HERE / "page.html").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text


def grid(names: list[str], axes: dict[str, Sequence[int]], first: list[int], pictures: list[str], **more) -> str:
    """The data of grid.js, as JSON: a picture (JSON too) for every name and every point of the axes, in their order.

    axes   values by label;  first  the place of the first choice in each list, the names' before the axes'
    more   machine: open the machine view;  play: play once when visible
    """
    columns = [{"label": label, "values": list(values)} for label, values in axes.items()]
    whole = {"names": names, "axes": columns, "first": first, "style": STYLE, "pictures": packed(pictures)} | more
    return json.dumps(whole, separators=(",", ":"))


def _picture(names, ranks, microbatches, ratio):
    """One picture of the grid as JSON; if there is no such schedule, {"problem": a sentence}."""
    try:
        return to_json(picture(*_timelines(names, ranks, microbatches, ratio)))
    except ValueError as error:
        return json.dumps({"problem": str(error).split("\n")[0]})


def _timelines(names, ranks, microbatches, ratio):
    costs = Costs(F=1, I=ratio / 2, W=ratio / 2)
    return [simulate(schedule(name, ranks=ranks, microbatches=microbatches), costs) for name in names]


if __name__ == "__main__":
    written = write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    print(f"{written.name}: {written.stat().st_size / 1e6:.1f} MB; open it in a browser")
