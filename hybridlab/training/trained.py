"""What a training gives back: its losses, its timeline, and the trained model.

No rank has the whole model. Each brings home the shares that it counts, as it would write them into a checkpoint, and
the module is made of them when somebody asks for it. Many bytes stay where they are: see docs/decisions/models.md.
"""

import math
from pathlib import Path

import torch
from torch import nn

from hybridlab.training.first_weights import whole_of
from hybridlab.training.resume import pieces, stored_layout

AT_HOME = 64 * 2**20  # bytes of weights that are brought home though nobody may ask for them


class Trained(dict):
    """The facts of a training by name, and under "model" the module with the trained weights: made when first asked
    for, in the process that asks.

    raises  ValueError in one sentence, where "model" is asked for and its weights are kept nowhere
    """

    def __init__(self, facts: dict, job, shares: list[dict], checkpoint: str | Path | None):
        super().__init__(facts)
        self._job, self._shares, self._checkpoint = job, shares, checkpoint

    def __missing__(self, name: str) -> nn.Module:
        if name != "model":
            raise KeyError(name)
        self[name] = whole_of(self._job.with_(weights=self._weights()))
        return self[name]

    def _weights(self):
        if comes_home(self._job):
            return joined(stored_layout(self._job), self._shares)
        if self._checkpoint is None:
            raise ValueError(
                f"the model has {_bytes(self._job) / 1e6:.0f} MB of weights, and above {AT_HOME / 1e6:.0f} MB they are "
                'not brought home unasked: give checkpoint=FOLDER, and "model" reads them from there'
            )
        return str(Path(self._checkpoint) / f"step-{self['end']:06d}")


def comes_home(job) -> bool:
    """Whether the weights of a job are so few that ranks bring them home."""
    return _bytes(job) <= AT_HOME


def _bytes(job) -> int:
    """Of its weights, as they are brought."""
    return getattr(torch, job["master_dtype"]).itemsize * sum(math.prod(param.shape) for param in job.layout.params)


def shares_of(trainer) -> dict[str, torch.Tensor]:
    """The flat shares of weights and buffers that this rank counts, on the CPU: every element comes from one rank."""
    layout, rank = stored_layout(trainer.job), trainer.comm.rank
    return {name: kinds["value"].cpu() for name, kinds in pieces(trainer).items() if layout.counts(name, rank)}


def joined(layout, shares: list[dict]) -> dict[str, torch.Tensor]:
    """{name: whole tensor} of what all ranks have brought, rank after rank."""
    found = {}
    for rank, its in enumerate(shares):
        for name, share in its.items():
            whole = found.setdefault(name, torch.empty(layout[name].shape, dtype=share.dtype, device="cpu"))
            box = layout.box(name, rank)
            flat = whole[box].flatten()  # a copy where the box is no stretch of memory
            flat[layout.share(name, rank)] = share
            whole[box] = flat.view(whole[box].shape)
    return found
