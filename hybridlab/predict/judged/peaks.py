"""Peaks: the memory of published runs, measured on the device that holds most, and predicted by `hl.memory`.

Relatives: `predict.plans.memory_of_plan`, `predict.judged.scores` (the same for time).
"""

from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.what.catalog import model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.memory_of_plan import memory

ZERO_BUBBLE = {"1.5B": (22, 2304, 24), "6.2B": (30, 4096, 32), "14.6B": (46, 5120, 40), "28.3B": (62, 6144, 48)}
GIB = 2**30
_V3 = model("deepseek-v3").shape
_V2 = replace(_V3, layers=60, width=5120, inner=1536, experts=160, chosen=6, shared=2, vocabulary=102400)
SHAPES = {  # with few layers; the first layer of DeepSeek has one MLP
    "llama3_70b": ("llama3-70b", model("llama3-70b").shape),
    "llama3_405b": ("llama3-405b", model("llama3-405b").shape),
    "deepseekv2_": ("deepseek-v2", replace(_V2, plain=(0,), plain_inner=12288)),
    "deepseekv3_": ("deepseek-v3", replace(_V3, plain=(0,))),
}
CONTEXT = 4096  # for rows that print none


class Held(NamedTuple):
    """Memory of the device that holds most: the run, predicted GB and measured GB."""

    source: str
    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted divided by measured, minus one."""
        return self.predicted / self.measured - 1


def peaks() -> list[Held]:
    """Every measured peak that we know."""
    return zero_bubble() + simumax()


def zero_bubble() -> list[Held]:
    """1F1B and interleaved 1F1B of the zero-bubble paper; its layers, heads and context of 1024 are in its table 3.

    >>> print(*(f"{abs(one.error):.1%}" for one in zero_bubble()[:4]))
    0.2% 0.5% 0.2% 0.5%
    """
    columns = ((1, "mem_GB_1F1B"), (None, "mem_GB_1F1B_I"))
    return [_zero_bubble(row, v, column) for row in published("zero_bubble_tables") for v, column in columns]


def _zero_bubble(row: dict, v: int | None, column: str) -> Held:
    layers, width, heads = ZERO_BUBBLE[row["model"]]
    shape = Shape(layers, width, heads, 1024, 51200)
    sizes = {"p": row["stages_p"], "b": row["microbatch_size"], "v": v or row["chunks_v_for_1F1B_I"]}
    found = memory(shape, batch=row["microbatches_m"] * row["microbatch_size"], **sizes)
    name = f"{row['model']}, m={row['microbatches_m']}, {_named(sizes)}"
    return Held("zero_bubble_tables", name, found.total / 1e9, row[column])


def simumax() -> list[Held]:
    """Llama 3 and DeepSeek with few layers on eight B200s: Megatron-Core, distributed optimizer, sums in single
    precision.

    The number of microbatches changes none of the measured peaks, so each plan is here once.

    >>> len(simumax())
    19
    """
    return [_simumax(row) for row in published("simumax_b200_memory") if row["microbatch_count"] == 4]


def _simumax(row: dict) -> Held:
    name, shape = SHAPES[row["model"]]
    shape = replace(shape, layers=row["layers"], context=row["seq"] or CONTEXT)
    sizes = {name: row[column] or 1 for name, column in (("p", "pp"), ("t", "tp"), ("ep", "ep"), ("cp", "cp"))}
    sizes["d"] = (row["dp"] or 1) // sizes["ep"]
    more = {"zero": int(sizes["d"] * sizes["cp"] * sizes["ep"] > 1), "fused": True, "sequence": sizes["t"] > 1}
    more |= {"attend": "ring", "zigzag": True} if sizes["cp"] > 1 else {}
    batch = row["microbatch_count"] * sizes["d"] * sizes["ep"]
    found = memory(shape, batch, software="megatron-2024", **sizes, **more)
    name = f"{name}, {shape.layers} layers, {shape.context} tokens, {_named(sizes)}"
    return Held("simumax_b200_memory", name, found.total / 1e9, row["measured_peak_alloc_GiB"] * GIB / 1e9)


def _named(sizes: dict) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items() if size != 1)
