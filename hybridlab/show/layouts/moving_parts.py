"""Parts of a picture that appear, move and disappear: a static picture of one moment, or all moments for a web page."""

import math
from collections.abc import Iterable
from typing import NamedTuple


class Part(NamedTuple):
    """A part of a picture in steps: it is there from the end of step `at` until the end of step `until`.

    by  for a part that moves: the distance to the right and down from its place in `svg`, at a constant speed

    >>> one = Part('<circle r="3"/>', at=1, until=2, by=(10, 0))
    >>> at_moment([one], 1.5)
    ['<g transform="translate(5 0)"><circle r="3"/></g>']
    >>> at_moment([one], 2), for_page([one])
    ([], ['<g data-at="1" data-until="2" data-by="10 0"><circle r="3"/></g>'])
    """

    svg: str
    at: float = 0
    until: float = math.inf
    by: tuple[float, float] | None = None


def at_moment(parts: Iterable[Part], moment: float) -> list[str]:
    """The parts that are there at a moment, where they then are, as SVG elements."""
    out = []
    for svg, at, until, by in parts:
        if not at <= moment < until or (by and moment == at):
            continue
        share = (moment - at) / (until - at) if by else 0
        out.append(f'<g transform="translate({by[0] * share:g} {by[1] * share:g})">{svg}</g>' if by else svg)
    return out


def for_page(parts: Iterable[Part]) -> list[str]:
    """All parts as SVG elements; `moving.js` shows, hides and moves those that change between steps."""
    out = []
    for svg, at, until, by in parts:
        marks = [f'data-at="{at:g}"'] * (at > 0 or by is not None)
        marks += [f'data-until="{until:g}"'] * (until < math.inf)
        marks += [f'data-by="{by[0]:g} {by[1]:g}"'] if by else []
        out.append(f"<g {' '.join(marks)}>{svg}</g>" if marks else svg)
    return out
