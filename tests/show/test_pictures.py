"""Pictures are what they were when they were recorded: each a digest in pictures.json.

Who changes a picture looks at build/pictures/NAME.svg, and then records it: python tests/show/test_pictures.py
"""

import hashlib
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine, model
from hybridlab.labs.axonn import pictures as axonn
from hybridlab.labs.context import pictures as context
from hybridlab.labs.convolution import pictures as convolution
from hybridlab.labs.data_parallel import pictures as data_parallel
from hybridlab.labs.experts import pictures as experts
from hybridlab.labs.hybrid import grid
from hybridlab.labs.layouts import pictures as layouts
from hybridlab.labs.matmul import pictures as matmul
from hybridlab.labs.megatron import pictures as megatron
from hybridlab.labs.one_device import pictures as one_device
from hybridlab.labs.out_of_core import pictures as out_of_core
from hybridlab.labs.sc21 import rows as sc21
from hybridlab.labs.slices import pictures as slices
from hybridlab.labs.zero import pictures as zero
from hybridlab.labs.zero.plan import Plan as ZeroPlan
from hybridlab.show.layouts.box_of_ranks import box_still
from hybridlab.show.layouts.stage_graph import stage_graph
from hybridlab.show.layouts.tiles import tiles
from hybridlab.show.paper.figure import Figure
from hybridlab.show.plans.plan_map import plan_map
from hybridlab.show.timelines.svg import animated, svg

HOUSE = Path(__file__).parents[2]
RECORD, LOOK = Path(__file__).with_name("pictures.json"), HOUSE / "build" / "pictures"


def timeline(name="1f1b", **more):
    return hl.simulate(hl.lower(hl.schedule(name, ranks=4, microbatches=8, **more)), hl.Costs(F=1, B=2, latency=0.25))


PICTURES = {
    "layout by a table": partial(layouts.layout_still, {"B": "i", "F": "j"}),
    "layouts cross": layouts.crossing,
    "a pair": partial(megatron.pair_still, megatron.SHAPE, 4),
    "a pair backward": partial(megatron.pair_still, megatron.SHAPE, 4, flow="backward"),
    "attention": partial(megatron.attention_still, megatron.SHAPE, 4, 2),
    "sums on ranks": lambda: tiles(
        [
            [np.eye(3, dtype=int) << r for r in range(4)],
            [15 * np.eye(3, dtype=int)] * 4,
            [np.full((3, 1), 5)] * 4,
            [16 * np.eye(3, dtype=int)] * 4,
        ],
        ["sum", "share", "update"],
        ["own", "all", "part", "alike"],
        "four ranks",
    ),
    "the game's board": lambda: hl.play(ranks=3, microbatches=2).twin,
    "a deadlock": lambda: hl.explore(hl.Schedule.from_csv("0F0,0B0\n1B0,1F0")).twin,
    "AxoNN's homes": partial(axonn.home_still, *next((grid, way) for grid in axonn.GRIDS for way in axonn.WAYS)),
    "ZeRO's bars": lambda: zero.bars(ZeroPlan()),
    "ZeRO's stages": lambda: zero.stages(ZeroPlan()),
    "three buckets": data_parallel.three,
    "bucket sizes": data_parallel.over_sizes_chart,
    "hot experts": partial(experts.hot_still, "0.5", 4),
    "the way of tokens": experts.way,
    "spans of a convolution": partial(convolution.spans_still, 5, 1),
    "who depends on whom": context.dependence,
    "packed documents": context.packed,
    "costs of slices": slices.triangle,
    "homes of a product": partial(matmul.home_still, "3D 2×2×2"),
    "words per rank": matmul.falling,
    "a grid of ranks": lambda: grid.picture(grid.mesh_of("pp dp tp", pp=2, dp=2, tp=2), 4, grid.PARAMETERS[0], 1),
    "a box of ranks": lambda: box_still(hl.Mesh(pp=3, dp=2, tp=2), 5, 4),
    "growth": one_device.growth,
    "placing and training": partial(one_device.placing_and_training, 175e9, 8, 80e9),
    "swapped": lambda: out_of_core.picture([*out_of_core.pipelines().values()][1]),
    "room over time": lambda: out_of_core.picture(out_of_core.pipelines()["in core"]),
    "a row of SC'21": partial(sc21.row_picture, "39.1B"),
    "branches": lambda: stage_graph(hl.schedule("subgraph", ranks=5, microbatches=4, branches=3), "abcde"),
    "a long chain": lambda: stage_graph(hl.schedule("1f1b", ranks=5, microbatches=8)),
    "a map of plans": lambda: plan_map(hl.plan(model("gpt-18.4b").shape, machine("a100"), gpus=64, batch=512)),
    "a timeline": lambda: svg(timeline()),
    "two timelines": lambda: svg(timeline(), timeline("interleaved", chunks=2), title="beside each other"),
    "a moving timeline": lambda: animated(timeline("zb_h1")),
    "a bubble's formula": lambda: hl.pictures.bubble_formula("interleaved").twin,
    "three knives": lambda: hl.pictures.cut_model().twin,
    "the calculator": lambda: hl.pictures.calculator().twin,
    "drawn": lambda: hl.draw(timeline("dualpipe_v")),
    "drawn small": lambda: hl.draw(*(timeline(name) for name in ("naive", "gpipe", "1f1b", "zb_h1")), columns=2),
}


def drawn(name: str) -> str:
    """A picture's SVG, and behind it its words; of a chart that moves, also what it is made from."""
    made = PICTURES[name]()
    if isinstance(made, str):
        return made
    still, more = (made.twin, made.to_json()) if isinstance(made, Figure) else (made.svg, "")
    return f"{still}\n<!-- {made.summary}\n{more} -->"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_it_was(name):
    text = drawn(name)
    if digest(text) != json.loads(RECORD.read_text(encoding="utf-8"))[name]:
        LOOK.mkdir(parents=True, exist_ok=True)
        (LOOK / f"{name}.svg").write_text(text, encoding="utf-8")
        pytest.fail(f"look at build/pictures/{name}.svg; if that is meant: python tests/show/test_pictures.py")


def test_every_picture_is_recorded_and_no_other():
    assert json.loads(RECORD.read_text(encoding="utf-8")).keys() == PICTURES.keys()


def main() -> int:
    """Record all pictures as they are now."""
    RECORD.write_text(json.dumps({name: digest(drawn(name)) for name in PICTURES}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
