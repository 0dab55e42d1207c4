"""Summarize the errors of predictions of published runs, by source, machine, model and kind, and the predicted order.

A row's prediction does not use its own source: the fraction of the peak is fitted on other sources (`calibrated`). But
the authors of `plans.software` chose its terms and fractions with these tables at hand. So rows that are not in these
tables are a stricter test.
"""

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from hybridlab.predict.judged import megatron, on_tpus, sc21_runs, sharded
from hybridlab.predict.judged.calibrated import shares, without
from hybridlab.predict.judged.run import Run
from hybridlab.predict.plans.planner import Planned
from hybridlab.predict.plans.rates import Fit

TABLES = (
    sc21_runs.table_1, sc21_runs.table_2, sc21_runs.figures, megatron.selective, sharded.mpt, sharded.torchtitan,
    megatron.dgxc, megatron.llama3, megatron.mixtral, megatron.folding, megatron.bridge, on_tpus.maxtext,
)  # fmt: skip
APART = 0.10  # runs whose speeds differ by less do not form a pair
ALIKE = 1.2  # neither do runs on numbers of devices that differ by more
GROUPS = "source", "machine", "model", "kind", "software"  # attributes of a run by which rows are grouped


class Judged(NamedTuple):
    """A run and its prediction: predicted over measured speed, minus one, and the sources used for calibration."""

    run: Run
    error: float
    share: float
    sources: tuple[str, ...]


class Spread(NamedTuple):
    """The absolute errors of some predictions: median, 90th percentile, maximum."""

    rows: int
    median: float
    nine_of_ten: float
    worst: float

    def __str__(self) -> str:
        return f"{self.rows} rows: median {self.median:.1%}, nine of ten within {self.nine_of_ten:.1%}"


@cache
def runs() -> tuple[Run, ...]:
    """Every published run that we know."""
    return tuple(run for table in TABLES for run in table())


def published_of(planned: Planned) -> list[Run]:
    """The published runs of a planned job: this model, batch, machine and number of devices.

    >>> from hybridlab.predict.plans.planner import plan
    >>> [str(run.plan) for run in published_of(plan("gpt-39.1b", "a100", gpus=512, batch=1536))]
    ['p=2 t=8 d=32 b=4, full recomputation, scatter/gather']
    """
    asked = planned.shape, planned.batch, planned.machine.name, planned.devices
    return [run for run in runs() if (run.shape, run.batch, run.machine, run.plan.devices) == asked]


def judged(error: Callable[[Run, Fit], float] = Run.error) -> list[Judged]:
    """Every published run with its prediction.

    error  a run's error with a fit: `Run.error`, by the formula, or `Run.called`, by the public call, which gives the
    same numbers
    """
    found = shares(list(runs()))
    return [_judge(run, error, *without(run.source, run.machine, found)) for run in runs()]


def _judge(run: Run, error, fit, sources) -> Judged:
    return Judged(run, error(run, fit), fit.multiply, tuple(sources))


def spread(some: list[Judged]) -> Spread:
    """The errors of some rows in four numbers.

    >>> print(spread([Judged(None, error, 0.7, ()) for error in (-0.02, 0.03, 0.1)]))
    3 rows: median 3.0%, nine of ten within 8.6%
    """
    sizes = np.abs([one.error for one in some])
    return Spread(len(some), *map(float, (np.median(sizes), np.quantile(sizes, 0.9), sizes.max())))


def by(some: list[Judged], name: str) -> dict[str, Spread]:
    """{value: spread of the errors} of rows grouped by an attribute of their runs.

    some  judged runs
    name  of the attribute: source, machine, model, kind or software
    """
    groups = {}
    for one in some:
        groups.setdefault(getattr(one.run, name), []).append(one)
    return {value: spread(group) for value, group in groups.items()}


class Pair(NamedTuple):
    """Two published alternatives: the one that was measured faster, the other, and whether the model predicts this
    order."""

    faster: Run
    slower: Run
    right: bool


def pairs(some: list[Judged]) -> list[Pair]:
    """All alternatives for one model on one machine whose measured speeds differ enough; a point in two figures counts
    once."""
    once = {(one.run.source, one.run.shape, one.run.plan, one.run.batch, one.run.note[:7]): one for one in some}
    return [_pair(*both) for both in combinations(once.values(), 2) if _alternatives(*(one.run for one in both))]


def _alternatives(one: Run, other: Run) -> bool:
    same = all(getattr(one, name) == getattr(other, name) for name in ("source", "machine", "precision", "shape"))
    devices = sorted((one.plan.devices, other.plan.devices))
    few = devices[1] <= ALIKE * devices[0] and (one.batch == other.batch or one.software != other.software)
    speeds = sorted((one.tokens, other.tokens))
    return same and few and one.plan != other.plan and speeds[1] > (1 + APART) * speeds[0]


def _pair(one: Judged, other: Judged) -> Pair:
    first, second = sorted((one, other), key=lambda each: -each.run.tokens)
    predicted = [each.run.tokens * (1 + each.error) for each in (first, second)]
    return Pair(first.run, second.run, predicted[0] > predicted[1])
