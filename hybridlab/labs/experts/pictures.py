"""Notebook 32, pictures: loads of experts, rank by rank; the route of the tokens; the busiest expert over the steps."""

from collections.abc import Sequence

from hybridlab.core.where.layout import even
from hybridlab.labs.experts.loads import Trained
from hybridlab.labs.experts.uneven import EXPERTS, by_rank, factor
from hybridlab.predict.bytes.experts import popular
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.cuts import shade
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import captioned, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, dashed, ink_on

WIDTH, LEFT, TOP, TALL, APART = 960, 40, 96, 220, 26
GROUND = TOP + TALL
PX, MUTED, GREEN = STYLE["pixels"], STYLE["muted"], STYLE["kinds"]["message"]["fill"]
BOLD = {"font-weight": "600"}
EXPONENTS = ("0", "0.5", "1", "1.5")
DASHES = ("solid", "solid", "dash")  # dashes of the three curves


# --- loads ----------------------------------------------------------------------------------------------------------


def bars(loads: Sequence[float], ranks: int, title: str, form: str = "{:.0f}") -> Still:
    """A bar for each expert, neighbours on one rank; a dashed line is the mean; the load of each rank is below.

    form  how to write a load

    >>> bars([2, 1, 1, 0], 2, "Loads")
    <picture Loads: rank 0 has the most, 3; the mean is 2. That is 1.50 times the mean>
    """
    at_ranks, mean, most = by_rank(loads, ranks), sum(loads) / ranks, max(loads)
    first = at_ranks.index(max(at_ranks))
    told = (
        f"{title}: rank {first} has the most, {form.format(at_ranks[first])}; the mean is {form.format(mean)}. "
        f"That is {factor(loads, ranks):.2f} times the mean"
    )
    wide = (WIDTH - 2 * LEFT - APART * (ranks - 1)) / len(loads)
    left = lambda expert, rank: LEFT + wide * expert + APART * rank
    home = [rank for rank, (begin, end) in enumerate(even(len(loads), ranks)) for _ in range(begin, end)]
    level = GROUND - TALL * sum(loads) / len(loads) / most
    out = [words(LEFT, 34, title, PX["heading"], **BOLD)]
    out += [_bar(left(expert, rank), wide, load / most) for (expert, rank), load in zip(enumerate(home), loads)]
    out.append(f'<path d="M{LEFT} {level:.1f}H{WIDTH - LEFT}" stroke="{STYLE["ink"]}" {dashed("limit")}/>')
    out.append(words(WIDTH - LEFT, 62, "below a bar: its expert; dashed: even loads", PX["axis"], "end", fill=MUTED))
    for (expert, rank), load in zip(enumerate(home), loads):
        out += _said(left(expert, rank) + wide / 2, wide, GROUND - TALL * load / most, level, expert, form.format(load))
    small = PX["axis"] if ranks <= 4 else PX["smallest"] + 1
    for rank, (begin, end) in enumerate(even(len(loads), ranks)):
        bold = BOLD if rank == first else {}
        name = f"rank {rank}: {form.format(at_ranks[rank])}"
        out.append(words(left((begin + end) / 2, rank), GROUND + 50, name, small, "middle", **bold))
    return _finished(out, GROUND + 84, title, told)


def _bar(x, wide, share):
    place = f'x="{x + 3:.1f}" y="{GROUND - TALL * share:.1f}" width="{wide - 6:.1f}" height="{TALL * share:.1f}"'
    return f'<rect {place} fill="{STYLE["kinds"]["F"]["fill"]}"/>'


def _said(middle, wide, top, level, expert, load):
    """The load over a bar, and the expert's number below it; if the dashed line would cross the load, in the bar."""
    small = PX["axis"] if wide > 44 else PX["smallest"]
    if not top - small - 10 < level < top + 2:
        yield words(middle, top - 6, load, small, "middle")
    elif GROUND - top > small + 10:
        yield words(middle, top + small + 4, load, small, "middle", fill=ink_on(STYLE["kinds"]["F"]["fill"]))
    else:
        yield words(middle, level - 6, load, small, "middle")
    name = f"expert {expert}" if wide > 70 else str(expert)
    yield words(middle, GROUND + 20, name, small, "middle", fill=MUTED)


def _finished(out, bottom, title, told):
    return captioned(WIDTH, bottom, title, told, out, LEFT, fill=0.9)


def hot() -> Chooser:
    """Loads by Zipf's law, for some exponents and numbers of ranks."""
    choices = {"exponent": ("exponent", list(EXPONENTS), "0.5"), "ranks": ("ranks", [2, 4, 8], 4)}
    return Chooser(hot_still, choices, [{}])


def hot_still(exponent: str, ranks: int) -> Still:
    """The loads of 16 experts, in percent of all choices."""
    loads = [100 * share for share in popular(EXPERTS, 1, float(exponent))]
    return bars(loads, ranks, f"Zipf, exponent {exponent}: percent of all choices", "{:.1f}")


def busiest(trained: dict[str, Trained], together: int = 5) -> Figure:
    """The load of the busiest expert over the mean, for each way to balance, averaged over several steps."""
    names = {"none": "nothing", "loss": "a loss", "bias": "a bias"}
    curves, ends = [], []
    for colour, dash, marker, (balance, one) in zip((3, 5, 2), DASHES, ("", "square", "circle"), trained.items()):
        steps = range(0, len(one.busiest), together)
        means = [_mean(one.busiest[step : step + together]) for step in steps]
        curves.append(
            Curve(f"balanced by {names[balance]}", [step + together / 2 for step in steps], means, colour, dash, marker)
        )
        ends.append(f"{names[balance]} {_mean(one.busiest[-10:]):.1f}")
    told = f"Over {together} steps at a time. In the last ten steps, times the mean: {', '.join(ends)}."
    ends_at = Axis("step", 0, max(len(one.busiest) for one in trained.values()))
    most = max(max(one.busiest) for one in trained.values())
    title = "Load of the busiest expert, over the mean"
    return chart(curves, ends_at, Axis("times the mean", 1, most + 0.2), title, told)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


# --- the way of the tokens ------------------------------------------------------------------------------------------

CHOSEN = ((2, 0, 3, 1), (1, 0, 2, 0))  # the expert of each token of two ranks; experts 0 and 1 are on rank 0
BOX, ACROSS, ROWS = (62, 30), 232, 204


def way() -> Still:
    """Eight tokens of two ranks as they are sent to four experts: in token order, sorted by expert, received, sorted
    again."""
    tokens = [[(4 * rank + place, expert) for place, expert in enumerate(its)] for rank, its in enumerate(CHOSEN)]
    sorted_ = [sorted(its, key=lambda one: one[1]) for its in tokens]
    came = [[one for its in sorted_ for one in its if one[1] // 2 == rank] for rank in range(2)]
    by_expert = [sorted(its, key=lambda one: one[1]) for its in came]
    title = "Eight tokens on their way to four experts"
    out = [words(LEFT, 34, title, PX["heading"], **BOLD)]
    for number, (name, columns) in enumerate(
        zip(("in order", "by expert", "arrived", "by expert"), (tokens, sorted_, came, by_expert))
    ):
        x = LEFT + 84 + ACROSS * number
        out.append(words(x + BOX[0] / 2, 76, name, PX["axis"], "middle", **BOLD))
        for rank, its in enumerate(columns):
            for place, one in enumerate(its):
                out += _token(x, 92 + ROWS * rank + place * (BOX[1] + 4), *one)
        out += _arrow(x + BOX[0], number) if number in (0, 2) else []
        out += _crossing(x + BOX[0], sorted_, came) if number == 1 else []
    for rank in range(2):
        out.append(words(LEFT, 112 + ROWS * rank, f"rank {rank}", PX["axis"], **BOLD))
    told = (
        "“5 → 0” is token 5, which chose expert 0; pale tokens are rank 0's, dark ones rank 1's. Experts 0 and 1 are "
        "on rank 0. Rank 0 sends 2 rows and keeps 2; of rank 1 it gets 3."
    )
    return _finished(out, 92 + 2 * ROWS, title, told)


def _token(x, y, number, expert):
    fill = shade("forward", number // 4, 2)
    yield f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="4" fill="{fill}"/>'
    yield words(x + BOX[0] / 2, y + 20, f"{number} → {expert}", PX["box"], "middle", fill=ink_on(fill))


def _arrow(x, number):
    """The sort between two columns."""
    for rank in range(2):
        y = 92 + ROWS * rank + 2 * (BOX[1] + 4)
        ends = f"M{x + 16} {y}H{x + ACROSS - BOX[0] - 16}m-9 -6l9 6l-9 6"
        yield f'<path d="{ends}" fill="none" stroke="{MUTED}" stroke-width="2"/>'
        yield words(x + (ACROSS - BOX[0]) / 2, y - 10, "sort", PX["axis"], "middle", fill=STYLE["ink"])


def _crossing(x, before, after):
    """The all-to-all: a line for each token, green where it goes to another rank."""
    place = {token: (rank, at) for rank, its in enumerate(after) for at, (token, _) in enumerate(its)}
    middle = lambda rank, at: 92 + ROWS * rank + at * (BOX[1] + 4) + BOX[1] / 2
    yield words(x + (ACROSS - BOX[0]) / 2, 76, "all-to-all", PX["axis"], "middle", fill=STYLE["ink"])
    for rank, its in enumerate(before):
        for at, (token, _) in enumerate(its):
            there = place[token]
            ends = f"M{x + 5} {middle(rank, at):g}L{x + ACROSS - BOX[0] - 5} {middle(*there):g}"
            colour, wide = (GREEN, 3) if there[0] != rank else (MUTED, 1.5)
            yield f'<path d="{ends}" fill="none" stroke="{colour}" stroke-width="{wide}"/>'
