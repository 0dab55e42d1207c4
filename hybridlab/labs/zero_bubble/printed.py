"""Notebook 14: the bubble rates that the zero-bubble paper reports, and our rates from the durations that it reports.

A row is one of `published("zero_bubble_tables")`: Qi et al. 2023, arXiv:2401.10241, Table 5. Rates are `bubble_span`.
"""

import hybridlab as hl

COLUMNS = {"1f1b": "rate_1F1B", "zb_h1": "rate_ZB_H1", "zb_h2": "rate_ZB_H2"}


def rates(row: dict) -> tuple[float, ...]:
    """For each schedule in `COLUMNS`: our rate, and the published one.

    >>> from hybridlab.predict.papers.published import published
    >>> [f"{rate:.4f}" for rate in rates(published("zero_bubble_tables")[0])]
    ['0.2431', '0.2431', '0.1585', '0.1585', '0.1083', '0.1083']
    """
    pairs = ((_simulated(row, name).bubble_span, row[column]) for name, column in COLUMNS.items())
    return tuple(rate for pair in pairs for rate in pair)


def interleaved_rates(row: dict) -> tuple[float, float, float]:
    """For interleaved 1F1B: our rate, the published rate, and our rate in a step that is p hops shorter.

    >>> from hybridlab.predict.papers.published import published
    >>> [f"{rate:.4f}" for rate in interleaved_rates(published("zero_bubble_tables")[0])]
    ['0.1090', '0.1055', '0.1055']
    """
    t = _simulated(row, "interleaved", chunks=row["chunks_v_for_1F1B_I"])
    without = t.length - row["stages_p"] * row["Tcomm_ms"]
    return t.bubble_span, row["rate_1F1B_I"], 1 - max(t.busy) / without


def _simulated(row, name, **more) -> hl.Timeline:
    schedule = hl.schedule(name, ranks=row["stages_p"], microbatches=row["microbatches_m"], **more)
    F, I, W = (row[column] / schedule.chunks for column in ("TF_ms", "TB_ms", "TW_ms"))
    return hl.simulate(schedule, hl.Costs(F=F, I=I, W=W, latency=row["Tcomm_ms"]))
