"""The steps of SUMMA and Cannon's algorithm: the spans of k that ranks have and want, and the messages that follow.

`panel_steps` and `shift_steps` are the steps of one rank; `matmul` runs them. `moments` are the same steps on all
ranks; pictures show them. A message is the overlap of one rank's span and the span that another one wants, as
`world.talk.windows` finds it. Ranks are numbered along the rows of the grid.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hybridlab.core.where.layout import even
from hybridlab.core.where.spans import Span, overlap
from hybridlab.world.talk.windows import turned


class Spans(NamedTuple):
    """The spans of k, (from, to), that the ranks along an axis have and want; the arguments of `typed.window`."""

    have: tuple[Span, ...]
    want: tuple[Span, ...]


class Step(NamedTuple):
    """One step of one rank: the spans of A's columns in its row of the grid, and those of B's rows in its column."""

    a: Spans
    b: Spans


def panel_steps(k: int, grid: tuple[int, int], panels: int | None = None) -> list[Step]:
    """SUMMA's steps, which are the same for all ranks: in each step, all ranks need the next panel of k.

    k       the inner size
    grid    rows and columns of ranks
    panels  of k; None: the number of ranks on the longer side of the grid

    >>> panel_steps(4, (2, 2))[1].a
    Spans(have=((0, 2), (2, 4)), want=((2, 4), (2, 4)))
    """
    r, c = grid
    every = even(k, panels or max(grid))
    return [Step(Spans(even(k, c), (panel,) * c), Spans(even(k, r), (panel,) * r)) for panel in every]


def shift_steps(k: int, side: int, place: tuple[int, int], numbers: Iterable[int]) -> list[Step]:
    """Cannon's steps with these indices: in step s, the rank at (i, j) needs block i+j+s of its row and of its column.

    k        the inner size
    side     of the square grid
    place    (i, j) of the rank
    numbers  of the steps; all of Cannon's are range(side)

    >>> [step.b.want for step in shift_steps(4, 2, (0, 1), range(2))]
    [((2, 4), (0, 2)), ((0, 2), (2, 4))]
    """
    (i, j), blocks = place, even(k, side)
    steps, have = [], (blocks, blocks)
    for number in numbers:
        want = turned(blocks, i + number), turned(blocks, j + number)
        steps.append(Step(*map(Spans, have, want)))
        have = want
    return steps


class Sends(NamedTuple):
    """One message: its sender, its receiver, its matrix ("A" or "B"), the span of k that is sent, and the number of
    words."""

    source: int
    target: int
    what: str
    span: Span
    words: int


class Moment(NamedTuple):
    """The end of one step, on all ranks.

    sends  the messages of this step
    a, b   the span of k that each rank now holds: a for its rows of A, b for its columns of B
    done   the spans of k that are summed in each rank's block of C
    """

    sends: tuple[Sends, ...]
    a: tuple[Span, ...]
    b: tuple[Span, ...]
    done: tuple[tuple[Span, ...], ...]


ALGORITHMS = ("summa", "summa_ahead", "cannon")


def moments(algorithm: str, sizes: tuple[int, int, int], grid: tuple[int, int]) -> list[Moment]:
    """The steps of a matmul of (m, k, n) = sizes on r × c ranks, preceded by one Moment with the first blocks.

    raises  ValueError for another algorithm, and for Cannon's on a grid that is not square

    >>> [len(one.sends) for one in moments("cannon", (4, 4, 4), (2, 2))], moments("cannon", (4, 4, 4), (2, 2))[1].a
    ([0, 4, 8], ((0, 2), (2, 4), (2, 4), (0, 2)))
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"there is no algorithm {algorithm!r} with steps: choose one of {', '.join(ALGORITHMS)}")
    if algorithm == "cannon" and grid[0] != grid[1]:
        raise ValueError(f"cannon needs a square grid: give one instead of {grid[0]}×{grid[1]}")
    if algorithm == "summa_ahead":
        return _ahead(moments("summa", sizes, grid))
    (_, k, _), (r, c) = sizes, grid
    places = [(i, j) for i in range(r) for j in range(c)]
    routes = [shift_steps(k, r, at, range(r)) if algorithm == "cannon" else panel_steps(k, grid) for at in places]
    found = [Moment((), *_held("have", [route[0] for route in routes], places), ((),) * len(places))]
    for steps in zip(*routes):
        have, want = _held("have", steps, places), _held("want", steps, places)
        sends = [*_sends("A", have[0], want[0], sizes, grid), *_sends("B", have[1], want[1], sizes, grid)]
        done = tuple((*before, span) for before, span in zip(found[-1].done, want[0]))
        found.append(Moment(tuple(sends), *want, done))
    return found


def _ahead(every):
    """SUMMA's steps, if each panel is under way while the previous one is multiplied: there is one more step."""
    done = [every[0].done, *(one.done for one in every)]
    last = every[-1]._replace(sends=())
    return [one._replace(done=summed) for one, summed in zip((*every, last), done)]


def _held(which, steps, places):
    """The spans of k that each rank has, or wants, in one step, for A and for B."""
    a = tuple(getattr(step.a, which)[j] for step, (_, j) in zip(steps, places))
    return a, tuple(getattr(step.b, which)[i] for step, (i, _) in zip(steps, places))


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
