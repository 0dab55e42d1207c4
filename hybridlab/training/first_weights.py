"""The initial weights of training: the model's own initial numbers, or stored weights.

Each rank reads stored weights itself, one tensor after another, and keeps only the box that it holds.
"""

from itertools import chain

import torch
from torch import nn

from hybridlab.training.checkpoints.stored import Stored, stored
from hybridlab.training.models.draws import buffers_of, stirred, tensors_of


def whole_of(job, dtype: torch.dtype | None = None) -> nn.Module:
    """The full module with which a job starts, in the dtype of its computation or in another one."""
    dtype = dtype or getattr(torch, job.dtype)
    return part_of(job, job.model.original(job.seed, dtype), dtype=dtype)


def part_of(job, original: nn.Module, boxes: dict | None = None, device="cpu", dtype=None) -> nn.Module:
    """A copy of the original that holds some boxes, made by `Model.part`, with the job's initial weights."""
    module = job.model.part(original, job.seed, dtype or getattr(torch, job.dtype), boxes, device)
    if job.weights is not None:
        boxes = dict.fromkeys(tensors_of(original), ()) if boxes is None else boxes
        _fill(module, stored(job.weights), boxes)
        if job.model.proving:
            stirred(module, original, job.seed, boxes)
    return module


@torch.no_grad()
def _fill(module: nn.Module, found: Stored, boxes: dict):
    """Fill a module's boxes with the stored numbers."""
    own, names = tensors_of(module), _names(module)
    for name, others in names.items():
        if name in boxes and not own[name].is_meta:
            own[name].copy_(found.read(next(one for one in others if one in found.shapes))[boxes[name]])


def refuse_other_weights(where, module: nn.Module):
    """Raise an error unless the stored weights have exactly a module's names and shapes, and a tied weight has equal
    numbers under all its names; the numbers of other weights are not read.

    raises  ValueError that names the weight
    """
    found, own, names = stored(where, whole=True), tensors_of(module), _names(module)
    for name, others in names.items():
        there = next((found.shapes[one] for one in others if one in found.shapes), None)
        if there is None:
            prefix = next((one.removesuffix(name) for one in found.shapes if one.endswith(f".{name}")), "")
            told = f"take {prefix!r} off its names" if prefix else "give weights of this model"
            raise ValueError(f"{found.said} has no {name}, but the model does: {told}")
        if there != tuple(own[name].shape):
            here = tuple(own[name].shape)
            raise ValueError(f"{name} has shape {there} in {found.said}, but {here} in the model: make them equal")
        same = [one for one in others if one in found.shapes]
        for other in same[1:]:
            if found.shapes[other] != there or not torch.equal(found.read(same[0]), found.read(other)):
                raise ValueError(
                    f"{same[0]} and {other} are one tied weight in the model, but differ in {found.said}: make them "
                    "equal, or leave one out"
                )
    for name, x in where.items() if isinstance(where, dict) else ():
        if name in own and x.is_complex() and not own[name].is_complex():
            raise ValueError(f"{name} is complex in {found.said}, but real in the model: give its real numbers")
    known = {one for others in names.values() for one in others}
    for name in (name for name in found.shapes if name not in known):
        raise ValueError(f"{found.said} has {name}, but the model does not: give weights of this model")


def _names(module: nn.Module) -> dict[str, list[str]]:
    """{name: all names of it}: a tied weight may be stored under any of its names, or of those that a `state_dict` of
    the module gives it."""
    kept, found = dict(module.named_parameters()) | buffers_of(module), {}
    every = chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
        module.state_dict(keep_vars=True).items(),
    )
    for name, x in every:
        found.setdefault(id(x), {})[name] = None
    return {name: [*found[id(x)]] for name, x in kept.items()}
