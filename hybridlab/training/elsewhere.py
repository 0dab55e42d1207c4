"""The same numbers elsewhere: a rank computes what this process computes, from the first rows, or an error reports it.

Ranks are other processes, which import modules again. Changes that this process has made are missing there: a setting
in a module, an attribute of a class, a function that was replaced, a hook on all modules. Both sides of a proof run on
ranks, so they would be equal to each other, but different from the model that its owner has here.

Relatives: `training.models.plain`, the owner's run; `training.rehearsal`, which trains one step before the training.
"""

import math

import torch

from hybridlab.core.what.seams import draws_of
from hybridlab.training.job import Job
from hybridlab.training.models.draws import tensors_of
from hybridlab.training.models.examination import fewest
from hybridlab.training.models.plain import SMALL, strange
from hybridlab.training.models.trees import as_computed, flat, rows_of
from hybridlab.training.models.words import said
from hybridlab.world.processes import torchrun

MOST = 1e8  # weights: above this, another copy of them takes too long


def refuse_elsewhere(job: Job, pool):
    """Raise an error unless a rank of this pool computes the same as this process.

    It skips reference models, models with more than `MOST` weights, and ranks that torchrun has started, since each of
    these has run the user's program itself.
    """
    if not strange(job.whole) or sum(math.prod(one.shape) for one in job.records) > MOST or torchrun.present():
        return
    here, (there, *_) = heard(job), pool.run(heard_on_rank, job)
    what = (
        f"fails there: {there}"
        if isinstance(there, str)
        else another(here, there, torch.finfo(getattr(torch, job.dtype)).eps ** (1 / 3))
    )
    if what:
        raise ValueError(
            f"on a rank, this model {what}. Ranks import modules again, without the changes that this process has made "
            "to them, such as a setting, a replaced function or a global hook: make such changes where the module is "
            "imported, or in a function of the seed that returns the model"
        )


def heard_on_rank(comm, job: Job) -> dict | str | None:
    """The numbers that the first rank computes; or its error, in words."""
    if comm.rank:
        return None
    try:
        return heard(job)
    except Exception as error:
        return said(error)


@torch.inference_mode(False)
@torch.enable_grad()
def heard(job: Job) -> dict[str, tuple[float, float]]:
    """{name of a tensor: two numbers computed from it}, in the order of a forward and backward of the first rows."""
    model, dtype = job.model.apart(), getattr(torch, job.dtype)
    module = model.made(job.seed, dtype)
    found = {f"begins with another {name}": [x] for name, x in tensors_of(module).items()}
    first = model.batch(0, job.microbatches * job.rows, job.seed)  # as in training: data may keep a mean of it
    inputs, targets = as_computed(rows_of(first, slice(fewest(model))), dtype)
    found |= {"gets other inputs": flat(inputs), "gets other targets": flat(targets)}
    draws_of(module).row = 0
    if model.call is None:
        made, takes = {-1: inputs}, model.takes(module)
        for number, layer in enumerate(model.layers(module)):
            made[number] = layer(*(made[one] for one in takes[number]))
            found[f"has another output of layer {number} ({type(layer).__name__})"] = flat(made[number])
        outputs = made[number]
    else:
        outputs = model.call(module, inputs)
        found["has another output"] = flat(outputs)
    loss = model.loss(outputs, targets)
    if loss.requires_grad:  # these few rows may have nothing that counts
        loss.backward()
    found["has another loss"] = [loss]
    grown = {name: weight.grad for name, weight in module.named_parameters() if weight.grad is not None}
    found |= {f"has another gradient of {name}": [gradient] for name, gradient in grown.items()}
    return {what: _numbers(some) for what, some in found.items()}


def _numbers(some) -> tuple[float, float]:
    """The norm of some tensors, and their sum with weights that differ from place to place."""
    real = (torch.view_as_real(x.detach()) if x.is_complex() else x.detach() for x in some)
    whole = torch.cat([x.double().reshape(-1) for x in real])
    return float(whole.norm()), float(whole @ torch.arange(len(whole), dtype=torch.float64, device=whole.device).cos())


def another(here: dict, there: dict, near: float) -> str:
    """The first tensor that differs between this process and a rank, in words; "" if there is none.

    near  the difference that rounding may make, relative to a tensor's norm

    >>> here = {"has another loss": (2.0, 2.0)}
    >>> another(here, here, 1e-6), another(here, {"has another loss": (3.0, 3.0)}, 1e-6)
    ('', 'has another loss')
    """
    if list(here) != list(there):
        return "has other weights or layers"
    least = SMALL * max(norm for norm, _ in here.values())
    for what, numbers in here.items():
        if any(abs(one - other) > near * (numbers[0] + least) for one, other in zip(numbers, there[what])):
            return what
    return ""
