"""The blocks that every rank holds, needs and sends in each step of SUMMA and Cannon's algorithm, from spans alone.

The spans are those with which `modes.products.matmul` calls `window`. A message is the overlap of one rank's need and
another rank's block, as `world.talk.windows` finds it. Ranks are numbered along the rows of the grid.
"""

from typing import NamedTuple

from hybridlab.core.where.layout import even
from hybridlab.world.talk.windows import Span, overlap, turned


class Sends(NamedTuple):
    """One message: its sender, its receiver, its matrix ("A" or "B"), the span of k that is sent, and the number of
    words."""

    source: int
    target: int
    what: str
    span: Span
    words: int


class Moment(NamedTuple):
    """One step on all ranks.

    sends  the messages that the step begins with
    a, b   the span of k that each rank then holds of its rows of A, of its columns of B
    done   the spans of k that are summed in each rank's block of C, after the matmul of this step
    flying whether the messages are in flight during the matmul, for the next step
    """

    sends: tuple[Sends, ...]
    a: tuple[Span, ...]
    b: tuple[Span, ...]
    done: tuple[tuple[Span, ...], ...]
    flying: bool = False


ALGORITHMS = ("summa", "cannon")


def moments(algorithm: str, sizes: tuple[int, int, int], grid: tuple[int, int]) -> list[Moment]:
    """The steps of a matmul of (m, k, n) = sizes on r × c ranks, preceded by one Moment with the home blocks.

    raises  ValueError for another algorithm, and for Cannon's on a grid that is not square

    >>> [len(one.sends) for one in moments("cannon", (4, 4, 4), (2, 2))], moments("cannon", (4, 4, 4), (2, 2))[1].a
    ([0, 4, 8], ((0, 2), (2, 4), (2, 4), (0, 2)))
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"there is no picture of {algorithm!r}: choose one of {', '.join(ALGORITHMS)}")
    if algorithm == "cannon" and grid[0] != grid[1]:
        raise ValueError(f"cannon needs a square grid: give one instead of {grid[0]}×{grid[1]}")
    k, (r, c) = sizes[1], grid
    columns, lines = even(k, c), even(k, r)
    places = [(i, j) for i in range(r) for j in range(c)]
    a, b = tuple(columns[j] for _, j in places), tuple(lines[i] for i, _ in places)
    found, done = [Moment((), a, b, ((),) * len(places))], ((),) * len(places)
    for step in range(r if algorithm == "cannon" else max(r, c)):
        want_a, want_b = _wants(algorithm, k, grid, step, places)
        home = found[0] if algorithm == "summa" else found[-1]  # SUMMA's owners keep their blocks
        sends = [*_sends("A", home.a, want_a, sizes, grid), *_sends("B", home.b, want_b, sizes, grid)]
        done = tuple((*before, span) for before, span in zip(done, want_a))
        found.append(Moment(tuple(sends), want_a, want_b, done))
    return found


def ahead(every: list[Moment]) -> list[Moment]:
    """SUMMA's steps with the next panel under way while this one is multiplied.

    >>> [len(one.sends) for one in ahead(moments("summa", (4, 4, 4), (2, 2)))]
    [0, 4, 4, 0]
    """
    home, *steps = every
    coming = [*(one.sends for one in steps), ()]
    begun = [home._replace(sends=coming[0], flying=True)]
    return [home, *begun, *(one._replace(sends=next, flying=True) for one, next in zip(steps, coming[1:]))]


def _wants(algorithm, k, grid, step, places):
    """The spans of k that each rank wants of A and of B in one step."""
    r, c = grid
    if algorithm == "summa":
        panel = even(k, max(r, c))[step]
        return (panel,) * len(places), (panel,) * len(places)
    blocks = even(k, c)
    return tuple(turned(blocks, i + step)[j] for i, j in places), tuple(turned(blocks, j + step)[i] for i, j in places)


def _sends(what, have, want, sizes, grid):
    """Messages of A travel within rows of the grid, those of B within columns."""
    (m, _, n), (r, c) = sizes, grid
    ranks = range(r * c)
    for target in ranks:
        for source in ranks:
            same = source // c == target // c if what == "A" else source % c == target % c
            begin, end = overlap(have[source], want[target])
            if same and source != target and end > begin:
                first, last = even(m, r)[source // c] if what == "A" else even(n, c)[source % c]
                yield Sends(source, target, what, (begin, end), (end - begin) * (last - first))
