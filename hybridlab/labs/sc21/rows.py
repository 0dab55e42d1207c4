"""Notebook 42: the rows of table 1, live: a row's terms, its timeline, and the prediction of a fit without a row."""

import math

import traitlets

import hybridlab as hl
from hybridlab.core.what.catalog import model
from hybridlab.labs.sc21.table import LABELS, NOTHING, ROWS, off, refitted, signed, the_errors
from hybridlab.labs.sc21.table import picture as table_picture
from hybridlab.predict.bytes.activations import FULL
from hybridlab.predict.papers.sc21 import A100, Row, table_2
from hybridlab.predict.plans.by_schedule import by_schedule
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.show.live.chooser import Chooser, below_each_other
from hybridlab.show.live.pressed import Pressed
from hybridlab.show.paper.still import Still
from hybridlab.show.plans.shares import PARTS, shares
from hybridlab.show.timelines.svg import svg

__all__ = ["off", "signed", "the_errors"]  # names of the table that the notebook uses

MOST_DRAWN = 700  # the most boxes of a timeline: with more of them the order is not visible


def terms(label: str, hidden: str = NOTHING) -> dict[str, float]:
    """Seconds of a row's step, term by term, by the fit without a hidden row.

    >>> round(sum(terms("145.6B").values()), 1)
    24.8
    """
    row = ROWS[label]
    return {name: float(one) for name, one in step(*row[:3], A100, refitted(hidden))._asdict().items()}


def anatomy(labels=LABELS, hidden: str = NOTHING) -> Still:
    """The terms of each row's predicted step, as fractions."""
    bars = {label: terms(label, hidden) for label in labels}
    told = "; ".join(f"{label}: {_largest(bars[label])}" for label in dict.fromkeys((labels[0], labels[-1])))
    return shares(bars, "Where the step time goes, predicted", told)


def _largest(bar, most: int = 4) -> str:
    whole, first = sum(bar.values()), sorted(bar, key=bar.get, reverse=True)[:most]
    return ", ".join(f"{PARTS[name].name} {bar[name] / whole:.0%}" for name in first)


def timeline(label: str, hidden: str = NOTHING) -> hl.Timeline:
    """A row's pipeline, simulated with its real schedule; of many microbatches only the first 2·p.

    >>> timeline("145.6B").schedule.microbatches
    16
    """
    row = ROWS[label]
    return by_schedule(row.shape, row.plan, _drawn(row) * row.plan.b * row.plan.d, A100, refitted(hidden))


def _drawn(row: Row) -> int:
    """The number of microbatches of a row that are drawn."""
    m, p = row.plan.microbatches(row.batch), row.plan.p
    return m if 2 * p * m * row.plan.v <= MOST_DRAWN else min(m, 2 * p)


def row_picture(row: str, hidden: str = NOTHING) -> Still:
    """The table with one row marked; below it, that row's terms and its timeline."""
    one, drawn = ROWS[row], timeline(row, hidden)
    m = one.plan.microbatches(one.batch)
    title = f"{row}: one copy of the pipeline, {drawn.schedule.microbatches} of {m} microbatches"
    played = Still(svg(drawn, title=title), f"{title}: {drawn.summary}")
    parts = [table_picture(row, hidden), anatomy([row], hidden), played]
    return Still(below_each_other(parts), ". ".join(part.summary for part in parts))


class LiveTable(Chooser):
    """The table with buttons: they choose the row that is shown, and the row that is hidden from the fit. Rows can be
    pressed too.
    """

    def __init__(self, row: str, hidden: str):
        choices = {"row": ("row", LABELS, row), "hidden": ("hide", (NOTHING, *LABELS), hidden)}
        super().__init__(row_picture, choices, [{}])
        self.table = Pressed(lambda label: self.choose(row=label))
        traitlets.dlink((self._picture, "value"), (self.table, "svg"))
        self.children = [*self._buttons.values(), self.table]


def live(row: str = "145.6B", hidden: str = NOTHING) -> LiveTable:
    """The ten rows of table 1, live. Without a kernel, a picture of the row `row` stays."""
    return LiveTable(row, hidden)


# --- other rows ---------------------------------------------------------------------------------------------------

TABLE_2 = {row.plan.devices: row.printed for row in table_2("PTD-P")}  # GPT-3: {number of GPUs: TFLOP/s of one}


def with_size(label: str, b: int) -> Row:
    """A row of table 1 with microbatches of another size.

    raises  ValueError when the batch or the stages cannot be divided like this

    >>> with_size("145.6B", 4).plan.microbatches(2304)
    24
    """
    row = ROWS[label]
    return row._replace(plan=check_plan(row.plan._replace(b=b), row.shape, row.batch))


def unseen(name: str, gpus: int, p: int, batch: int, chunks: int = 1) -> Row:
    """A row of table 2, which is not used for any fit: t = 8, b = 1; its v is not published.

    >>> one = unseen("gpt3-175b", gpus=1536, p=12, batch=1536, chunks=4)
    >>> print(f"{one.predicted():.1f} predicted, {one.printed} printed")
    141.3 predicted, 141 printed
    """
    plan = Plan(p=p, t=8, d=gpus // (8 * p), b=1, v=chunks, recompute=FULL, scatter=True)
    printed = TABLE_2.get(gpus, math.nan) if name == "gpt3-175b" else math.nan
    return Row(model(name).shape, plan, batch, printed)
