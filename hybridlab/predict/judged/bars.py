"""Bars: the expected error of a plan's prediction, from the errors of similar published runs.

Every error is that of a row whose own source was left out. Rows of one family of machines and one kind are a group.
If there are fewer than twenty, all rows of the kind and all rows of the family count too, and the largest figure is
taken. Bars are conformal: if a new row is like the rows of a group, its error is inside the bar with at least the
stated probability.

Relative: `predict.plans.trust`, which has these bars for the planner.
"""

import math
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
SOME = 5  # with fewer, nine in ten has no meaning


def bars(some: list[Judged]) -> dict[tuple[str, str], Error]:
    """{(family, kind): the errors of the group's rows, or of the nearest groups that are large enough}."""
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
    """{kind: the errors of rows, if the first, middle or last row of their source and model gives the share of the
    peak}.
    """
    groups = {}
    for one in some:
        groups.setdefault((one.run.kind, one.run.source, one.run.machine, one.run.model), []).append(one.run)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for (kind, *_), runs in groups.items():
        shown = [(_own(run), run) for run in (runs[0], runs[len(runs) // 2], runs[-1])]
        found[kind] += [other.error(fit) for fit, run in shown if fit for other in runs if other is not run]
    return {kind: error(errors) for kind, errors in found.items()}


def _own(run: Run) -> Fit | None:
    """The fit that reproduces a row; None if no share of the peak does, or only one above 1."""
    try:
        fit = by_step(run.shape, run.machine, run.plan, run.batch, run.seconds, run.programs)
    except ValueError:
        return None
    return fit if fit.multiply * run.programs.library <= 1 else None


def error(signed: list[float]) -> Error:
    """The conformal bars for half and for nine in ten rows: of n absolute errors, the ⌈(n + 1)·share⌉-th, or the
    largest.

    Source: Lei et al. 2018, arXiv:1604.04173, section 2.2 (split conformal inference).

    >>> error([0.01, -0.02, 0.03, -0.04])
    Error(median=0.03, nine_of_ten=0.04)
    """
    sizes = np.sort(np.abs(signed))
    places = (min(math.ceil((len(sizes) + 1) * share), len(sizes)) - 1 for share in (0.5, 0.9))
    return Error(*(round(float(sizes[place]), 3) for place in places))


def largest(some: list[Error]) -> Error:
    """The largest value of each figure."""
    return Error(*map(max, zip(*some)))
