"""The result of training: its losses, its timeline, and the trained model.

No rank has the full model. Each rank returns the shards that it counts, as it would write them into a checkpoint, and
the module is made from them when it is requested. Large weights are not returned: see docs/decisions/models.md.
"""

import math
from pathlib import Path

import torch
from torch import nn

from hybridlab.training.checkpoints.stored import OTHERS
from hybridlab.training.first_weights import whole_of
from hybridlab.training.resume import pieces, stored_layout

AT_HOME = 64 * 2**20  # maximum bytes of weights that are returned even without a request


class Trained(dict):
    """The results of training by name, and under "model" the module with the trained weights, made at the first
    request, in the process that requests it.

    raises  ValueError if "model" is requested and its weights are stored nowhere
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
                f"the model has {_bytes(self._job) / 1e6:.0f} MB of weights, and at most {AT_HOME / 1e6:.0f} MB are "
                'collected from the ranks: give checkpoint=FOLDER, and "model" is read from there'
            )
        return str(Path(self._checkpoint) / f"step-{self['end']:06d}")


def comes_home(job) -> bool:
    """Whether a job's weights are small enough for the ranks to return."""
    return _bytes(job) <= AT_HOME


def _bytes(job) -> int:
    """Bytes of the job's weights, in the form in which they are returned."""
    return getattr(torch, job["master_dtype"]).itemsize * sum(math.prod(param.shape) for param in job.layout.params)


def shares_of(trainer) -> dict[str, torch.Tensor]:
    """The flat shards of weights and buffers that this rank counts, on the CPU: every element comes from one rank."""
    layout, rank = stored_layout(trainer.job), trainer.comm.rank
    mine = {name: kinds["value"] for name, kinds in pieces(trainer).items() if layout.counts(name, rank)}
    return {name: value.cpu() for name, value in mine.items() if not name.startswith(OTHERS)}


def joined(layout, shares: list[dict]) -> dict[str, torch.Tensor]:
    """{name: full tensor} from the results of all ranks, in rank order."""
    found = {}
    for rank, its in enumerate(shares):
        for name, share in its.items():
            whole = found.setdefault(name, torch.empty(layout[name].shape, dtype=share.dtype, device="cpu"))
            box = layout.box(name, rank)
            flat = whole[box].flatten()  # a copy if the box is not contiguous
            flat[layout.share(name, rank)] = share
            whole[box] = flat.view(whole[box].shape)
    return found
