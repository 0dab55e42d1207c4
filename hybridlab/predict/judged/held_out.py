"""Held out: errors and bars of sources, releases and times from which no number was fitted.

    votes     each source has one vote          before    each source is predicted from earlier sources only
    coverage  rows inside bars that were computed without their source
    ceiling   the smallest error of any predictor that has one number for each plan
    constants how many numbers were fitted or chosen

Relatives: `predict.judged.scores` (errors of single rows), `predict.judged.bars`, docs/predictor.md.
"""

import math
from collections.abc import Callable, Hashable
from statistics import fmean
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.what.catalog import machine
from hybridlab.predict.judged import bars
from hybridlab.predict.judged.calibrated import nearest, shares
from hybridlab.predict.judged.run import Run
from hybridlab.predict.judged.scores import Judged, Spread, by, spread
from hybridlab.predict.plans.rates import FITTED
from hybridlab.predict.plans.software import MEGATRON_2021, SOFTWARE
from hybridlab.predict.plans.usual import USUAL, family

DATES = {  # of the first publication of each source
    **dict.fromkeys(("megatron_sc21_table1", "megatron_sc21_table2", "sc21_figure_readings"), "2021-04"),
    "selective_recomputation": "2022-05",
    **{f"maxtext_tpu_{chip}": "2023-12" for chip in ("v4", "v5e", "v5p")},
    "llm_foundry": "2024-01", "torchtitan_a100": "2024-04", "llama3_405b": "2024-07", "long_and_sparse_h100": "2024-10",
    "dgxc_h100": "2025-01", "moe_folding": "2025-04", "megatron_bridge": "2025-09",
}  # fmt: skip
NARROWEST = 1e-6  # a smaller difference of two ceilings counts as none


class Covered(NamedTuple):
    """Rows of one family and kind: the fractions inside the bar for half, and inside the bar for nine in ten."""

    rows: int
    sources: int
    half: float
    nine_of_ten: float


def votes(some: list[Judged]) -> float:
    """The mean of the sources' median errors, so that a long table counts no more than a short one."""
    return fmean(one.median for one in by(some, "source").values())


def coverage(some: list[Judged]) -> dict[tuple[str, str], Covered]:
    """{(family, kind): the rows inside their bars}, where the bars of a row are computed without its source.

    As in `trust.error_of`, a machine on which no other source ran has the largest of all bars.
    """
    groups: dict[tuple[str, str], list[tuple]] = {}
    for source in dict.fromkeys(one.run.source for one in some):
        rest = [one for one in some if one.run.source != source]
        known, machines = bars.bars(rest), {one.run.machine for one in rest}
        for one in (one for one in some if one.run.source == source):
            key = family(machine(one.run.machine)), one.run.kind
            bar = known[key] if one.run.machine in machines else bars.largest(list(known.values()))
            groups.setdefault(key, []).append((source, *(abs(one.error) <= size for size in bar)))
    return {key: _covered(rows) for key, rows in groups.items()}


def _covered(rows: list[tuple]) -> Covered:
    sources, half, most = zip(*rows)
    return Covered(len(rows), len({*sources}), fmean(half), fmean(most))


def overall(groups: dict[tuple[str, str], Covered], sources: int) -> Covered:
    """All groups together; `sources` is the number of their sources."""
    rows = added(one.rows for one in groups.values())
    inside = (added(one.rows * one[place] for one in groups.values()) / rows for place in (2, 3))
    return Covered(rows, sources, *inside)


def before(runs: list[Run]) -> dict[str, Spread]:
    """{source: its errors}, where the fraction of the peak is that of earlier sources; the earliest are omitted."""
    found = shares(runs)
    errors: dict[str, list[Judged]] = {}
    for run in runs:
        earlier = {key: share for key, share in found.items() if DATES[key[1]] < DATES[run.source]}
        if earlier:
            fit, sources = nearest(run.machine, earlier)
            errors.setdefault(run.source, []).append(Judged(run, run.error(fit), fit.multiply, tuple(sources)))
    return {source: spread(errors[source]) for source in sorted(errors, key=DATES.__getitem__)}


def crosses(run: Run) -> bool:
    """Whether tokens are sent to experts on other nodes."""
    return not run.plan.fold and run.plan.near("ep", machine(run.machine).node) < run.plan.ep


def ceiling(runs: list[Run], known: Callable[[Run], Hashable]) -> float:
    """The smallest error that any predictor with one number for each `known` can have for nine of ten rows.

    It is a bound for predictors that have seen all rows; no real predictor reaches it.

    >>> from hybridlab.predict.judged.sc21_runs import table_1
    >>> one = table_1()[0]
    >>> round(ceiling([one._replace(seconds=seconds) for seconds in (1.0, 1.5)], lambda run: run.plan), 2)
    0.2
    """
    groups: dict[Hashable, list[float]] = {}
    for run in runs:
        groups.setdefault(known(run), []).append(run.seconds)
    needed, low, high = math.ceil(0.9 * len(runs)), 0.0, 1.0
    while high - low > NARROWEST:
        middle = (low + high) / 2
        enough = added(_together(seconds, middle) for seconds in groups.values()) >= needed
        low, high = (low, middle) if enough else (middle, high)
    return high


def _together(seconds: list[float], error: float) -> int:
    """The number of these measurements that one number can predict within an error."""
    sizes = np.array(seconds)
    return max(int(((sizes >= least) & (sizes * (1 - error) <= least * (1 + error))).sum()) for least in sizes)


def constants() -> int:
    """The numbers of the time model that were fitted or chosen: fits and properties of programs, each value once.

    Yes-or-no properties, 0 and 1 are not counted, nor are widths in bytes: the programs document them.
    """
    usual = MEGATRON_2021._asdict()
    chosen = {
        (name, value)
        for one in SOFTWARE.values()
        for name, value in one._asdict().items()
        if isinstance(value, float) and value not in (usual[name], 0.0, 1.0)
    }
    fits = {one.fit.multiply for one in USUAL.values()} | {FITTED.memory, FITTED.launch}
    return len(chosen) + len(fits) + len(MEGATRON_2021.narrow)
