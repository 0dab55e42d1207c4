"""Read the published runs of Megatron-LM, NeMo, Megatron-Bridge and Meta's Llama 3.

Their tables give p, t, cp, ep and v.

The programs' documented defaults replace settings that are not given: ZeRO 1 (the distributed optimizer), sequence
parallelism together with tp, fused attention, zigzag order along cp.
"""

import re
from dataclasses import replace

from hybridlab.core.what.catalog import model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL, SELECTIVE
from hybridlab.predict.bytes.context import GATHER, RING
from hybridlab.predict.judged.run import Run
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.plan import Plan

MODERN = {"zero": 1, "fused": True}


def _plan(gpus, p=1, t=1, cp=1, ep=1, b=1, v=1, **more) -> Plan:
    ways = {"cp": cp, "ep": ep, "attend": RING if cp > 1 else GATHER, "zigzag": cp > 1, "sequence": t > 1}
    return Plan(p, t, gpus // (p * t * cp * ep), b, v, **ways | MODERN | more)


# --- NVIDIA's benchmark recipes -----------------------------------------------------------------------------------


RECIPES = {"README_8b": ("llama3-8b", 8192), "README_70b": ("llama3-70b", 8192), "README_175b": ("gpt3-175b", 2048)}


def dgxc() -> list[Run]:
    """Llama 3.1 8B and 70B and a GPT-3 175B on H100s, in 16 and in 8 bits, weak scaling.

    >>> print(dgxc()[10])
    llama3-70b, 64 × h100, bf16, p=4 t=4 d=2 b=1, cp=2 ring zigzag, v=5, ZeRO 1, sequence parallel, fused attention
    """
    return [_recipe(row) for row in published("dgxc_h100")]


def _recipe(row: dict) -> Run:
    name, context = RECIPES[re.findall(r"README_\w+", row["file"])[0]]
    said = {key: int(value) for key, value in re.findall(r"(TP|PP|CP|VP|MBS)=(\d+)", row["config"])}
    plan = _plan(row["gpus"], said["PP"], said["TP"], said.get("CP", 1), 1, said["MBS"], said.get("VP", 1))
    shape = replace(model(name).shape, context=context)
    precision = row["precision"].lower()
    return Run("dgxc_h100", name, "h100", "megatron-2024", shape, plan, row["global_batch"], row["step_s"], precision)


# --- Megatron-Bridge ----------------------------------------------------------------------------------------------

# Layers of Llama 3 70B whose activations go to the host with FSDP: Megatron-Bridge, scripts/performance, 2025.
OFFLOADED = {"gb200": 40, "gb300": 20}
BRIDGE = {"LLAMA3_8B": "llama3-8b", "LLAMA3_70B": "llama3-70b", "Qwen3_30B_a3B": "qwen3-30b-a3b"}
NARROW = {
    "FP8": "fp8",
    "MXFP8": "fp8",
    "FP8-CS": "fp8",
    "FP8-MX": "fp8",
    "NVFP4": "fp4",
    "FP8-CS (FP8-MX)": "fp8",
    "": "fp8",
}


def bridge() -> list[Run]:
    """The rows of Megatron-Bridge's pages whose models and kinds of training can be expressed; see `left_out`.

    If a cell has two numbers, the one outside the brackets belongs to the default recipe.
    """
    return [_bridged(row) for row in published("megatron_bridge") if not left_out(row)]


def left_out(row: dict) -> str:
    """The reason why a row is not predicted; empty if it is predicted."""
    if "Nemotron" in row["model"]:
        return "the model mixes attention layers with state-space layers"
    if row["kind"] == "LoRA":
        return "only adapters have weight gradients, so a step omits most of these matmuls"
    if row["kind"] == "SFT":
        return "short documents are packed into sequences, and their lengths are not published"
    if "tokendrop" in row["model"]:
        return "experts drop tokens, and their number is not published"
    return ""


def _bridged(row: dict) -> Run:
    first = lambda cell: int(str(cell).split()[0]) if str(cell).split()[0].isdigit() else 1
    name, kind = BRIDGE[row["model"]], row["system"].split("-")[1].lower()
    shape, gpus = replace(model(name).shape, context=row["seq"]), row["gpus"]
    p, t, cp, v, ep = (first(row[key]) for key in ("pp", "tp", "cp", "vp", "ep"))
    v = 1 if p == 1 else max(v // p, 1) if v * p > shape.layers else v
    sharded: dict[str, float] = {"zero": 3} if str(row["fsdp"]).split()[:1] not in ([], ["0"]) else {}
    if sharded and name == "llama3-70b":
        sharded["offload"] = OFFLOADED[kind] / shape.layers
    plan = _plan(gpus, p, t, cp, ep, row["mbs"], v, **sharded)
    seconds = row["gbs"] * row["seq"] / gpus / first(row["tokens_per_s_per_gpu"])
    return Run(
        "megatron_bridge",
        name,
        kind,
        _generation(row["release"], kind),
        shape,
        plan,
        row["gbs"],
        seconds,
        NARROW[row["precision"]],
        f"release {row['release']}",
    )


def _generation(release, kind: str) -> str:
    """Since release 26.06, recipes for Blackwell replay full steps as graphs. Recipes for Hopper do not, and are as
    fast as before.
    """
    return "megatron-static" if str(release) >= "26.06" and kind != "h100" else "megatron-2025"


# --- papers -------------------------------------------------------------------------------------------------------


def selective() -> list[Run]:
    """Four GPTs on A100s: full recomputation, and selective recomputation with sequence parallelism."""
    return [one for row in published("selective_recomputation") for one in _selective(row)]


def _selective(row: dict):
    shape = Shape(row["layers"], row["hidden"], row["heads"], 2048, 51200, tied=True)
    t, p = row["tensor_parallel"], row["pipeline_parallel"]
    for seconds, how, sequence in ((row["full_seconds"], FULL, False), (row["present_seconds"], SELECTIVE, True)):
        plan = Plan(p, t, 1, row["microbatch"], row["virtual_chunks"], how, sequence=sequence)
        plan = plan._replace(scatter=not sequence and p > 1)
        name = f"gpt-{row['billions']}b"
        yield Run("selective_recomputation", name, "a100", "megatron-2022", shape, plan, row["global_batch"], seconds)


def llama3() -> list[Run]:
    """Llama 3 405B with a short and a long context: 126 layers on 16 stages; the first and the last have one layer
    less."""
    return [_llama3(row) for row in published("llama3_405b")]


def _llama3(row: dict) -> Run:
    shape = replace(model("llama3-405b").shape, context=row["seq"])
    cp, batch = row["cp"], row["dp"] * row["batch_per_dp"]
    plan = _plan(row["gpus"], row["pp"], row["tp"], cp, v=8, attend=GATHER, uneven=True)
    seconds = _causal(shape, batch) / plan.devices / row["bf16_tflops_per_gpu"] / 1e12
    return Run("llama3_405b", "llama3-405b", "h100", "meta-2024", shape, plan, batch, seconds)


def _causal(shape: Shape, batch: int) -> float:
    """The model's FLOPs; for attention, only the unmasked half counts."""
    work = flops(shape, batch)
    return work.total - work.attention / 2


def folding() -> list[Run]:
    """Mixtral 8x22B with sharded experts (mapped as in Megatron-LM's README) and with folded ones, one on each of 8
    neighbours (tp=2, from memory: the table gives no mapping); with a capacity, which drops the tokens above it."""
    shape = replace(model("mixtral-8x22b").shape, context=4096)
    plans = {"MCore": _plan(128, p=8, t=4, ep=2, v=7), "MCore folding": _plan(128, p=8, t=2, ep=4, v=7, fold=True)}
    return [
        Run("moe_folding", "mixtral-8x22b", "h100", "megatron-static", shape, plans[row["config"]], 256,
            _causal(shape, 256) / 128 / row["tflops_per_gpu"] / 1e12, row["precision"].lower())
        for row in published("moe_folding")
    ]  # fmt: skip


def mixtral() -> list[Run]:
    """Mixtral 8x7B, from Megatron-LM's README."""
    (row,) = (row for row in published("long_and_sparse_h100") if row["model"] == "mixtral-8x7b")
    shape, gpus, batch = replace(model("mixtral-8x7b").shape, context=row["context"]), row["gpus"], row["batch"]
    plan = _plan(gpus, p=row["pipeline_parallel"], ep=row["expert_parallel"], v=row["virtual_chunks"])
    seconds = _causal(shape, batch) / gpus / row["tflops_per_gpu"] / 1e12
    return [Run("long_and_sparse_h100", "mixtral-8x7b", "h100", "megatron-2024", shape, plan, batch, seconds)]
