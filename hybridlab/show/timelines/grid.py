"""A grid: a picture of very many boxes as cells, so its size depends on the screen and not on the schedule."""

from typing import NamedTuple

import numpy as np

from hybridlab.show.timelines.drawn import Boxes

MANY = 2000  # more boxes than this are drawn as a grid


class Grid(NamedTuple):
    """Cells: `look[row, column]` is a number into the boxes' looks, or -1 where nothing lies.

    y  the edges of the rows, in lane heights;  x  the edges of the columns, in time
    """

    y: np.ndarray
    x: np.ndarray
    look: np.ndarray


def grid(picture: Boxes, columns: int) -> Grid:
    """The boxes as cells: a cell shows the box that lies over its middle.

    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> from hybridlab.show.timelines.boxes import boxes
    >>> grid(boxes(simulate(schedule("gpipe", ranks=1, microbatches=2))), columns=6).look.tolist()
    [[0, 0, 1, 1, 1, 1]]
    """
    y = np.unique(np.concatenate([picture.y0, picture.y1]))
    x = np.linspace(0, picture.width, columns + 1)
    middles = (x[:-1] + x[1:]) / 2
    look = np.full((len(y) - 1, columns), -1)
    order = np.argsort(picture.x0, kind="stable")
    y0, y1 = picture.y0[order], picture.y1[order]
    for row, (top, bottom) in enumerate(zip(y, y[1:])):
        here = order[(y0 <= top) & (y1 >= bottom)]
        if len(here):
            last = np.searchsorted(picture.x0[here], middles, side="right") - 1
            box = here[np.maximum(last, 0)]
            look[row] = np.where((last >= 0) & (picture.x1[box] > middles), picture.look[box], -1)
    return Grid(y, x, look)


def runs(cells: Grid):
    """Yield (look, x0, x1, y0, y1) for every run of equal cells in a row of a grid."""
    for row, line in enumerate(cells.look):
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(line)) + 1, [len(line)]])
        for a, b in zip(cuts.tolist(), cuts[1:].tolist()):
            if line[a] >= 0:
                yield int(line[a]), cells.x[a], cells.x[b], cells.y[row], cells.y[row + 1]
