"""Predict published runs with context or expert parallelism on H100s.

Nothing is fitted to these runs: the three numbers are those of SC'21's table, for A100s and the programs of 2021.
Settings that are not printed are assumed: fused attention; ZeRO 1; sequence parallelism together with tp; tokens that
choose all experts equally often; for Llama 3 405B 8 chunks. FLOP/s count only the unmasked half of attention.

DeepSeek-V3 is not a row of the table but a separate case, `deepseek`: its programs hide the all-to-all; ours do not.

Sources: `published.SOURCES`; of DeepSeek-V3, DeepSeek-AI 2024, arXiv:2412.19437, sections 3 and 4. Relatives:
`predict.papers.sc21`, `predict.plans.time_of_context_and_experts`, tests/predict/test_long_and_sparse.py.
"""

from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.context import ATTEND
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.performance import FITTED, Fit, Step, step
from hybridlab.predict.plans.plan import Plan, check_plan

H100 = machine("h100")
DEEPSEEK = model("deepseek-v3").shape
H800 = replace(H100, name="h800", label="H100 with half of its NVLink", inside=200e9)
GPU_HOURS = 180e3  # GPU hours of DeepSeek-V3 for a trillion tokens, as printed


class Run(NamedTuple):
    """A published run: the model, the plan, the batch; TFLOP/s of one device as printed, or from seconds.

    seconds  of a step, if printed, else None
    """

    name: str
    shape: Shape
    plan: Plan
    batch: int
    seconds: float | None
    printed: float

    def step(self, fit: Fit = FITTED) -> Step:
        """The predicted step, term by term."""
        return step(self.shape, self.plan, self.batch, H100, fit)

    def predicted(self, fit: Fit = FITTED) -> float:
        """TFLOP/s of one device, by the performance model."""
        return rate(self.shape, self.batch, self.plan, float(self.step(fit).total))


def rate(shape: Shape, batch: int, plan: Plan, seconds: float) -> float:
    """TFLOP/s of one device for a step with this number of seconds; only the unmasked half of attention counts."""
    work = flops(shape, batch)
    return (work.total - work.attention / 2) / seconds / plan.devices / 1e12


def runs() -> tuple[Run, ...]:
    """All these runs.

    >>> for one in runs()[-2:]: print(one.name, one.plan)
    mixtral-8x7b p=4 t=1 d=2 b=1, ep=8 all_to_all, v=8, ZeRO 1, fused attention
    mixtral-8x22b p=8 t=4 d=2 b=1, ep=2 all_to_all, v=7, ZeRO 1, sequence parallel, fused attention
    """
    return tuple(_run(row) for row in published("long_and_sparse_h100"))


def _run(row: dict) -> Run:
    shape = model(row["model"]).shape
    shape = replace(shape, context=row["context"])
    p, t, cp, ep = (row[f"{what}_parallel"] for what in ("pipeline", "tensor", "context", "expert"))
    d, batch, more = row["gpus"] // (p * t * cp * ep), row["batch"], {"zigzag": cp > 1, "fused": True}
    more |= {"zero": 1, "sequence": t > 1, "cp": cp, "ep": ep, "attend": ATTEND.index(row["attend"] or "gather")}
    more |= {"uneven": shape.layers % (p * row["virtual_chunks"]) > 0}
    one = check_plan(Plan(p, t, d, row["microbatch"], row["virtual_chunks"], **more), shape, batch)
    seconds = row["step_seconds"]
    return Run(
        row["model"], shape, one, batch, seconds or None, row["tflops_per_gpu"] or rate(shape, batch, one, seconds)
    )


def deepseek() -> tuple[float, float]:
    """GPU hours for a trillion tokens on 2048 GPUs, p = 16 and ep = 64: (all-to-all exposed, all-to-all hidden).

    The prediction has 16-bit matmuls and no limit on the nodes of a token. The real run has 8-bit matmuls, sends a
    token to at most 4 nodes, and DualPipe hides the messages.

    >>> print(*(f"{hours:,.0f}" for hours in deepseek()))
    328,248 151,773
    """
    one, batch = Plan(p=16, d=2, zero=1, ep=64, uneven=True, fused=True), 15360
    found = step(DEEPSEEK, check_plan(one, DEEPSEEK, batch), batch, H800)
    m = one.microbatches(batch)
    hidden = found.total - found.experts * (m + one.p - 1) / m  # and its part of the bubble
    each = one.devices / 3600 * 1e12 / (batch * DEEPSEEK.context)
    return float(found.total) * each, float(hidden) * each
