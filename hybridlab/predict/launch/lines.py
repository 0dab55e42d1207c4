"""Lines: the commands that start a plan in Megatron-LM, in torchtitan, and on a cluster with Slurm.

Each flag is in the program's documentation. A plan that the program cannot run raises an error (`programs_rules`);
nothing is omitted silently.

Sources: NVIDIA/Megatron-LM, megatron/training/arguments.py;
pytorch/torchtitan, torchtitan/config/job_config.py; Slurm, sbatch and srun. Relatives: `predict.plans.jobs`, the same
for our own runtime; examples/slurm.
"""

import shlex
from typing import Any

from hybridlab.core.what.shape import Shape
from hybridlab.doors import COUNT, POSITIVE, doors, texts
from hybridlab.predict.bytes.activations import FULL, SELECTIVE
from hybridlab.predict.bytes.context import GATHER, RING, ULYSSES, USP
from hybridlab.predict.bytes.experts import ALL_GATHER
from hybridlab.predict.launch.letters import layout
from hybridlab.predict.launch.programs_rules import OF_MEGATRON, OF_TORCHTITAN, refuse_broken
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.ranges import refuse_plan

CP = {GATHER: "all_gather", RING: "p2p", ULYSSES: "a2a", USP: "a2a+p2p"}  # --cp-comm-type, as its kernels read it
HIERARCHY = "hierarchical-context-parallel-sizes"  # ranks that exchange heads, and groups around the ring
INSTANCES = "num-distributed-optimizer-instances"
SHARDED = {2: "optim_grads", 3: "optim_grads_params"}  # --data-parallel-sharding-strategy


def megatron(plan: Plan, shape: Shape, batch: int, precision: str = "bf16") -> list[str]:
    """The arguments of Megatron-LM's pretrain_gpt.py for a plan.

    plan       the plan to start
    shape      of the model
    batch      sequences in the global batch
    precision  of matmuls with weights

    raises  ValueError if the plan is not legal, or Megatron-LM cannot run it

    >>> one = megatron(Plan(p=2, t=4, d=2, b=1, zero=1, sequence=True), Shape(layers=4, heads=4), batch=8)
    >>> print(*one[:6])
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1
    """
    check_plan(plan, shape, batch)
    refuse_broken("Megatron-LM", OF_MEGATRON, plan, shape)
    found = {
        "tensor-model-parallel-size": plan.t,
        "pipeline-model-parallel-size": plan.p,
        "micro-batch-size": plan.b,
        "global-batch-size": batch,
        **_virtual(plan, shape),
        **({"sequence-parallel": ""} if plan.sequence else {}),
        **({"tp-comm-overlap": ""} if plan.overlap else {}),
        **({"context-parallel-size": plan.cp, "cp-comm-type": CP[plan.attend]} if plan.cp > 1 else {}),
        **({HIERARCHY: f"{plan.ulysses} {plan.cp // plan.ulysses}"} if plan.ulysses > 1 else {}),
        **({"expert-model-parallel-size": plan.expert_ways} if plan.expert_ways > 1 else {}),
        **({"expert-tensor-parallel-size": 1} if plan.fold else {}),
        **_sharing(plan),
        **_again(plan),
        **_sizes(shape),
        **({"fp8-format": "hybrid"} if precision == "fp8" else {}),
        "bf16": "",
        **({"attention-backend": "fused"} if plan.fused else {}),
    }
    if shape.experts > 1:
        kind = "allgather" if plan.dispatch == ALL_GATHER else "alltoall"
        found["moe-token-dispatcher-type"] = kind
    return [word for name, value in found.items() for word in (f"--{name}", *str(value).split())]


def _virtual(plan: Plan, shape: Shape) -> dict:
    if plan.uneven:
        return {"pipeline-model-parallel-layout": layout(dealt(shape.layers, plan.p * plan.v))}
    return {"num-layers-per-virtual-pipeline-stage": shape.layers // (plan.p * plan.v)} if plan.v > 1 else {}


def _sharing(plan: Plan) -> dict:
    if plan.zero == 1:
        return {"use-distributed-optimizer": "", "overlap-grad-reduce": "", "overlap-param-gather": ""}
    if plan.zero >= 2:
        return {
            "use-megatron-fsdp": "",
            "data-parallel-sharding-strategy": SHARDED[plan.zero],
            "use-distributed-optimizer": "",
            "no-gradient-accumulation-fusion": "",
            "ckpt-format": "fsdp_dtensor",
            **_instances(plan),
        }
    return {}


def _instances(plan: Plan) -> dict:
    """The number of groups of owners; the outer strategy says whether they replicate or shard the optimizer's state."""
    outer = "optim" if plan.two_levels else "no_shard"
    return {INSTANCES: plan.copies[1] // plan.z, "outer-dp-sharding-strategy": outer} if plan.z else {}


def _again(plan: Plan) -> dict:
    if plan.recompute == SELECTIVE:
        return {"recompute-granularity": "selective"}
    if plan.recompute == FULL:
        return {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    return {}


def _sizes(shape: Shape) -> dict:
    found: dict[str, Any] = {
        "num-layers": shape.layers,
        "hidden-size": shape.width,
        "num-attention-heads": shape.heads,
        "ffn-hidden-size": shape.inside,
        "seq-length": shape.context,
        "max-position-embeddings": shape.context,
    }
    if shape.key_heads != shape.heads:
        found |= {"group-query-attention": "", "num-query-groups": shape.key_heads}
    if shape.latent:
        found |= {"multi-latent-attention": "", "kv-lora-rank": shape.latent, "qk-pos-emb-head-dim": shape.rotary}
        found |= dict.fromkeys(("qk-head-dim", "v-head-dim"), shape.head_width)
        found["qk-layernorm"] = ""  # with latents, Megatron-LM puts the norm on these
        found |= {"q-lora-rank": shape.query_latent} if shape.query_latent else {}
    elif shape.per_head:
        found["kv-channels"] = shape.per_head
    if shape.style == "llama":
        found |= {
            "swiglu": "",
            "normalization": "RMSNorm",
            "disable-bias-linear": "",
            "position-embedding-type": "rope",
        }
    if not shape.tied:
        found["untie-embeddings-and-output-weights"] = ""
    if shape.experts > 1:
        found |= {"num-experts": shape.experts, "moe-router-topk": shape.chosen, "moe-ffn-hidden-size": shape.inside}
        if shape.shared:
            found["moe-shared-expert-intermediate-size"] = shape.shared * shape.inside
    return found


def torchtitan(plan: Plan, shape: Shape, batch: int) -> list[str]:
    """The arguments of torchtitan's train.py for a plan, without the model, which torchtitan selects by name.

    plan   the plan to start
    shape  of the model
    batch  sequences in the global batch

    raises  ValueError if the plan is not legal, or torchtitan cannot run it

    The product of all its degrees except that of experts is the number of ranks: experts use ranks of the shard degree.

    >>> print(*torchtitan(Plan(d=8, b=2, zero=3, recompute=FULL), Shape(), batch=16)[:2])
    --parallelism.data_parallel_shard_degree 8
    >>> one = Plan(d=2, ep=4, zero=3)
    >>> print(*torchtitan(one, Shape(experts=8, chosen=2), batch=16)[:2])
    --parallelism.data_parallel_shard_degree 8
    """
    check_plan(plan, shape, batch)
    refuse_broken("torchtitan", OF_TORCHTITAN, plan, shape)
    copies = plan.d * plan.ep
    shard = plan.z or copies if plan.zero == 3 else 1
    found = {
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.data_parallel_replicate_degree": copies // shard,
        "parallelism.tensor_parallel_degree": plan.t,
        "parallelism.pipeline_parallel_degree": plan.p,
        "parallelism.context_parallel_degree": plan.cp,
        "parallelism.expert_parallel_degree": plan.expert_ways,
        **({"parallelism.expert_tensor_parallel_degree": plan.expert_shards} if plan.expert_ways > 1 else {}),
        "training.local_batch_size": plan.b * plan.microbatches(batch) if plan.p > 1 else plan.b,
        "training.global_batch_size": batch,
        "training.seq_len": shape.context,
        "activation_checkpoint.mode": ("none", "selective", "full")[plan.recompute],
    }
    if plan.overlap:
        found |= {"parallelism.enable_async_tensor_parallel": "", "compile.enable": ""}
    if plan.p > 1:
        found["parallelism.pipeline_parallel_schedule"] = "Interleaved1F1B" if plan.v > 1 else "1F1B"
        found["parallelism.pipeline_parallel_microbatch_size"] = plan.b
    return [word for name, value in found.items() for word in (f"--{name}", *str(value).split())]


def slurm(plan: Plan, node: int, program: str, arguments: list[str], hours: float = 4) -> str:
    """A script for sbatch that starts a program on all nodes of a plan, one torchrun on each.

    plan       the plan to start
    node       devices in a node
    program    the program that torchrun starts
    arguments  of the program
    hours      time limit of the job

    raises  ValueError if the plan does not fill its nodes

    >>> print(slurm(Plan(d=16), 8, "training.py", ["--steps", "9"]).splitlines()[1])
    #SBATCH --nodes=2
    """
    if plan.devices % node and plan.devices > node:
        raise ValueError(f"{plan.devices} devices do not fill whole nodes of {node}: plan for a multiple of {node}")
    nodes, each = max(plan.devices // node, 1), min(plan.devices, node)
    whole, minutes = divmod(round(60 * hours), 60)
    started = " ".join(shlex.quote(word) for word in arguments)
    return "\n".join((
        "#!/bin/bash",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={each}",
        f"#SBATCH --time={whole:02}:{minutes:02}:00",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f'srun torchrun --nnodes={nodes} --nproc-per-node={each} --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" \\',
        f'  --rdzv-endpoint="$head:29500" {program} {started}',
        "",
    ))  # fmt: skip


megatron, torchtitan, slurm = doors(
    megatron, torchtitan, slurm, plan=refuse_plan, batch=COUNT, node=COUNT, hours=POSITIVE, arguments=texts
)
