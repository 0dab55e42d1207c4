"""Notebook 42: the ten rows of table 1 as a picture: published, by formula, predicted, and the errors."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from hybridlab.predict.papers.published import published
from hybridlab.predict.papers.sc21 import A100, Row, errors, fitted, table
from hybridlab.predict.plans.performance import Fit
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import MARKS, STYLE, dashed

PRINTED = {f"{row['params_billion']:g}B": row for row in published("megatron_sc21_table1")}
ROWS: dict[str, Row] = dict(zip(PRINTED, table()))
LABELS, NOTHING = tuple(ROWS), "nothing"
the_errors = cache(errors)


@cache
def refitted(hidden: str = NOTHING) -> Fit:
    """The fit on table 1 without the row of this name.

    raises  ValueError when there is no such row

    >>> refitted() == refitted("nothing"), refitted("1.7B") == refitted()
    (True, False)
    """
    if hidden not in (NOTHING, *LABELS):
        raise ValueError(f"there is no row {hidden!r}: choose one of {', '.join(LABELS)}, or {NOTHING!r}")
    return fitted([row for label, row in ROWS.items() if label != hidden])


def off(label: str, hidden: str = NOTHING) -> float:
    """The relative error of a row's predicted rate, by the fit without a hidden row.

    >>> f"{off('1008B'):+.1%} as seen, {off('1008B', hidden='1008B'):+.1%} hidden"
    '-0.6% as seen, -1.5% hidden'
    """
    row = ROWS[label]
    return row.predicted(refitted(hidden)) / row.printed - 1


def signed(share: float) -> str:
    """A relative error as text, never "-0.0%".

    >>> signed(-0.0004), signed(0.031)
    ('+0.0%', '+3.1%')
    """
    return f"{round(share, 3) + 0.0:+.1%}"


# --- the picture ------------------------------------------------------------------------------------------------

WIDTH, TOP, ROW_TALL, PX = 960, 92, 30, STYLE["pixels"]
ZERO, PER_PERCENT = 860, 6.0  # the scale of errors: the place of 0, pixels for 1 %
SEEN, LEFT_OUT, CONSTANT = ("square", 5), ("circle", 1), ("diamond", 3)


class Column(NamedTuple):
    """One column: the place where it ends, its heading in two lines, and its text for a row."""

    right: int
    heading: tuple[str, str]
    text: Callable[[Row, dict, Fit], str]


COLUMNS = (
    Column(70, ("", "model"), lambda row, printed, fit: f"{printed['params_billion']:g}B"),
    Column(148, ("12lh² (1+…)", "billion"), lambda row, printed, fit: f"{row.shape.parameters / 1e9:.2f}"),
    Column(202, ("", "GPUs"), lambda row, printed, fit: f"{printed['gpus']}"),
    Column(284, ("", "p · t · d"), lambda row, printed, fit: f"{row.plan.p} · {row.plan.t} · {row.plan.d}"),
    Column(322, ("", "b"), lambda row, printed, fit: f"{row.plan.b}"),
    Column(350, ("", "v"), lambda row, printed, fit: f"{row.plan.v}"),
    Column(426, ("PFLOP/s", "n · X"), lambda row, printed, fit: f"{printed['gpus'] * row.printed / 1e3:.1f}"),
    Column(496, ("PFLOP/s", "printed"), lambda row, printed, fit: f"{printed['aggregate_pflops']:.1f}"),
    Column(562, ("% peak", "X / 312"), lambda row, printed, fit: f"{row.printed * 1e14 / A100.peak:.1f}"),
    Column(632, ("% peak", "printed"), lambda row, printed, fit: f"{printed['pct_peak']}"),
    Column(702, ("TFLOP/s", "printed"), lambda row, printed, fit: f"{row.printed}"),
    Column(770, ("TFLOP/s", "model"), lambda row, printed, fit: f"{row.predicted(fit):.1f}"),
)  # fmt: skip


def picture(row: str, hidden: str = NOTHING) -> Still:
    """Table 1 with one row marked; a hidden row is not part of the fit and has a dashed frame."""
    fit = refitted(hidden)
    out = [heading(24, 32, "Table 1 of SC'21, and what we predict")]
    out += [*_legend(), *_headings(), *_scale()]
    for place, label in enumerate(LABELS):
        out += _row(label, TOP + ROW_TALL * place, row, hidden, fit)
    bottom = TOP + ROW_TALL * len(LABELS) + 44
    told = summary(row, hidden)
    return captioned(WIDTH, bottom, "Table 1, published and predicted", told, out, fill=0.95)


def summary(row: str, hidden: str = NOTHING) -> str:
    """The picture in words."""
    fit, one = refitted(hidden), ROWS[row]
    numbers = f"{fit.multiply:.1%} of the peak, {fit.memory:.1%} of the bandwidth, {fit.launch * 1e3:.2f} milliseconds"
    rows = "ten rows" if hidden == NOTHING else f"nine rows, without {hidden}"
    told = f"{row}: {one.printed} TFLOP/s printed, {one.predicted(fit):.1f} predicted, {signed(off(row, hidden))}"
    if hidden != NOTHING:
        told += f"; the hidden {hidden} is off by {signed(off(hidden, hidden))}, as seen by {signed(off(hidden))}"
    seen, left_out, constant = (f"{mean:.1%}" for mean in the_errors().means)
    return (
        f"Fitted on {rows}: {numbers} for each layer. {told}. Mean size of the errors: {seen} seen, {left_out} left "
        f"out, {constant} by one rate for all rows"
    )


def _legend():
    out, x = [], 500
    for look, name in ((SEEN, "by this fit"), (LEFT_OUT, "row left out"), (CONSTANT, "one rate for all")):
        out += [_mark(look, x, 27, hollow=look is not SEEN), words(x + 13, 32, name, PX["caption"])]
        x += 42 + 0.5 * PX["caption"] * len(name)
    return out + [words(ZERO, 58, "error, %", PX["caption"], "middle")]


def _headings():
    small, out = PX["smallest"] + 1, []
    for column in COLUMNS:
        for line, text in enumerate(column.heading):
            out.append(words(column.right, 62 + 17 * line, text, small, "end", fill=STYLE["muted"]))
    return out


def _scale():
    out, bottom = [], TOP + ROW_TALL * len(LABELS)
    for percent in (-10, -5, 0, 5, 10):
        x = ZERO + PER_PERCENT * percent
        colour, text = (STYLE["muted"] if percent == 0 else STYLE["grid"]), f"{percent:+d}" if percent else "0"
        out.append(f'<path d="M{x:g} {TOP - 4}V{bottom}" stroke="{colour}"/>')
        out.append(words(x, TOP - 14, text, PX["smallest"], "middle"))
    return out


def _row(label, y, chosen, hidden, fit):
    """One row; a press on it sends its label."""
    row, bold = ROWS[label], {"font-weight": "600"} if label == chosen else {}
    out = [f'<g data-press="{label}" style="cursor:pointer">']
    tint = f'fill="{STYLE["kinds"]["F"]["fill"]}" fill-opacity="{0.13 if label == chosen else 0}"'
    out.append(f'<rect x="16" y="{y}" width="{WIDTH - 32}" height="{ROW_TALL}" {tint}/>')
    if label == hidden:
        place = f'x="17" y="{y + 2}" width="{WIDTH - 34}" height="{ROW_TALL - 4}"'
        out.append(f'<rect {place} fill="none" stroke="{STYLE["error"]}" stroke-width="2" {dashed("hidden")}/>')
    for column in COLUMNS:
        text = column.text(row, PRINTED[label], fit)
        out.append(words(column.right, y + 20, text, PX["box"], "end", **bold))
    middle, its = y + ROW_TALL / 2, the_errors()
    for look, error in ((CONSTANT, its.constant), (LEFT_OUT, its.left_out)):
        out.append(_mark(look, ZERO + 100 * PER_PERCENT * error[LABELS.index(label)], middle, hollow=True))
    return [*out, _mark(SEEN, ZERO + 100 * PER_PERCENT * off(label, hidden), middle), "</g>"]


def _mark(look, x, y, hollow=False):
    shape, number = look
    colour = STYLE["curves"][number]
    pen = f'fill="{"none" if hollow else colour}" stroke="{colour}" stroke-width="{2 if hollow else 0}"'
    return f'<path d="{MARKS[shape]}" {pen} transform="translate({x:.1f} {y:.1f})"/>'
