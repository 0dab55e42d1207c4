"""A job's layout: the rules of all modes applied to every parameter.

The pipeline determines the stages that hold a parameter, the modes' rules determine how it is cut, and ZeRO determines
its owners between steps. Last it is assigned to a pack. Nothing here computes. Each rank derives the layout itself, and
ranks compare fingerprints.
"""

from dataclasses import replace

import torch
from torch import nn

from hybridlab.core.what.seams import Attends, Routes
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import PLAYED
from hybridlab.core.where.packs import packed
from hybridlab.core.where.rules import placed
from hybridlab.modes.data_parallel import LOCAL
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.bytes.context import ATTEND
from hybridlab.predict.plans.divisions import Division
from hybridlab.training.models.trees import flat
from hybridlab.training.models.vocabulary_pieces import Pieced
from hybridlab.training.stages import names_of, stages_of


def layout_of(job) -> Layout:
    """The layout of a job on its mesh, checked to hold every element on some rank."""
    seats = {home: seats_of(job, home) for home in set(job.homes.values())}
    params = (replace(param, at={"pp": seats[job.homes[param.name]]}) for param in _cut(job))
    layout = Layout(job.mesh, tuple(params))
    for mode in job.modes:
        layout = mode.placed(layout, job)
    width = getattr(torch, job["sum_dtype"]).itemsize
    return packed(layout, job.homes, job.keeper.limits(job), width).validate()


def _cut(job) -> list[Param]:
    """Every parameter, reduced over the copies of its stages, and cut according to all modes' rules."""
    rules, every = job.rules(), [replace(param, partial=PLAYED) for param in job.records]
    leading = "".join(mode.leading for mode in job.modes)
    about = rules, job.mesh, job.sizes, job.apart, job.copied, leading
    return [replace(param, **placed(param, *about)) for param in every]


def sums_inside(job) -> bool:
    """Whether the ranks that share a stage have gradients to reduce among themselves."""
    return any(axis in job.mesh.inside for param in job.layout.params for axis in param.partial)


def homes_of(job) -> dict[str, tuple[int, ...]]:
    """The stages that use each parameter: one, or several for a tied one.

    raises  ValueError for a parameter that is in no layer
    """
    names = names_of(job.whole, stages_of(job.model, job.whole, job.bounds, job.between))
    homes = {param.name: tuple(s for s, its in enumerate(names) if param.name in its) for param in job.records}
    for name, home in homes.items():
        if not home:
            raise ValueError(f"{name} is not in any layer: list the layer that uses it in layers()")
    return homes


def homes_of_buffers(job) -> dict[str, tuple[int, ...]]:
    """The stages that have each buffer in their layers; a buffer outside of layers is on all stages."""
    layers = [{id(buffer) for buffer in layer.buffers()} for layer in job.layers]
    stages = [set().union(*(layers[number] for number in its)) for its in job.bounds]
    within = lambda buffer: tuple(stage for stage, its in enumerate(stages) if id(buffer) in its)
    return {name: within(buffer) or tuple(range(len(stages))) for name, buffer in job.whole.named_buffers()}


def boxes_of(job, rank: int) -> dict[str, tuple[slice, ...]]:
    """{parameter or buffer: a rank's part of it}: parameters according to the layout, and its stages' full buffers."""
    mine = set(job.stages_on(rank))
    buffers = {name: () for name, home in homes_of_buffers(job).items() if mine & set(home)}
    return {name: job.layout.box(name, rank) for name in job.layout.held(rank)} | buffers


def dims_left(job) -> list[str]:
    """The names of the dims of each layer's output, with a dot for a dim without a name, or no longer sharded."""
    found, last, enters = [], "", job.model.enters.split()
    for number, layer in enumerate(job.layers):
        last = last_dim(job, layer) or last
        whole = "".join(mode.joined(job, number) for mode in job.modes)
        enters = ["." if letter in whole else letter for letter in enters]
        dims = len(flat(job.between[number])[0].shape)
        kept = enters if dims >= len(enters) else enters[: max(dims - 1, 1)]
        names = [*kept, *["."] * (dims - len(kept))]
        found.append(" ".join([*names[:-1], last] if last and dims > 1 else names))
    return found


def last_dim(job, layer: nn.Module) -> str:
    """The letter of the last dim of a layer's output; "" if its parameters do not determine it."""
    dims_of, last = job.once(_dims_of), ""
    for module in layer.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            dims = dims_of.get(id(module.weight))  # missing if the weight is computed from others
            last = dims[0 if isinstance(module, nn.Linear) else -1][0] if dims else last
    return last


def _dims_of(job) -> dict[int, list[str]]:
    """{id of a weight of the full module: the names of its dims}."""
    return {id(weight): param.dims.split() for param, weight in zip(job.records, job.whole.parameters())}


def seats_of(job, stages: tuple[int, ...]) -> tuple[int, ...]:
    """The places along pp of the ranks that own one of these stages."""
    line = job.mesh.line(0)
    ranks = [line[rank] for (stage, _), rank in job.schedule.place.items() if stage in stages]
    return tuple(sorted({job.mesh.place(rank, "pp") for rank in ranks}))


def division_of(job) -> Division:
    """The division of a job's model, in the form that rules and plans use."""
    mesh, modules = job.mesh, list(job.whole.modules())
    routing = [module.routing for module in modules if isinstance(module, Routes)]
    return Division(
        mesh["tp"],
        mesh["x"],
        mesh["cp"],
        job.copies,
        job["zero"],
        job["owners"] or 0,
        job["sequence"],
        job["scatter"],
        ATTEND.index(job["attend"]),
        job["ulysses"],
        job["zigzag"],
        RECOMPUTE.index(job["recompute"]),
        any(isinstance(module, Attends) for module in modules),
        bool(routing),
        any(one.capacity is not None for one in routing),
        job["fold"],
        job["dispatch"] == "all_gather",
        isinstance(job.model, Pieced) and job.model.shape.tied,
        job["two_levels"],
        job["secondary"],
        job.schedule.slices,
        job["sums"] == LOCAL,
    )
