"""A task's layout: every mode's word about every parameter, one after the other.

The pipeline says which stages hold it, tensor parallelism how it is cut, ZeRO who keeps what at rest, and last it is
dealt out to packs. Nothing here computes; ranks make the same layout, each for itself, and compare fingerprints.
"""

import torch

from hybridlab.core.layout import Layout, Param
from hybridlab.core.mesh import Mesh
from hybridlab.core.packs import FIRST_BYTES, PACK_BYTES, packed
from hybridlab.core.schedule import Schedule
from hybridlab.modes import tensor_parallel
from hybridlab.modes.zero import shared
from hybridlab.train.model import GPT
from hybridlab.train.stages import names_of, stages_of


def layout_of(task) -> Layout:
    """The layout of a task on its mesh, proved to hold every element somewhere."""
    model, homes = GPT(task.shape), task.homes
    at = {name: _coordinates(task.mesh, task.schedule, stages) for name, stages in homes.items()}
    layout = Layout(
        task.mesh,
        tuple(
            Param(name, tuple(weight.shape), at={"pp": at[name]}, partial=("dp", "pp"))
            for name, weight in model.named_parameters()
        ),
    )
    ways = task.mesh["tp"]
    if ways > 1:
        layout = layout.with_params(lambda param: tensor_parallel.place(param, task.shape, ways, task.sequence))
    layout = shared(layout, task.zero, task.owners)
    return packed(layout, homes, _limits(task), getattr(torch, task.sum_dtype).itemsize).validate()


def homes_of(model: GPT, bounds) -> dict[str, tuple[int, ...]]:
    """The stages that use each parameter: one, or several of a tied one."""
    names = names_of(model, stages_of(model, bounds))
    return {name: tuple(s for s, its in enumerate(names) if name in its) for name, _ in model.named_parameters()}


def _coordinates(mesh: Mesh, schedule: Schedule, stages) -> tuple[int, ...]:
    """Where along pp the ranks stand that own one of these stages."""
    line = mesh.line(0)
    ranks = [line[rank] for (stage, _), rank in schedule.place.items() if stage in stages]
    return tuple(sorted({mesh.coordinates(rank).get("pp", 0) for rank in ranks}))


def _limits(task):
    """What is sent as one buffer: with ZeRO's last stage, all that a stage of the pipeline gathers at once."""
    if task.zero == 3:
        return float("inf"), float("inf")
    return (FIRST_BYTES, PACK_BYTES) if task.sums == "buckets" else (0, 0)
