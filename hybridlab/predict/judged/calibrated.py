"""Fit the fraction of peak of a machine's GEMMs to the runs of some sources, and predict the runs of another source.

`rates.Fit` has three fitted numbers. Two of them, the fraction of the memory bandwidth and the launch time, are always
those of table 1 of SC'21. The third differs between machines, by power limit and library. For one source it is the
fraction at which equally many rows are predicted too fast and too slow. The rows of a source are predicted with the
mean fraction of the other sources.
"""

from statistics import fmean, median

from hybridlab.core.what import catalog as machines
from hybridlab.predict.judged.run import Run
from hybridlab.predict.plans.measured import at_zero
from hybridlab.predict.plans.rates import FITTED, Fit
from hybridlab.predict.plans.usual import family


def share(runs: list[Run]) -> float:
    """The fraction of the peak for which the median error of these runs is 0.

    >>> from hybridlab.predict.judged.sc21_runs import table_1
    >>> round(share(table_1()), 2)
    0.72
    """
    off = lambda multiply: median(run.error(FITTED._replace(multiply=multiply)) for run in runs)
    return at_zero(off)


def shares(runs: list[Run]) -> dict[tuple[str, str], float]:
    """{(machine, source): its fraction}, from rows in 16 bits without experts; sources without such rows are
    omitted."""
    groups = {}
    for run in runs:
        if run.kind in ("dense", "context"):
            groups.setdefault((run.machine, run.source), []).append(run)
    return {key: share(some) for key, some in groups.items()}


def without(source: str, machine: str, found: dict[tuple[str, str], float]) -> tuple[Fit, list[str]]:
    """(the fit for a source's rows on a machine, the sources that it comes from): the source itself is never among
    them.
    """
    return nearest(machine, {key: value for key, value in found.items() if key[1] != source})


def nearest(machine: str, others: dict[tuple[str, str], float]) -> tuple[Fit, list[str]]:
    """(the fit for a machine, the sources that it comes from).

    If no source has runs on the machine, the fractions of its family are used, or those of an H100, or all.
    """
    near = family(machines.machine(machine))
    same = (
        {key: value for key, value in others.items() if key[0] == machine}
        or {key: value for key, value in others.items() if family(machines.machine(key[0])) == near}
        or {key: value for key, value in others.items() if key[0] == "h100"}
        or others
    )
    return FITTED._replace(multiply=fmean(same.values())), [f"{kind}: {name}" for kind, name in same]
