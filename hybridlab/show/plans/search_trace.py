"""The trace of a search: the seconds of every strategy tried, the current one, and the best so far.

A filled dot is a strategy that the search accepted, a hollow one a strategy that it rejected. Other searches are level
lines. Next to the chart is the current strategy, operator by operator; a frame marks the operator that the try changes.
`search_trace` is the complete picture; `replayed` is the same with controls to animate, step and scrub.

Relatives: `predict.search.found` (the data), `show.live.replay` (the controls); notebook 43.
"""

from collections.abc import Mapping, Sequence

from hybridlab.core.what.operators import Strategy
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.search.found import Found
from hybridlab.show.charts.chart import PX, WIDTH, Axis, Curve, Frame, drawn, legend
from hybridlab.show.live.replay import Replay
from hybridlab.show.paper.sheet import captioned, heading, short, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE

RIGHT, TALL, LINE = 590, 330, 26
MUTED, NOW, BEST = STYLE["muted"], 5, 3  # colours of the current strategy and of the best so far
RIVALS = ((1, "dash"), (2, "dot"), (4, "dashdot"), (0, "solid"))
HIGHEST = 1.25  # times the start, or the slowest rival: slower tries are drawn at the upper edge
TRIED = Curve("tried, not kept", (), (), None, "", "circle-open")  # in the legend
WHOLE = "–"  # for an axis that cuts no dim


def search_trace(found: Found, start: Strategy, mesh: Mesh, rivals: Mapping[str, float], title: str) -> Still:
    """The picture of a complete search.

    start  the strategy that it began with;  rivals  {search: seconds of the strategy that it found}

    >>> from hybridlab.predict.search.found import Tried
    >>> found = Found("mcmc", {"up": ("F",)}, 1e-3, (Tried(2e-3), Tried(1e-3, True, "up", ("F",))), 2)
    >>> search_trace(found, {"up": ("B",)}, Mesh(i=2), {"chain": 1e-3}, "Two tries")
    <picture mcmc: 2 ms at the start, 1 ms found at try 1 of 1, 1 kept; chain 1 ms>
    """
    told, place = summary(found, rivals), Axis("strategies tried", 0, max(1, len(found.trace) - 1), whole=True)
    levels = [found.trace[0].seconds, *rivals.values(), *found.best[-1:]]
    high, low = 1e3 * HIGHEST * max(levels), 1e3 * min(levels)
    curves = [*_lines(found), *_levels(rivals, place)]
    names, top = legend([*curves, TRIED], 62)
    frame = Frame(place, Axis("ms", max(0.0, low - 0.12 * (high - low)), high), top + 60, TALL, right=RIGHT, inset=8)
    out = [heading(frame.left, 32, title), *names, *frame.levels(), *frame.feet(frame.bottom + 22)]
    out += [frame.under(frame.bottom + 44), words(frame.left - 10, frame.top - 14, "ms", PX["axis"], "end")]
    out += _tries(frame, found, curves[:2])
    for curve in curves[2:]:  # above the best so far, which ends on one of them
        out += drawn(curve, [frame.at(*point) for point in zip(curve.x, curve.y)])
    out += _strategy(found, start, mesh, frame.top)
    ground = max(frame.bottom, frame.top + LINE * (len(start) + 1))
    return captioned(WIDTH, ground + 76, title, told, out, foot=-6)


def replayed(found: Found, start: Strategy, mesh: Mesh, rivals: Mapping[str, float], title: str) -> Replay:
    """The picture of a search, with controls to animate it."""
    return Replay(search_trace(found, start, mesh, rivals, title), sentences(found))


def summary(found: Found, rivals: Mapping[str, float]) -> str:
    """A search in one line."""
    best = found.best
    at, last = best.index(best[-1]), len(best) - 1
    kept = sum(one.kept for one in found.trace[1:])
    told = f"{found.by}: {_ms(best[0])} at the start, {_ms(best[-1])} found at try {at} of {last}, {kept} kept"
    return "; ".join([told, *(f"{name} {_ms(seconds)}" for name, seconds in rivals.items())])


def sentences(found: Found) -> list[str]:
    """The description of each try."""
    told, best = [f"Start: {_ms(found.trace[0].seconds)}."], found.best
    for place, one in enumerate(found.trace[1:], 1):
        back = "back to the best; " if one.back else ""
        cut = " ".join(dim or WHOLE for dim in one.choice)
        verdict = "a new best" if best[place] < best[place - 1] else "kept" if one.kept else "left alone"
        told.append(f"Try {place}: {back}{one.operator} by {cut}, {_ms(one.seconds)}, {verdict}.")
    return told


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _lines(found):
    """The curves of the current strategy and of the best so far."""
    for name, seconds, *pen in (("where the search is", found.now, NOW, 2), ("best so far", found.best, BEST, 3.5)):
        colour, wide = pen
        yield Curve(name, range(len(seconds)), [1e3 * one for one in seconds], colour, "solid", wide=wide)


def _levels(rivals, place):
    for i, (name, seconds) in enumerate(rivals.items()):
        yield Curve(f"{name}, {_ms(seconds)}", (place.low, place.high), (1e3 * seconds,) * 2, *RIVALS[i % len(RIVALS)])


def _tries(frame, found, curves):
    """One group for each try: the lines that lead to it, and its dot."""
    at = lambda place, ms: frame.at(place, min(ms, frame.y.high))
    now = STYLE["curves"][NOW]
    for place, one in enumerate(found.trace):
        was, lines = max(0, place - 1), []
        for curve in curves:
            before, here = at(was, curve.y[was]), at(place, curve.y[place])
            lines += drawn(curve, [before, (here[0], before[1]), here])
        look = f'fill="{now}"' if one.kept else f'fill="none" stroke="{MUTED}"'
        x, y = at(place, 1e3 * one.seconds)
        dot = f'<circle cx="{short(x)}" cy="{short(y)}" r="{3.5 if one.kept else 3}" {look}/>'
        yield f'<g data-at="{place}">{"".join(lines)}{dot}</g>'


def _strategy(found, start, mesh, top):
    """A table of the current strategy: each entry is visible from one try to the next change."""
    x, step = RIGHT + 40, 54
    columns = {axis: x + 170 + step * i for i, axis in enumerate(mesh.axes)}
    row = {name: top + 6 + LINE * (i + 1) for i, name in enumerate(start)}
    yield words(x, top - 20, "where the search is", PX["axis"], **{"font-weight": "600"})
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
                f'stroke="{STYLE["curves"][NOW]}" stroke-width="2"/>'
            )


def _spans(found: Found, start: Strategy) -> dict[str, Sequence[tuple]]:
    """{operator: [(first try, try of the next change, its choice), …]} of the current strategy.

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
