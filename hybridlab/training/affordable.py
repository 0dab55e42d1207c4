"""Jobs for the ranks of this machine: their sizes are checked before a rank is started.

The estimate is a lower bound: the job's states, the activations of one microbatch after every layer, and the FLOPs of
its matmuls, six for each weight and token. Relatives: `core.afford`, `predict.bytes.memory`.
"""

import math

import torch

from hybridlab.core.afford import ACTION, LONGEST, cores, refuse
from hybridlab.predict.bytes.memory import model_states
from hybridlab.training.asked import mesh_of
from hybridlab.training.job import Job
from hybridlab.training.make_job import job_of
from hybridlab.training.models.examination import STEPS
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.models.trees import flat
from hybridlab.world.devices.placement import placement
from hybridlab.world.processes import torchrun
from hybridlab.world.processes.launch import refuse_crowd

FASTEST = 2e11  # multiplications and additions per second, of one core


def affordable(longest: float = LONGEST, **given) -> Job:
    """The job for these arguments, which are those of `job_of`.

    longest  maximum estimated seconds

    raises  ValueError as `job_of` does, and for a job that this machine cannot run
    """
    if torchrun.present():
        return job_of(**given)
    mesh = mesh_of(given)
    _refuse_settings()
    refuse_crowd(mesh)
    job = job_of(**given)
    if placement(mesh.size).kind == "cpu":
        refuse(f"states on {mesh.size} rank{'s' * (mesh.size > 1)}", states_of(job))
        passing = activations_of(job)
        refuse(f"activations of microbatches of {job.rows} rows", passing, batch=job.rows * job.microbatches)
        refuse(f"{job.steps} steps", seconds=seconds_of(job), longest=longest, steps=job.steps)
    if isinstance(job.model, Transformer):
        job.model.batch(0, 1, job.seed)  # raises an error if the text is shorter than one sequence
    else:
        for step in STEPS if len(job.bounds) > 1 else (0,):
            job.batch(step)  # an error if there are too few rows, or stages cannot exchange them
    return job


def _refuse_settings():
    """Raise ValueError for settings of this process that change numbers, and that its ranks do not have."""
    if torch.get_default_dtype() != torch.float32:
        kind = str(torch.get_default_dtype()).removeprefix("torch.")
        raise ValueError(
            f'torch.set_default_dtype({kind}) is not set on the ranks: leave it out, and give dtype="{kind}"'
        )
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise ValueError('ranks do not compute with torch.autocast: leave it out here, and give dtype="bfloat16"')


def states_of(job: Job) -> int:
    """Bytes of weights, gradients and optimizer state, on all ranks together."""
    return sum(sum(model_states(job.layout, rank, job.widths).values()) for rank in range(job.mesh.size))


def activations_of(job: Job) -> int:
    """Minimum bytes of the layers' outputs for the microbatches in flight: one in each copy."""
    left = sum(x.numel() * x.element_size() for leaving in job.between for x in flat(leaving))
    return left * job.mesh["dp"]


def seconds_of(job: Job) -> float:
    """Seconds of all matmuls, with all cores at full speed; a lower bound if layers reuse a weight within a row."""
    weights = sum(math.prod(record.shape) for record in job.records)
    rows = job.rows * job.microbatches * job.accumulate
    tokens = rows * job.model.shape.context if isinstance(job.model, Transformer) else rows
    actions = len(job.schedule.rows) / job.schedule.ranks * job.accumulate  # of a rank
    return job.steps * (6 * weights * tokens / (FASTEST * cores()) + ACTION[1] * actions)
