"""Read the tables and figures of Narayanan et al. 2021 (SC'21), fit the time model, and compute its errors.

A model is tested on rows that it has not seen: each row is predicted by a fit on the nine others (leave one out). The
baseline is the simplest prediction, one throughput for all rows.

Source: arXiv:2104.04473, tables 1 and 2, figures 11 to 18. Relatives: `predict.plans.performance`, notebooks 41 and 42.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from hybridlab.core.what.catalog import GPT_CONTEXT, GPT_VOCABULARY, machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL, NONE
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.performance import FITTED, Fit, Step, step, throughput
from hybridlab.predict.plans.plan import Plan

A100 = machine("a100")
_SHAPES_2 = {174.6: model("gpt3-175b").shape, 529.6: model("gpt-529.6b").shape}  # of table 2, by billions of weights


class Row(NamedTuple):
    """A published configuration: the model, the plan, the batch, and the printed TFLOP/s of one device.

    For a figure, `printed` is the value read off the curve (figure 17: sequences/s), nan if it is not legible.
    """

    shape: Shape
    plan: Plan
    batch: int
    printed: float

    def predicted(self, fit: Fit = FITTED) -> float:
        """TFLOP/s of one device, by the performance model."""
        return float(throughput(self.shape, self.plan, self.batch, A100, fit)) / 1e12

    @property
    def step(self) -> Step:
        """The predicted step, term by term."""
        return step(self.shape, self.plan, self.batch, A100)


def table() -> tuple[Row, ...]:
    """The ten rows of table 1.

    >>> print(table()[-1].plan, round(table()[-1].shape.parameters / 1e9))
    p=64 t=8 d=6 b=1, full recomputation, scatter/gather 1008
    """
    return tuple(_row(row, row["tflops_per_gpu"]) for row in published("megatron_sc21_table1"))


def table_2(scheme: str, billions: float = 174.6, chunks: int = 1) -> tuple[Row, ...]:
    """The rows of table 2 for a scheme, "ZeRO-3" or "PTD-P", and a model; v is not printed, so it is given as `chunks`.

    scheme    "ZeRO-3" or "PTD-P"
    billions  of the model's parameters, as printed
    chunks    v, stages per rank

    ZeRO 3 ran without model parallelism: t = p = 1, and all GPUs shard the states.

    >>> [(row.plan.devices, row.printed) for row in table_2("ZeRO-3")]
    [(384, 144), (768, 88), (1536, 44)]
    >>> print(table_2("PTD-P", chunks=4)[0].plan)
    p=12 t=8 d=4 b=1, v=4, full recomputation, scatter/gather
    """
    found = (row for row in published("megatron_sc21_table2") if row["scheme"] == scheme)
    return tuple(_row_2(row, chunks) for row in found if row["params_billion"] == billions)


def _row_2(row: dict, chunks: int) -> Row:
    ways, cut = row["model_parallel"], row["model_parallel"] > 1
    t = 8 if cut else 1  # within a node, as in all rows of table 1 that need more than one
    p, d = ways // t, row["gpus"] // ways
    plan = Plan(p, t, d, row["microbatch"], chunks if cut else 1, FULL, zero=0 if cut else 3, scatter=cut)
    return Row(_SHAPES_2[row["params_billion"]], plan, row["global_batch"], row["tflops_per_gpu"])


def figure(number: int) -> tuple[Row, ...]:
    """The configurations of a figure, in print order; `printed` is the value read off the drawing, if that was
    possible.

    number  in the paper, such as 13

    raises  ValueError for an unknown figure

    >>> len(figure(13))
    10
    """
    read = {_key(row): row["reading"] for row in published("sc21_figure_readings")}
    drawn = (row for row in published("sc21_figure_configs") if row["figure"] == number)
    rows = tuple(_row(row, read.get(_key(row), math.nan)) for row in drawn)
    if not rows:
        known = sorted({row["figure"] for row in published("sc21_figure_configs")})
        raise ValueError(f"there is no figure {number}: choose one of {', '.join(map(str, known))}")
    return rows


KEY = "figure tensor_parallel pipeline_parallel microbatch virtual_chunks global_batch recompute scatter_gather".split()


def _key(row: dict) -> tuple:
    return tuple(row[name] for name in KEY)


def _row(row: dict, printed: float) -> Row:
    t, p = row["tensor_parallel"], row["pipeline_parallel"]
    d = row["data_parallel"] if "data_parallel" in row else row["gpus"] // (t * p)
    how = NONE if row.get("recompute") == "none" else FULL
    scatter = row.get("scatter_gather", "yes") == "yes" and t > 1 and p > 1
    plan = Plan(p, t, d, row["microbatch"], row["virtual_chunks"], how, scatter=scatter)
    shape = Shape(row["layers"], row["hidden"], row["heads"], GPT_CONTEXT, GPT_VOCABULARY, tied=True)
    return Row(shape, plan, row["global_batch"], printed)


def fitted(rows: Sequence["Row"] | None = None) -> Fit:
    """The fit on these rows (all of table 1): the three numbers that minimize the sum of the squared relative errors.

    It uses the Gauss-Newton method on their logarithms, so that none of them is negative.

    >>> fit = fitted()
    >>> [round(mine / used, 3) for mine, used in zip(fit, FITTED)]
    [1.0, 1.0, 1.0]
    """
    rows, x = rows or table(), np.log(FITTED)
    for _ in range(20):
        off, nudge = _off(x, rows), 1e-5
        slope = np.transpose([(_off(x + nudge * one, rows) - off) / nudge for one in np.eye(len(x))])
        nearer = np.linalg.lstsq(slope, off, rcond=None)[0]
        x = x - nearer
        if np.abs(nearer).max() < 1e-6:
            break
    return Fit(*(float(value) for value in np.exp(x)))


def _off(x, rows):
    return np.array([np.log(row.predicted(Fit(*np.exp(x))) / row.printed) for row in rows])


class Errors(NamedTuple):
    """Relative errors, one for each row of table 1: predicted over printed, minus one."""

    seen: tuple[float, ...]
    left_out: tuple[float, ...]
    constant: tuple[float, ...]

    @property
    def means(self) -> tuple[float, float, float]:
        """The mean absolute error of each predictor."""
        seen, left_out, constant = (float(np.mean(np.abs(one))) for one in self)
        return seen, left_out, constant


@cache
def errors() -> Errors:
    """For each row, the errors of three predictors: the fit on all rows, a fit on the other rows, and the mean
    throughput of the other rows.

    >>> print(*(f"{mean:.1%}" for mean in errors().means))
    1.1% 1.6% 6.8%
    """
    rows = table()
    others = [[other for other in rows if other is not row] for row in rows]
    seen = tuple(row.predicted() / row.printed - 1 for row in rows)
    left_out = tuple(row.predicted(fitted(rest)) / row.printed - 1 for row, rest in zip(rows, others))
    constant = tuple(float(np.mean([one.printed for one in rest])) / row.printed - 1 for row, rest in zip(rows, others))
    return Errors(seen, left_out, constant)
