"""Pictures in steps, live: a ring all-reduce and a matmul on a grid of ranks, for each value of a reader's choices."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from hybridlab.show.layouts.matmul_on_grid import NAMES, SIDES, MatmulOnGrid
from hybridlab.show.layouts.moving_parts import at_moment, for_page
from hybridlab.show.layouts.ring_of_ranks import MOST, Ring
from hybridlab.show.live.chooser import below_each_other
from hybridlab.show.live.module import packed
from hybridlab.show.live.shown import Shown
from hybridlab.show.paper.sheet import sheet
from hybridlab.show.paper.still import Still


class Choice(NamedTuple):
    """One choice of a reader: a slider over numbers, or buttons with names."""

    label: str
    values: Sequence
    first: int


def ring_panel(route: Callable, ranks: int, size: float | None) -> Shown:
    """A ring with a slider for its ranks; `route(p, rank)` gives the steps of a rank on a ring of p."""
    if ranks not in range(2, MOST + 1):
        raise ValueError(f"a ring of {ranks} ranks is not drawn: give a number from 2 to {MOST}")
    _check(size)
    choice = Choice("ranks p", range(2, MOST + 1), ranks - 2)
    draw = lambda p: Ring([route(p, rank) for rank in range(p)], size)
    return _panel(draw, [choice], lambda ring: (0.5, ring.steps // 2, ring.steps))


def grid_panel(moments: Callable, algorithms: Sequence[str], side: int, size: float | None) -> Shown:
    """A matmul with buttons for its algorithm and a slider for the side of its grid; `moments(algorithm, sizes, grid)`
    gives the steps of all ranks.
    """
    unknown = [one for one in algorithms if one not in NAMES]
    if unknown:
        raise ValueError(f"algorithm={unknown[0]!r} has no picture: choose from {', '.join(NAMES)}")
    if side not in SIDES:
        raise ValueError(f"side={side} has no picture: give a number from {min(SIDES)} to {max(SIDES)}")
    _check(size)
    named = Choice("algorithm", [NAMES[one] for one in algorithms], 0)
    sides = Choice("side of the grid q", SIDES, SIDES.index(side))
    of = dict(zip(named.values, algorithms))
    draw = lambda name, q: MatmulOnGrid(of[name], moments(of[name], (q, q, q), (q, q)), size)
    return _panel(draw, [named, sides], lambda grid: (1, grid.steps))


def _check(size):
    if size is not None and not size > 0:
        raise ValueError(f"size={size} cannot be a number of bytes: give one above 0")


def _panel(draw, choices, moments):
    """The pictures `draw(*values)` of all values together; `moments(picture)` are those that the static twin shows."""
    pictures = [draw(*values) for values in product(*(one.values for one in choices))]
    panels = packed([json.dumps({"told": one.told, "svg": _whole(one)}) for one in pictures])
    shown = [{"label": one.label, "values": list(one.values), "first": one.first} for one in choices]
    first = draw(*(one.values[one.first] for one in choices))
    return Shown({"show": "moving", "choices": shown, "panels": panels}, _still(first, moments(first)))


def _whole(picture):
    return sheet(picture.wide, picture.tall, picture.title, picture.told[-1], for_page(picture.parts()))


def _still(picture, moments):
    """Some moments, one below the other; between two steps, a moment has the words of the step that follows."""
    stills = []
    for moment in moments:
        told = picture.told[math.ceil(moment)]
        body = at_moment(picture.parts(), moment)
        stills.append(Still(sheet(picture.wide, picture.tall, picture.title, told, body), told))
    told = "\n".join([f"{picture.title}: {picture.summary}", *picture.told])
    return Still(below_each_other(stills), told)
