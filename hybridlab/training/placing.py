"""A job's layout: the rules of all modes applied to every parameter.

The pipeline says which stages hold it, the modes' rules how it is cut, ZeRO who keeps what at rest, and last it is
dealt out to packs. Nothing here computes; ranks make the same layout, each for itself, and compare fingerprints.
"""

from dataclasses import replace

import torch
from torch import nn

from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import PLAYED
from hybridlab.core.where.packs import packed
from hybridlab.core.where.rules import placed
from hybridlab.training.stages import names_of, stages_of


def layout_of(job) -> Layout:
    """The layout of a job on its mesh, proved to hold every element somewhere."""
    seats = {home: seats_of(job, home) for home in set(job.homes.values())}
    params = (replace(param, at={"pp": seats[job.homes[param.name]]}) for param in _cut(job))
    layout = Layout(job.mesh, tuple(params))
    for mode in job.modes:
        layout = mode.placed(layout, job)
    width = getattr(torch, job["sum_dtype"]).itemsize
    return packed(layout, job.homes, job.keeper.limits(job), width).validate()


def _cut(job) -> list[Param]:
    """Every parameter, summed over the copies of its stages, and cut as all modes' rules say."""
    rules, every = job.rules(), [replace(param, partial=PLAYED) for param in job.records]
    return [replace(param, **placed(param, rules, job.mesh, job.sizes, job.apart, job.copied)) for param in every]


def sums_inside(job) -> bool:
    """Whether ranks that hold a stage between them have gradients to add."""
    return any(axis in job.mesh.inside for param in job.layout.params for axis in param.partial)


def homes_of(job) -> dict[str, tuple[int, ...]]:
    """The stages that use each parameter: one, or several of a tied one.

    raises  ValueError for a parameter that is in no layer
    """
    names = names_of(job.whole, stages_of(job.model, job.whole, job.bounds, job.between))
    homes = {param.name: tuple(s for s, its in enumerate(names) if param.name in its) for param in job.records}
    for name, home in homes.items():
        if not home:
            raise ValueError(f"{name} is not in any layer: list the layer that uses it in layers()")
    return homes


def homes_of_buffers(job) -> dict[str, tuple[int, ...]]:
    """The stages that have each buffer in their layers; one that is in no layer, all of them have."""
    layers = [{id(buffer) for buffer in layer.buffers()} for layer in job.layers]
    stages = [set().union(*(layers[number] for number in its)) for its in job.bounds]
    within = lambda buffer: tuple(stage for stage, its in enumerate(stages) if id(buffer) in its)
    return {name: within(buffer) or tuple(range(len(stages))) for name, buffer in job.whole.named_buffers()}


def boxes_of(job, rank: int) -> dict[str, tuple[slice, ...]]:
    """{parameter or buffer: what a rank holds of it}: parameters as the layout says, and its stages' buffers, whole."""
    mine = set(job.stages_on(rank))
    buffers = {name: () for name, home in homes_of_buffers(job).items() if mine & set(home)}
    return {name: job.layout.box(name, rank) for name in job.layout.held(rank)} | buffers


def last_dim(job, layer: nn.Module) -> str:
    """The letter of the last dim of what leaves a layer; "" where its parameters do not say it."""
    dims_of, last = job.once(_dims_of), ""
    for module in layer.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            dims = dims_of.get(id(module.weight))  # not there where the weight is computed from others
            last = dims[0 if isinstance(module, nn.Linear) else -1][0] if dims else last
    return last


def _dims_of(job) -> dict[int, list[str]]:
    """{id of a weight of the whole module: the names of its dims}."""
    return {id(weight): param.dims.split() for param, weight in zip(job.records, job.whole.parameters())}


def seats_of(job, stages: tuple[int, ...]) -> tuple[int, ...]:
    """Where along pp the ranks stand that own one of these stages."""
    line = job.mesh.line(0)
    ranks = [line[rank] for (stage, _), rank in job.schedule.place.items() if stage in stages]
    return tuple(sorted({job.mesh.place(rank, "pp") for rank in ranks}))
