"""A search as it went: the seconds of every strategy that it tried, where it stood, the best that it knew.

A filled dot is a strategy to which the search went, a hollow one it left alone. Other searches are level lines. Beside
the chart stands the strategy where the search is, operator by operator; a frame marks the operator that it asks about.
`search_trace` is the whole picture; `replayed` the same with a control that plays it, steps and scrubs.

Relatives: `predict.search.found`, what is drawn; `show.live.replay`, which moves it; notebook 43.
"""

from collections.abc import Mapping, Sequence

from hybridlab.core.what.operators import Strategy
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.search.found import Found
from hybridlab.show.live.replay import Replay
from hybridlab.show.paper.sheet import sheet, short, ticks, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE

WIDTH, LEFT, RIGHT, TALL, LINE = 960, 76, 590, 330, 26
PX, MUTED, GRID = STYLE["pixels"], STYLE["muted"], STYLE["grid"]
NOW, BEST = STYLE["curves"][5], STYLE["ink"]
RIVALS = (("#882255", "9 6"), ("#E69F00", "2 5"), ("#009E73", "9 5 2 5"), ("#56B4E9", "none"))
HIGHEST = 1.25  # what takes longer than so many times the start, or the slowest rival, is drawn at the upper edge
WHOLE = "–"  # an axis that cuts nothing


def search_trace(found: Found, start: Strategy, mesh: Mesh, rivals: Mapping[str, float], title: str) -> Still:
    """The picture of a whole search.

    start  the strategy that it began with;  rivals  {search: seconds of what it has found}

    >>> from hybridlab.predict.search.found import Tried
    >>> found = Found("mcmc", {"up": ("F",)}, 1e-3, (Tried(2e-3), Tried(1e-3, True, "up", ("F",))), 2)
    >>> search_trace(found, {"up": ("B",)}, Mesh(i=2), {"chain": 1e-3}, "Two tries")
    <picture mcmc: 2 ms at the start, 1 ms found at try 1 of 1, 1 kept; chain 1 ms>
    """
    told = summary(found, rivals)
    legend = _legend(found, rivals)
    top = 60 + LINE * (legend[-1][0] + 1) + 34
    frame = _Frame(found, rivals, top)
    out = [words(24, 34, title, PX["heading"], **{"font-weight": "600"})]
    out += [piece for row, x, *rest in legend for piece in _entry(62 + LINE * row, x, *rest)]
    out += [*_axes(frame), *_levels(frame, rivals), *_tries(frame, found), *_strategy(found, start, mesh, top)]
    ground = max(top + TALL, top + LINE * (len(start) + 1))
    lines = wrap(told, WIDTH - 48, PX["caption"])
    out += [words(24, ground + 76 + 21 * i, line, PX["caption"], fill=MUTED) for i, line in enumerate(lines)]
    return Still(sheet(WIDTH, ground + 70 + 21 * len(lines), title, told, out), told)


def replayed(found: Found, start: Strategy, mesh: Mesh, rivals: Mapping[str, float], title: str) -> Replay:
    """The same picture, to be played."""
    return Replay(search_trace(found, start, mesh, rivals, title), sentences(found))


def summary(found: Found, rivals: Mapping[str, float]) -> str:
    """A search in one line."""
    best = found.best
    at, last = best.index(best[-1]), len(best) - 1
    kept = sum(one.kept for one in found.trace[1:])
    told = f"{found.by}: {_ms(best[0])} at the start, {_ms(best[-1])} found at try {at} of {last}, {kept} kept"
    return "; ".join([told, *(f"{name} {_ms(seconds)}" for name, seconds in rivals.items())])


def sentences(found: Found) -> list[str]:
    """What each try was, in words."""
    told, best = [f"Start: {_ms(found.trace[0].seconds)}."], found.best
    for place, one in enumerate(found.trace[1:], 1):
        back = "back to the best; " if one.back else ""
        cut = " ".join(dim or WHOLE for dim in one.choice)
        verdict = "a new best" if best[place] < best[place - 1] else "kept" if one.kept else "left alone"
        told.append(f"Try {place}: {back}{one.operator} by {cut}, {_ms(one.seconds)}, {verdict}.")
    return told


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


class _Frame:
    """The chart's place on the page."""

    def __init__(self, found, rivals, top):
        levels = [found.trace[0].seconds, *rivals.values(), *found.best[-1:]]
        self.top, self.bottom, self.last = top, top + TALL, max(1, len(found.trace) - 1)
        self.high, low = 1e3 * HIGHEST * max(levels), 1e3 * min(levels)
        self.low = max(0.0, low - 0.12 * (self.high - low))

    def x(self, place):
        return LEFT + 8 + (RIGHT - LEFT - 16) * place / self.last

    def y(self, seconds):
        return self.bottom - TALL * (min(1e3 * seconds, self.high) - self.low) / (self.high - self.low)


def _legend(found, rivals):
    """(row, x, name, colour, dashes, width) of every line."""
    lines = [("where the search is", NOW, "none", 2.0), ("best so far", BEST, "none", 3.5)]
    lines += [(f"{name}, {_ms(s)}", *RIVALS[i % len(RIVALS)], 2.5) for i, (name, s) in enumerate(rivals.items())]
    out, x, row = [], 24.0, 0
    for name, *pen in lines:
        wide = 62 + 0.52 * PX["caption"] * len(name)
        if x + wide > WIDTH - 20:
            x, row = 24.0, row + 1
        out.append((row, x, name, *pen))
        x += wide + 12
    return out


def _entry(y, x, name, colour, dashes, width):
    yield f'<path d="M{short(x)} {y}h36" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    yield words(x + 44, y + 5, name, PX["caption"])


def _axes(frame):
    for value in ticks(frame.low, frame.high, 8):
        y = frame.y(value / 1e3)
        yield f'<path d="M{LEFT} {short(y)}H{RIGHT}" stroke="{GRID}"/>'
        yield words(LEFT - 8, y + 5, f"{value:g}", PX["axis"], "end")
    for place in sorted({round(one) for one in ticks(0, frame.last, 8)}):
        yield words(frame.x(place), frame.bottom + 22, str(place), PX["axis"], "middle")
    yield words((LEFT + RIGHT) / 2, frame.bottom + 44, "strategies tried", PX["axis"], "middle")
    yield words(LEFT - 8, frame.top - 14, "ms", PX["axis"], "end")


def _levels(frame, rivals):
    for i, seconds in enumerate(rivals.values()):
        colour, dashes = RIVALS[i % len(RIVALS)]
        pen = f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"'
        yield f'<path d="M{LEFT} {short(frame.y(seconds))}H{RIGHT}" {pen}/>'


def _tries(frame, found):
    """One group for each try: the lines that lead to it, and its dot."""
    now, best = found.now, found.best
    for place, one in enumerate(found.trace):
        x, before = short(frame.x(place)), short(frame.x(max(0, place - 1)))
        was = max(0, place - 1)
        lines = [
            f'<path d="M{before} {short(frame.y(its[was]))}H{x}V{short(frame.y(its[place]))}" fill="none" '
            f'stroke="{colour}" stroke-width="{wide}"/>'
            for its, colour, wide in ((now, NOW, 2), (best, BEST, 3.5))
        ]
        look = f'fill="{NOW}"' if one.kept else f'fill="none" stroke="{MUTED}"'
        dot = f'<circle cx="{x}" cy="{short(frame.y(one.seconds))}" r="{3.5 if one.kept else 3}" {look}/>'
        yield f'<g data-at="{place}">{"".join(lines)}{dot}</g>'


def _strategy(found, start, mesh, top):
    """A table of where the search is: each entry is there from one try to the next change."""
    x, step = RIGHT + 40, 54
    columns = {axis: x + 170 + step * i for i, axis in enumerate(mesh.axes)}
    row = {name: top + 6 + LINE * (i + 1) for i, name in enumerate(start)}
    yield words(x, top + 6, "operator", PX["axis"], fill=MUTED)
    for axis, at in columns.items():
        yield words(at, top + 6, f"{axis} cuts", PX["axis"], "middle", fill=MUTED)
    for name, y in row.items():
        yield words(x, y, name, PX["axis"])
    for name, spans in _spans(found, start).items():
        for begin, end, choice in spans:
            for at, dim in zip(columns.values(), choice):
                until = f' data-until="{end}"' if end is not None else ""
                hidden = "" if end is None else ' style="display:none"'
                text = words(at, row[name], dim or WHOLE, PX["axis"], "middle", **{"font-weight": "600"})
                yield f'<g data-at="{begin}"{until}{hidden}>{text}</g>'
    for place, one in enumerate(found.trace):
        if one.operator:
            box = f'x="{x - 8}" y="{row[one.operator] - 18}" width="{170 + step * len(columns)}" height="{LINE - 1}"'
            yield (
                f'<rect data-at="{place}" data-until="{place + 1}" style="display:none" {box} rx="4" fill="none" '
                f'stroke="{NOW}" stroke-width="2"/>'
            )


def _spans(found: Found, start: Strategy) -> dict[str, Sequence[tuple]]:
    """{operator: (from which try, until which, its choice)} of where the search is.

    >>> from hybridlab.predict.search.found import Tried
    >>> tried = Tried(2.0), Tried(1.0, True, "up", ("F",)), Tried(3.0, False, "up", ("",))
    >>> _spans(Found("mcmc", {}, 1.0, tried, 3), {"up": ("B",)})
    {'up': [(0, 1, ('B',)), (1, None, ('F',))]}
    """
    here, best = dict(start), (found.trace[0].seconds, dict(start))
    seen = {name: [(0, choice)] for name, choice in start.items()}
    for place, one in enumerate(found.trace):
        there = dict(best[1]) if one.back else dict(here)
        tried = there | ({one.operator: one.choice} if one.operator else {})
        here = tried if one.kept else there
        if one.seconds < best[0]:
            best = one.seconds, tried
        for name, choice in here.items():
            if seen[name][-1][1] != choice:
                seen[name].append((place, choice))
    ends = {name: [at for at, _ in its[1:]] + [None] for name, its in seen.items()}
    return {name: [(at, end, one) for (at, one), end in zip(its, ends[name])] for name, its in seen.items()}
