"""The pictures of notebook 15: the version of the weights that each microbatch uses, and the training losses."""

import math
from collections.abc import Iterator

import hybridlab as hl
from hybridlab.labs.asynchronous.updates import Trained
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import heading, sheet, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, dashed, look

BOX, ROW, LEFT, TOP = 30, 50, 98, 104
PAIR, WIDEST = 75, 600  # from a pair to the next, less if there are many in a row; a whole row, at most
PX = STYLE["pixels"]
PENS = (
    (5, "solid", ""),
    (3, "dash", ""),
    (2, "solid", ""),
    (1, "dot", ""),
    (4, "dashdot", ""),
    (3, "", "circle-open"),  # points without a line: they lie on other curves
)
SMOOTH = 8  # microbatches whose mean is one point of a loss curve


def met(schedule: hl.Schedule, stash: bool = True) -> Iterator[tuple[int, int, int, int]]:
    """(rank, microbatch, version of its forward, version of its backward), computed from the order of each rank.

    Without stashing there is only the newest version: the number of updates before the action.

    >>> list(met(hl.schedule("pipedream", ranks=2, microbatches=2), stash=False))
    [(0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 0, 0), (1, 1, 1, 1)]
    """
    for rank, program in enumerate(schedule.program):
        updates, forward = 0, {}
        for action in program:
            version = action.version if stash else updates
            updates += action.kind == "OPT"
            if action.kind == "F":
                forward[action.microbatch] = version
            if action.kind == "B":
                yield rank, action.microbatch, forward[action.microbatch], version


def versions_met(schedule: hl.Schedule, stash: bool = True) -> Still:
    """A row per rank, a column per microbatch: the version that its forward used, and that of its backward.

    If the two differ, the pair is outlined: such a gradient mixes two sets of weights.
    """
    pairs = list(met(schedule, stash))
    mixed = sum(forward != backward for _, _, forward, backward in pairs)
    columns, title = 1 + max(m for _, m, _, _ in pairs), f"{schedule.name}, {'with' if stash else 'without'} stashing"
    summary = f"{title}: versions in forward and backward, rank by microbatch; they differ in {mixed} of {len(pairs)}"
    summary += ", with a frame" if mixed else ""
    step = min(PAIR, WIDEST // columns)
    width, bottom = LEFT + columns * step + 20, TOP + schedule.ranks * ROW
    out = [heading(LEFT, 28, title), *_legend()]
    out.append(words(LEFT - 12, TOP - 10, "microbatch", PX["smallest"], "end", fill=STYLE["muted"]))
    for m in range(columns):
        out.append(words(LEFT + step * (m + 0.4), TOP - 10, f"{m}", PX["axis"], "middle", fill=STYLE["muted"]))
    for rank in range(schedule.ranks):
        out.append(words(LEFT - 12, TOP + rank * ROW + 21, f"rank {rank}", PX["axis"], "end"))
    for pair in pairs:
        out += _pair(step, *pair)
    lines = wrap(summary, width - 60, PX["caption"])
    out += [words(20, bottom + 14 + 20 * i, line, PX["caption"], fill=STYLE["muted"]) for i, line in enumerate(lines)]
    return Still(sheet(width, bottom + 20 * len(lines) + 6, title, summary, out), summary)


def _pair(step, rank, microbatch, forward, backward):
    x, y, box = LEFT + step * microbatch, TOP + rank * ROW, 0.4 * step
    yield from _box(x, y, "F", str(forward), box)
    yield from _box(x + box, y, "B", str(backward), box)
    if forward != backward:
        outline = f'fill="none" stroke="{STYLE["error"]}" stroke-width="4" {dashed("mixed")}'
        yield f'<rect x="{x - 4}" y="{y - 4}" width="{2 * box + 8:g}" height="{BOX + 8}" {outline}/>'


def _box(x, y, kind, text, wide=BOX):
    its = look(kind)
    yield f'<rect x="{x:g}" y="{y}" width="{wide:g}" height="{BOX}" fill="{its.fill}" stroke="{STYLE["paper"]}"/>'
    yield words(x + wide / 2, y + 20, text, PX["box"], "middle", fill=its.text)


def _legend():
    for x, kind, side in ((LEFT, "F", "left"), (LEFT + 270, "B", "right")):
        yield from _box(x, 44, kind, "v")
        yield words(x + BOX + 8, 64, f"{side}: version in the {look(kind).name}", PX["caption"])


def learned(runs: dict[str, Trained]) -> Figure:
    """Loss over microbatches, each point the mean of `SMOOTH` microbatches, measured in real training."""
    curves, told = [], []
    for (name, run), pen in zip(runs.items(), PENS):
        each = SMOOTH // run.window
        parts = [run.losses[i : i + each] for i in range(0, len(run.losses), each)]
        losses = [sum(part) / each for part in parts]
        curves.append(Curve(name, [SMOOTH * (i + 1) for i in range(len(parts))], losses, *pen))
        told.append(f"{name}: {losses[-1]:.2f}")
    x = Axis("microbatches seen", 0, max(curve.x[-1] for curve in curves) + 2)
    most = max(max(filter(math.isfinite, curve.y)) for curve in curves)
    y = Axis("nats per token", 2, 1.05 * most)
    return chart(curves, x, y, "Loss while training, measured", f"Last point: {'; '.join(told)}")
