"""The ring all-reduce, live: chunks that move from rank to rank, for each number of ranks."""

import json
from collections.abc import Callable

from hybridlab.show.layouts.moving_parts import at_moment, for_page
from hybridlab.show.layouts.ring_of_ranks import HEIGHT, MOST, WIDTH, Ring
from hybridlab.show.live.chooser import below_each_other
from hybridlab.show.live.module import packed
from hybridlab.show.live.shown import Shown
from hybridlab.show.paper.sheet import sheet
from hybridlab.show.paper.still import Still


def ring_panel(route: Callable, ranks: int, size: float | None) -> Shown:
    """The panel with its slider; `route(p, rank)` gives the steps of a rank on a ring of p."""
    if ranks not in range(2, MOST + 1):
        raise ValueError(f"a ring of {ranks} ranks is not drawn: give a number from 2 to {MOST}")
    if size is not None and not size > 0:
        raise ValueError(f"size={size} cannot be a number of bytes: give one above 0")
    values = list(range(2, MOST + 1))
    rings = [Ring([route(p, rank) for rank in range(p)], size) for p in values]
    panels = packed([json.dumps({"told": one.told, "svg": _whole(one)}) for one in rings])
    data = {"show": "moving", "label": "ranks p", "values": values, "first": values.index(ranks), "panels": panels}
    ring = rings[values.index(ranks)]
    return Shown(data, _still(ring))


def _whole(ring):
    return sheet(WIDTH, HEIGHT, ring.title, ring.told[-1], for_page(ring.parts()))


def _still(ring):
    """Three moments: in the first step, after the first round, at the end."""
    stills, half, end = [], ring.steps // 2, ring.steps
    for moment, told in ((0.5, ring.told[1]), (half, ring.told[half]), (end, ring.told[end])):
        stills.append(Still(sheet(WIDTH, HEIGHT, ring.title, told, at_moment(ring.parts(), moment)), told))
    told = "\n".join([f"{ring.title}: {ring.summary}", *ring.told])
    return Still(below_each_other(stills), told)
