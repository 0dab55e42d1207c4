"""Check that a backward in two halves gives the gradients of a full one; an error names the layer.

Both halves run parts of the same graph, so a user's code may run twice: a hook on a tensor, or the backward of an
`autograd.Function`, which may have changed or freed what it saved. Only a comparison shows this. Each stage runs
forward and backward twice, on the first rows.

Relatives: `runtime.halves`, which splits; `training.rehearsal`, the same for matrices that are sharded.
"""

import math

import torch

from hybridlab.runtime.halves import input_half, weight_half
from hybridlab.training.job import Job
from hybridlab.training.models.draws import tensors_of
from hybridlab.training.models.examination import fewest
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.plain import SMALL, strange
from hybridlab.training.models.trees import as_computed, flat, mapped
from hybridlab.training.models.words import said


def refuse_other_halves(job: Job):
    """Raise an error unless both halves of a stage's backward together give the gradients of the full backward.

    raises  ValueError that names the layer, or the layers of a stage
    """
    kinds = {part.kind for program in job.schedule.program for action in program for part in action.each}
    if "I" not in kinds or not strange(job.whole):
        return
    ran = _Ran(job) if job.between else None  # a backward that cannot be cut at all raises its error first
    for stage, layers in enumerate(job.bounds):
        if why := ran.difference(layers):
            alone = next((one for one in layers if ran.difference([one])), None)
            where = f"stage {stage}" if alone is None else f"layer {alone} ({type(job.layers[alone]).__name__})"
            raise ValueError(
                f"{job.schedule.name} splits the backward in two, and in {where} {why}. A backward that may run twice "
                "must not change tensors that it saves, and hooks on tensors would see some gradients twice: choose "
                "1f1b, or compute the same without them"
            )


class _Ran:
    """A model that has run forward on its first rows.

    made  {layer: its output}, and -1: the inputs
    """

    def __init__(self, job: Job):
        dtype = getattr(torch, job.dtype)
        self.module = job.model.made(job.seed, dtype)
        self.layers, self.takes = dict(enumerate(job.model.layers(self.module))), job.model.takes(self.module)
        inputs, _ = as_computed(job.model.batch(0, fewest(job.model), job.seed), dtype)
        self.near = math.sqrt(torch.finfo(dtype).eps)
        with torch.inference_mode(False), torch.no_grad():
            self.made = in_sequence(dict(self.layers), self.takes, {-1: inputs})

    def difference(self, layers) -> str:
        """The first gradient that differs if the backward through these layers runs in two halves, in words, or ""."""
        whole = self._gradients(layers, _whole)
        try:
            halves = self._gradients(layers, _halves)
        except Exception as error:
            return f"the second half fails ({said(error)})"
        least = SMALL * max((float(x.abs().max()) for x in whole.values() if x.numel()), default=0.0)
        for name, x in whole.items():
            off = float((x - halves[name]).abs().max()) if x.numel() else 0.0
            if off > self.near * (float(x.abs().max()) if x.numel() else 0.0) + self.near * least:
                return f"the gradient of {name} differs by {off:.1e}"
        return ""

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _gradients(self, layers, backward) -> dict[str, torch.Tensor]:
        """{name: gradient} of the weights and the inputs of these layers, for gradients equal to their outputs."""
        mine = {number: self.layers[number] for number in layers}
        takes = {source for number in mine for source in self.takes[number]} - mine.keys()
        arrived = {one: mapped(_leaf if one >= 0 else torch.clone, self.made[one]) for one in sorted(takes)}
        made = in_sequence(dict(mine), self.takes, dict(arrived))
        later = {source for number, sources in self.takes.items() if number not in mine for source in sources}
        leaving = [x for number in mine if number in later or number == max(self.takes) for x in flat(made[number])]
        leaving = [x for x in leaving if x.requires_grad]
        leaves = {f"input {number} of the stage": x for number, x in enumerate(_floating(arrived))}
        self.module.zero_grad()
        if leaving:
            backward(leaving, [x.detach() for x in leaving], list(leaves.values()))
        found = leaves | {name: x for name, x in tensors_of(self.module).items() if x.requires_grad}
        return {name: torch.zeros_like(x) if x.grad is None else x.grad.clone() for name, x in found.items()}


def _leaf(x):
    return x.detach().clone().requires_grad_(x.is_floating_point())


def _floating(arrived: dict) -> list:
    return [x for number, one in arrived.items() if number >= 0 for x in flat(one) if x.is_floating_point()]


def _whole(leaving, gradients, leaves):
    torch.autograd.backward(leaving, gradients)


def _halves(leaving, gradients, leaves):
    found, kept = input_half(leaving, gradients, leaves)
    for leaf, gradient in zip(leaves, found):
        leaf.grad = gradient
    weight_half(kept)
