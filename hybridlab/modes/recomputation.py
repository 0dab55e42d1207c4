"""Recomputation: intermediate activations of a layer are not saved for the backward, but recomputed.

A backward needs the activations of its forward. A layer that saves only its input recomputes the rest when its backward
begins. So only one layer of a stage at a time stores all its activations.

  recompute     saved in each layer                     computed twice
  none          all                                     nothing
  selective     all except activations inside attention  attention's core: scores, weights, sums of values
  full          the input                               the layer and its messages

Recomputation needs no axis and no message. `scheduling.gpipe` has another form of it: a *stage* saves only
its input, and its second forward is an action of the schedule, visible in the picture.

Layers that draw random numbers by position draw the same numbers twice: the position of the rows in the global batch is
saved with the input. Layers that count (`training.models.counting`) count in a forward with autograd, which is the
second one.

Source: Chen et al. 2016, arXiv:1604.06174; selective, Korthikanti et al. 2022, arXiv:2205.05198, section 5. Relatives:
`predict.bytes.activations`, its bytes; rows C and R of `core.when.law`; torch.utils.checkpoint, the same for one
device.
"""

from collections.abc import Sequence
from contextlib import contextmanager

import torch

from hybridlab.core.what.seams import Attends, draws_of
from hybridlab.modes.mode import Mode, Option
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.plans import divisions


class Again(torch.autograd.Function):
    """A function of tensors, computed without autograd, and recomputed with it in the backward.

    token  an empty tensor that requires a gradient, so that the backward runs even if no input requires one
    """

    @staticmethod
    def forward(ctx, do, draws, token, *entered):
        ctx.do, ctx.draws, ctx.row = do, draws, draws.row
        ctx.save_for_backward(*entered)
        made = do(*entered)  # new tensors: else a weight that is returned unchanged becomes a result
        return tuple(x.view_as(x) for x in made) if isinstance(made, tuple | list) else made.view_as(made)

    @staticmethod
    def backward(ctx, *gradients):
        entered = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.enable_grad(), _at(ctx.draws, ctx.row):
            made = ctx.do(*entered)
        made = made if isinstance(made, tuple | list) else (made,)
        pulled = [(x, gradient) for x, gradient in zip(made, gradients) if x.requires_grad]
        if pulled:  # false for a layer without weights that reads the batch
            torch.autograd.backward(*zip(*pulled))  # weights get their gradients here
        return None, None, None, *(x.grad for x in entered)


def again(do, draws):
    """The same function, saving only its inputs.

    >>> from hybridlab.core.what.seams import Draws
    >>> x = torch.tensor([0.5], requires_grad=True)
    >>> again(torch.sin, Draws())(x).backward()
    >>> bool(x.grad == x.cos())
    True
    """

    def done(*entered):
        widths = [len(one) if isinstance(one, tuple | list) else 0 for one in entered]
        tensors = [x for one in entered for x in (one if isinstance(one, tuple | list) else (one,))]
        return Again.apply(
            lambda *each: do(*_as_it_came(each, widths)), draws, torch.empty(0, requires_grad=True), *tensors
        )

    return done


def _as_it_came(tensors, widths) -> list:
    """The arguments of a layer: `widths` gives the number of tensors of each tuple, and 0 for a single tensor."""
    coming = iter(tensors)
    return [tuple(next(coming) for _ in range(width)) if width else next(coming) for width in widths]


@contextmanager
def _at(draws, row: int):
    """Set the random state as if this row of the global batch came next."""
    now, draws.row = draws.row, row
    try:
        yield
    finally:
        draws.row = now


class Recomputation(Mode):
    """The runtime part of this mode."""

    name, purpose = "recomputation", "done again"
    options = {"recompute": Option("none", "what to recompute in each layer during the backward", str, RECOMPUTE)}
    factors = {"recompute": ("none", "full")}

    def takes_part(self, mesh, chosen):
        return chosen["recompute"] != "none"

    def said(self, job):
        return f"{job['recompute']} recomputation"

    def refuse(self, job):
        kinds = {part.kind for program in job.schedule.program for action in program for part in action.each}
        if not job.flushes:
            raise ValueError(
                f"{job.schedule.name} updates its weights before the recomputation: choose a schedule with one "
                "update per step"
            )
        if kinds & {"I", "W"}:
            raise ValueError(
                f"{job.schedule.name} splits the backward in two, but a recomputed layer runs both halves at once: "
                "leave out recompute, or choose 1f1b"
            )
        if kinds & {"C", "R"}:
            raise ValueError(f"{job.schedule.name} already recomputes whole stages: leave out recompute")
        if job.schedule.exchanges:
            raise ValueError(
                f"{job.schedule.name} splits a block into three stages: leave out recompute, or choose a schedule of "
                "whole blocks"
            )
        divisions.refuse(job.sizes, job.division, "recompute")

    def fit(self, module, comm, job):
        draws = draws_of(module)
        if job["recompute"] == "selective":
            for layer in _attending(module):
                layer.attend = again(layer.attend, draws)
            return
        layers = job.model.layers(module)
        for number in job.once(done_again):
            layers[number].forward = again(layers[number].forward, draws)

    def repeats(self, job, layer, other):
        return layer in job.once(done_again) and (job["recompute"] == "full" or other.core)


def done_again(job) -> Sequence[int]:
    """The layers that a job recomputes."""
    return job.model.repeated(len(job.layers))


def _attending(module) -> list:
    return [layer for layer in module.modules() if isinstance(layer, Attends)]


MODE = Recomputation()
