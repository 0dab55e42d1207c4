"""Notebook 43, pictures: the cost of a strategy chosen with buttons, operator by operator; the replay of a search.

Work is blue, as a forward. Messages that operators wait for are green. All-reduces of gradients are light green: only
the update waits for them. Stripes tell these apart as well.
"""

from hybridlab.core.what.operators import Strategy
from hybridlab.labs.search.tables import WHOLE, ms, written
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.found import Found
from hybridlab.predict.search.problem import Problem
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.live.replay import Replay
from hybridlab.show.paper.sheet import captioned, heading, short, ticks, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, mix
from hybridlab.show.plans.search_trace import replayed
from hybridlab.show.plans.shares import BACK, SLANT, Part, box, patterns

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 960, 220, 40, 120, 36, 24
PX, PAPER = STYLE["pixels"], STYLE["paper"]
HEADS = ((LEFT - 114, "operator"), (LEFT - 14, "cut along"))  # of the columns: where they end
GREEN = STYLE["kinds"]["message"]["fill"]
LOOKS = {  # in the order in which they are drawn
    "work": Part("work", STYLE["kinds"]["F"]["fill"]),
    "messages": Part("messages", GREEN, BACK),
    "sums": Part("sums of gradients", mix(GREEN, PAPER, 0.6), SLANT),
}


def by_hand(problem: Problem, longest: float | None = None) -> Chooser:
    """A row of buttons for each operator of a problem on one axis; it begins with data parallelism.

    longest  end of the time axis in seconds; by default the step of data parallelism
    """
    start = data_parallel(problem).strategy
    longest = longest or problem.seconds(start)
    options = {name: [dim or WHOLE for (dim,) in its] for name, its in problem.choices.items()}
    choices = {name: (name, its, start[name][0]) for name, its in options.items()}

    def draw(**chosen):
        strategy = {name: ("" if dim == WHOLE else dim,) for name, dim in chosen.items()}
        return priced(problem, strategy, longest)

    whole = {name: WHOLE for name in options}
    return Chooser(draw, choices, [{}, whole])


def priced(problem: Problem, strategy: Strategy, longest: float) -> Still:
    """The cost of a strategy, operator by operator; `longest` seconds are as wide as the picture.

    >>> from hybridlab.labs.search.sizes import IMAGES
    >>> priced(IMAGES, {name: ("",) for name in IMAGES.choices}, 0.02).summary.split(": ")[0]
    'Nothing is cut'
    """
    parts = problem.parts(strategy)
    rows = [(part.forward + part.backward, part.there + part.back, part.sums) for part in parts]
    together = [sum(column) for column in zip(*rows)]
    name = _name(problem, strategy)
    told = f"{name}: {ms(sum(together))}; " + ", ".join(
        f"{part.name} {ms(seconds)}" for part, seconds in zip(LOOKS.values(), together)
    )
    ground = TOP + ROW * (len(rows) + 1)
    scale = (WIDTH - LEFT - RIGHT) / (1e3 * longest)
    out = [patterns(LOOKS), heading(24, 34, f"{name}: one step takes {ms(sum(together))}"), *_legend()]
    for tick in ticks(0, 1e3 * longest, 9):
        x = LEFT + tick * scale
        out.append(f'<path d="M{short(x)} {TOP - 6}V{ground - 8}" stroke="{STYLE["grid"]}"/>')
        out.append(words(x, ground + 12, f"{tick:g}", PX["axis"], "middle"))
    out.append(words(WIDTH - RIGHT, ground + 34, "time, ms", PX["axis"], "end"))
    out += [words(at, TOP - 12, text, PX["axis"], "end", fill=STYLE["muted"]) for at, text in HEADS]
    names = [*((part.operator, written(strategy[part.operator])) for part in parts), ("together", "")]
    for number, (operator_and_cut, row) in enumerate(zip(names, [*rows, together])):
        out += _bar(operator_and_cut, row, TOP + ROW * number, scale)
    return captioned(WIDTH, ground + 58, "The cost of a strategy", told, out, foot=-2)


def _name(problem, strategy) -> str:
    """A strategy in few words."""
    if strategy == data_parallel(problem).strategy:
        return "Data parallelism"
    if not any(dim for cuts in strategy.values() for dim in cuts):
        return "Nothing is cut"
    return "Cut along " + ", ".join(written(cuts) for cuts in strategy.values())


def _legend():
    out, x = [], 24
    for key, part in LOOKS.items():
        out += [*box(key, part, x, 52, 20, 16), words(x + 28, 65, part.name, PX["caption"])]
        x += 28 + 0.5 * PX["caption"] * len(part.name) + 30
    return out


def _bar(names, seconds, y, scale):
    """One bar; a bar that is too long is cut off at the edge of the picture, with an arrow."""
    for (at, _), name in zip(HEADS, names):
        yield words(at, y + BAR / 2 + 5, name, PX["axis"], "end")
    x, edge = LEFT, WIDTH - RIGHT
    for (key, part), spent in zip(LOOKS.items(), seconds):
        end = min(edge, x + 1e3 * spent * scale)
        if end > x:
            yield from box(key, part, x, y, end - x, BAR)
        x = end
    if 1e3 * sum(seconds) * scale > edge - LEFT + 0.5:
        yield words(edge + 6, y + BAR / 2 + 6, "▸", PX["heading"])


def replay(problem: Problem, found: Found, rivals: dict[str, Found], title: str) -> Replay:
    """A walk from data parallelism, together with the results of other searches."""
    start = data_parallel(problem).strategy
    return replayed(found, start, problem.mesh, {name: one.seconds for name, one in rivals.items()}, title)
