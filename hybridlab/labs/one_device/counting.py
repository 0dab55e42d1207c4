"""Notebook 02, memory counted: in a real step of one device, and on the ranks of a real pipeline.

Relatives: `memory`, which computes it; `measuring.saved`.
"""

from typing import NamedTuple

import torch

import hybridlab as hl
from hybridlab.measuring.saved import Saved
from hybridlab.predict.bytes import saved
from hybridlab.predict.plans.footprint import Footprint
from hybridlab.training.job import Job
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gpt import GPT, token_loss


def counted(shape: hl.Shape, batch: int) -> Footprint:
    """The bytes of a step of AdamW, counted in a real one: all tensors of the model, its gradients and its optimizer;
    and what autograd saves. Adam's count of steps, one number for each weight, is left out."""
    model = GPT(shape)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens_BT = torch.zeros(batch, shape.context, dtype=torch.long)
    with Saved(model.parameters()) as left:
        loss = token_loss(model(tokens_BT), torch.zeros_like(tokens_BT))
    loss.backward()
    optimizer.step()
    weights = list(model.parameters())
    kept = [x for one in optimizer.state.values() for x in one.values() if x.dim()]
    return Footprint(*(sum(x.nbytes for x in many) for many in (weights, [w.grad for w in weights], kept)), left.peak)


class Held(NamedTuple):
    """The memory of one rank of a pipeline for its backwards: the peak as counted; the number of microbatches at once,
    by the schedule; the bytes of one microbatch in the rank's layers, and those of its blocks by the paper's formula.
    """

    counted: int
    live: int
    each: int
    paper: int


def held(schedule: str, shape: hl.Shape, microbatches: int = 4, batch: int = 8, ranks: int = 2) -> list[Held]:
    """One step of a pipeline with a real model, rank by rank; for schedules with one stage on each rank."""
    job = job_of(hl.Mesh(pp=ranks), schedule, microbatches, batch, shape=shape)
    live, each = hl.simulate(job.schedule).peak_live, left_by_stages(job)
    blocks = [len(set(stage) & set(range(1, shape.layers + 1))) for stage in job.bounds]
    paper = sum(saved.paper(shape, job.rows).values())
    return [Held(*own, paper * some) for *own, some in zip(counted_on_ranks(job), live, each, blocks)]


def left_by_stages(job: Job) -> list[int]:
    """Bytes that one microbatch saves in each stage, by our formula."""
    layers = saved.layers(job.model.shape, job.rows)
    return [sum(layers[layer] for layer in stage) for stage in job.bounds]


def counted_on_ranks(job: Job) -> list[int]:
    """The most bytes that each rank holds for its backwards, counted while it runs one step."""
    with hl.ranks(job.mesh) as pool:
        return pool.run(_most, job)


def _most(comm, job: Job) -> int:
    trainer = Trainer(comm, job)
    with Saved(trainer.weights.by_name.values()) as left:
        trainer.gradients(0)
    return left.peak
