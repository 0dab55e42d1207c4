"""Bars: the expected error of a plan's prediction, from the errors of similar published runs.

Every error is that of a row whose own source was left out. Rows of one family of machines and one kind are a group.
If there are fewer than twenty, all rows of the kind and all rows of the family count too, and the largest figure is
taken.

Relative: `predict.plans.trust`, where the planner reads what is found here.
"""

from itertools import product

import numpy as np

from hybridlab.core.what.catalog import machine
from hybridlab.predict.judged.run import Run
from hybridlab.predict.judged.scores import Judged
from hybridlab.predict.plans.measured import by_step
from hybridlab.predict.plans.rates import Fit
from hybridlab.predict.plans.trust import KINDS, Error
from hybridlab.predict.plans.usual import USUAL, family

ENOUGH = 20  # rows
SOME = 5  # fewer say nothing of nine in ten


def bars(some: list[Judged]) -> dict[tuple[str, str], Error]:
    """{(family, kind): the errors of its rows, or of the nearest groups that are large enough}."""
    every = [(family(machine(one.run.machine)), one.run.kind, one.error) for one in some]
    return {(near, kind): _bar(every, near, kind) for near, kind in product(USUAL, KINDS)}


def _bar(every: list[tuple], near: str, kind: str) -> Error:
    own = [size for *group, size in every if group == [near, kind]]
    if len(own) >= ENOUGH:
        return error(own)
    wider = [size for _, a_kind, size in every if a_kind == kind], [size for one, _, size in every if one == near]
    groups = [group for group in wider if len(group) >= ENOUGH] + [own] * (len(own) >= SOME)
    return largest(list(map(error, groups)) or [error([one[-1] for one in every])])


def calibrated(some: list[Judged]) -> dict[str, Error]:
    """{kind: the errors of rows with the share that the first, middle or last row of their source and model shows}."""
    groups = {}
    for one in some:
        groups.setdefault((one.run.kind, one.run.source, one.run.machine, one.run.model), []).append(one.run)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for (kind, *_), runs in groups.items():
        shown = [(_own(run), run) for run in (runs[0], runs[len(runs) // 2], runs[-1])]
        found[kind] += [other.error(fit) for fit, run in shown if fit for other in runs if other is not run]
    return {kind: error(errors) for kind, errors in found.items()}


def _own(run: Run) -> Fit | None:
    """The fit that reproduces a row; None where no share of the peak does, or one above 1."""
    try:
        fit = by_step(run.shape, run.machine, run.plan, run.batch, run.seconds, run.programs)
    except ValueError:
        return None
    return fit if fit.multiply * run.programs.library <= 1 else None


def error(signed: list[float]) -> Error:
    """The median of the absolute errors, and their 90th percentile."""
    sizes = np.abs(signed)
    return Error(*(round(float(np.quantile(sizes, share)), 3) for share in (0.5, 0.9)))


def largest(some: list[Error]) -> Error:
    """The largest of each figure."""
    return Error(*map(max, zip(*some)))
