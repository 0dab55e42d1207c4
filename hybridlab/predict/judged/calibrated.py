"""Calibrated: the fraction of a machine's peak that its GEMMs reach, fitted on some sources to predict another.

Three numbers are fitted in `rates.Fit`. Two of them, the share of the memory's bandwidth and the launch, stay as they
are on table 1 of SC'21. The third differs from one machine to the next, by power and by library; of each source it is
the share at which as many of its rows come out too fast as too slow, and of several sources their mean. A source is
predicted with the mean of the others.
"""

from statistics import fmean, median

from hybridlab.predict.judged.run import Run
from hybridlab.predict.plans.measured import at_zero
from hybridlab.predict.plans.rates import FITTED, Fit


def share(runs: list[Run]) -> float:
    """The share of the peak at which the median error of these runs is 0.

    >>> from hybridlab.predict.judged.sc21_runs import table_1
    >>> round(share(table_1()), 2)
    0.72
    """
    off = lambda multiply: median(run.error(FITTED._replace(multiply=multiply)) for run in runs)
    return at_zero(off)


def shares(runs: list[Run]) -> dict[tuple[str, str], float]:
    """{(machine, source): its share}, from rows in 16 bits without experts; no row where a source has none."""
    groups = {}
    for run in runs:
        if run.kind in ("dense", "context"):
            groups.setdefault((run.machine, run.source), []).append(run)
    return {key: share(some) for key, some in groups.items()}


def without(source: str, machine: str, found: dict[tuple[str, str], float]) -> tuple[Fit, list[str]]:
    """(the fit for a source's rows on a machine, the sources it is from): never the source itself.

    Where nobody else ran on the machine, the share of the machines that others ran on is taken over.
    """
    others = {key: value for key, value in found.items() if key[1] != source}
    same = {key: value for key, value in others.items() if key[0] == machine} or {
        key: value for key, value in others.items() if key[0] == "h100"
    }
    return FITTED._replace(multiply=fmean(same.values())), [f"{kind}: {name}" for kind, name in same]
