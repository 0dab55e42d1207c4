"""Jobs for the ranks of this machine: their sizes are checked before a rank is started.

What is reckoned is the least that a job takes: its states, the activations of one microbatch after every layer, and the
FLOPs of its matmuls, six for each weight and token. Relatives: `core.afford`, `predict.bytes.memory`.
"""

import math

from hybridlab.core.afford import ACTION, LONGEST, cores, refuse
from hybridlab.predict.bytes.memory import model_states
from hybridlab.training.asked import mesh_of
from hybridlab.training.job import Job
from hybridlab.training.make_job import job_of
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.models.trees import flat
from hybridlab.world.devices.placement import placement
from hybridlab.world.processes import torchrun
from hybridlab.world.processes.launch import refuse_crowd

FASTEST = 2e11  # products and sums a second, of one core


def affordable(longest: float = LONGEST, **given) -> Job:
    """The job that is asked for, with the arguments of `job_of`.

    longest  seconds that it may take

    raises  ValueError in one sentence as `job_of` does, and for one that this machine cannot serve
    """
    if torchrun.present():
        return job_of(**given)
    mesh = mesh_of(given)
    refuse_crowd(mesh)
    job = job_of(**given)
    if placement(mesh.size).kind == "cpu":
        refuse(f"states on {mesh.size} rank{'s' * (mesh.size > 1)}", states_of(job))
        passing = activations_of(job)
        refuse(f"activations of microbatches of {job.rows} rows", passing, batch=job.rows * job.microbatches)
        refuse(f"{job.steps} steps", seconds=seconds_of(job), longest=longest, steps=job.steps)
    if isinstance(job.model, Transformer):
        job.model.batch(0, 1, job.seed)  # is the text as long as one sequence?
    else:
        job.batch(0)  # has it as many rows as are asked for?
    return job


def states_of(job: Job) -> int:
    """Bytes of weights, gradients and optimizer state, on all ranks together."""
    return sum(sum(model_states(job.layout, rank, job.widths).values()) for rank in range(job.mesh.size))


def activations_of(job: Job) -> int:
    """Bytes of what leaves the layers for the microbatches that are under way at least: one in each copy."""
    left = sum(x.numel() * x.element_size() for leaving in job.between for x in flat(leaving))
    return left * job.mesh["dp"]


def seconds_of(job: Job) -> float:
    """Seconds of all matmuls, on all cores at their fastest; of layers that use a weight once a row, at least."""
    weights = sum(math.prod(record.shape) for record in job.records)
    rows = job.rows * job.microbatches * job.accumulate
    tokens = rows * job.model.shape.context if isinstance(job.model, Transformer) else rows
    actions = len(job.schedule.rows) / job.schedule.ranks * job.accumulate  # of a rank
    return job.steps * (6 * weights * tokens / (FASTEST * cores()) + ACTION[1] * actions)
