"""Read the published runs on TPUs: MaxText's models of 16 to 1,024 billion weights, sharded by XLA.

The tables print the FLOP/s of a chip; the scripts of the same repository have the sizes, the sequences of a chip, the
sharding and the recomputation. A slice is a node: weights are sharded inside (`z`), and copies are in other slices.
With the policy "minimal", the outputs of matmuls are saved, and only the operations between them are repeated. tp
shards the stream too, as sequence parallelism does. The scripts of v5e and v5p ask for flash attention; those of v4 do
not, and it was not the default then. The rows of 1,024 billion weights fit only if all copies of a slice shard.

Relatives: `predict.judged.sharded` (the same for GPUs), `predict.plans.software` (XLA's overlap).
"""

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL, NONE
from hybridlab.predict.judged.run import Run
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.plan import Plan

CHIPS = ("v4", "v5e", "v5p")
CONTEXT, VOCABULARY = 2048, 32000
OLD = {"22b": (48, 6144, 24, 16384), "52b": (32, 12288, 32, 32768)}  # heads of 256; two matrices count as three of 2/3
BASE = (16, 2048, 16, 7168)  # layers, width, heads, inner width, all multiplied by powers of two


def maxtext() -> list[Run]:
    """All rows but those of `left_out`.

    >>> print(maxtext()[1])
    maxtext-22b, 128 × tpu-v4, bf16, p=1 t=1 d=128 b=13, z=64, full recomputation, ZeRO 3
    """
    return [_row(chip, row) for chip in CHIPS for row in rows(chip) if not left_out(row)]


def rows(chip: str) -> tuple[dict, ...]:
    """The printed rows of a generation."""
    return published(f"maxtext_tpu_{chip}")


def left_out(row: dict) -> str:
    """The reason why a row is not predicted; empty if it is predicted."""
    offloads = row["remat"] == "offload"
    return "activations are offloaded, and the bandwidth of a TPU's host link is not known" if offloads else ""


def shape_of(model: str) -> Shape:
    """A model by its number of weights: MaxText doubles heads and inner width, then the width, then the layers.

    >>> for model in ("22b", "16b", "128b", "1024b"): print(model, round(shape_of(model).parameters / 1e9, 1))
    22b 22.1
    16b 15.8
    128b 125.1
    1024b 997.5
    """
    if model in OLD:
        layers, width, heads, inner = OLD[model]
        return Shape(layers, width, heads, CONTEXT, VOCABULARY, inner=inner, per_head=256, style="llama")
    cycles, further = divmod(int(model[:-1]).bit_length() - 1, 3)
    wider, widest = 2 ** (cycles + (further > 1)), 2 ** (cycles + (further > 0))
    layers, width, heads, inner = (size * times for size, times in zip(BASE, (2**cycles, wider, widest, widest)))
    return Shape(layers, width, heads, CONTEXT, VOCABULARY, inner=inner, per_head=128, style="llama")


def _row(chip: str, row: dict) -> Run:
    shape, devices = shape_of(row["model"]), row["slices"] * row["chips"]
    copies, batch = devices // row["t"], devices * row["rows"]
    more = {"recompute": FULL if row["remat"] == "full" else NONE, "fused": chip != "v4", "sequence": row["t"] > 1}
    z = row["shards"] if row["shards"] < copies else 0
    plan = Plan(t=row["t"], d=copies, b=row["rows"] * row["t"], zero=3, z=z, **more)
    seconds = flops(shape, batch).total / devices / (row["tflops"] * 1e12)
    source, name = f"maxtext_tpu_{chip}", f"maxtext-{row['model']}"
    return Run(source, name, f"tpu-{chip}", "xla-2024", shape, plan, batch, seconds)
