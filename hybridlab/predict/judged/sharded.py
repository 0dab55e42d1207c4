"""Read the published runs of fully sharded data parallelism: MosaicML's MPT in llm-foundry, and torchtitan's Llama."""

from dataclasses import replace

from hybridlab.core.what.catalog import model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL, NONE
from hybridlab.predict.judged.run import Run
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.plan import Plan

MPT = {  # layers, width, heads: scripts/train/yamls/pretrain of llm-foundry
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
    "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64),
}  # fmt: skip


def mpt() -> list[Run]:
    """MPT of 125 million to 70 billion weights on A100 and H100, 512 to 65 536 tokens in a sequence.

    >>> len(mpt())
    79
    """
    return [_mpt(row) for row in published("llm_foundry")]


def _mpt(row: dict) -> Run:
    layers, width, heads = MPT[row["Model"]]
    shape = Shape(layers, width, heads, row["SeqLen (T)"], 50368, tied=True)
    gpus, batch = row["# GPUs"], row["GlobalBatchSize"]
    again = FULL if row["Activation Checkpointing"] == "True" else NONE
    zero = 3 if row["Sharding Strategy"] == "FULL_SHARD" else 2
    plan = Plan(d=gpus, b=row["MicroBatchSize"], recompute=again, zero=zero, fused=True)
    seconds = batch * shape.context / gpus / row["Throughput (T/s/GPU)"]
    kind = row["GPU"].split("_")[0]
    return Run("llm_foundry", f"mpt-{row['Model']}", kind, "fsdp-2023", shape, plan, batch, seconds)


SAVED = {"no": (NONE, 1.0), "full": (FULL, 1.0), "selective layer": (FULL, 0.5), "selective op": (FULL, 0.5)}


def torchtitan() -> list[Run]:
    """Llama 2 and 3 with FSDP 2 on 64 A100s; every second layer is recomputed, or every second matmul of each layer."""
    return [_titan(row) for row in published("torchtitan_a100")]


def _titan(row: dict) -> Run:
    shape, gpus = replace(model(row["model"]).shape, context=row["seq"]), row["gpus"]
    again, share = SAVED[row["ac"]]
    plan = Plan(d=gpus, b=row["local_batch"], recompute=again, zero=3, fused=True, redone=share)
    seconds = row["local_batch"] * row["seq"] / row["wps_per_gpu"]
    return Run("torchtitan_a100", row["model"], "a100", "fsdp-2023", shape, plan, gpus * row["local_batch"], seconds)
