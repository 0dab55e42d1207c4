"""Read SC'21's rows as runs: table 1, table 2 with ZeRO 3, and values read off the figures."""

import math

from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.judged.run import Run
from hybridlab.predict.papers import sc21
from hybridlab.predict.plans.arithmetic import flops

FIGURES = (7, 11, 12, 13, 14, 15, 16, 17, 18)


def table_1() -> list[Run]:
    """The ten rows of table 1."""
    return [_run("megatron_sc21_table1", row) for row in sc21.table()]


def table_2() -> list[Run]:
    """ZeRO 3 without model parallelism, and pipeline, tensor and data parallelism."""
    every = [(scheme, billions) for scheme in ("ZeRO-3", "PTD-P") for billions in (174.6, 529.6)]
    return [
        _run("megatron_sc21_table2", row, "deepspeed-2021" if row.plan.zero else "megatron-2021")
        for scheme, billions in every
        for row in sc21.table_2(scheme, billions)
    ]


def figures() -> list[Run]:
    """The values read off the figures, uncertain by about 4 TFLOP/s."""
    rows = [(number, row) for number in FIGURES for row in sc21.figure(number) if not math.isnan(row.printed)]
    return [_run("sc21_figure_readings", row, note=f"figure {number}", rate=number == 17) for number, row in rows]


def _run(source, row, software="megatron-2021", note="", rate=False) -> Run:
    how = RECOMPUTE[row.plan.recompute]
    work = flops(row.shape, row.batch, how).total
    seconds = row.batch / row.printed if rate else work / row.plan.devices / row.printed / 1e12
    name = f"gpt-{row.shape.parameters / 1e9:.1f}b"
    return Run(source, name, "a100", software, row.shape, row.plan, row.batch, seconds, note=note)
