"""The optimizers by name, and the one of a job.

Relatives: `training.muon`; `modes.full_matrices`, which describes the layout that Muon needs.
"""

import re

import torch

from hybridlab.modes import full_matrices
from hybridlab.training.muon import Muon
from hybridlab.training.rates import rate_of

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "muon": Muon}
STATES = {"sgd": 0, "adamw": 2, "muon": 2}  # numbers per weight in an optimizer's state; for Muon's matrices: 1
NORM = re.compile(r"norm\d*d?$", re.IGNORECASE)  # the end of the name of a norm's class, such as BatchNorm2d


def optimizer_of(job, weights: dict, comm=None) -> torch.optim.Optimizer:
    """The optimizer of a job's named weights, in groups: those with weight decay, those without, and Muon's matrices.

    comm  the communicator of a rank whose weights may be shards; None: the weights are complete
    """
    trained = {name: weight for name, weight in weights.items() if name not in job.frozen}
    matrices = {name: trained.pop(name) for name in job.once(full_matrices.of_muon) if name in trained}
    stay = job.once(without_decay)
    plain = [weight for name, weight in trained.items() if name in stay]
    decaying = [weight for name, weight in trained.items() if name not in stay]
    groups = [{"params": decaying, "weight_decay": job.decay}, {"params": plain, "weight_decay": 0.0}]
    updates = [full_matrices.update_of(job, name, comm) for name in matrices]
    groups.append({"params": [*matrices.values()], "weight_decay": job.decay, "update": updates})
    some = [group for group in groups if group["params"]]
    some = some or [{"params": [torch.nn.Parameter(torch.empty(0))]}]  # a stage may have no weights
    more = {"betas": job.betas} if STATES[job.optimizer] else {}
    return OPTIMIZERS[job.optimizer](some, lr=rate_of(job, 0), **more)


def without_decay(job) -> set[str]:
    """The weights without weight decay: those of norms, of any shape, biases, and all with less than two dims."""
    owner = lambda name: type(job.whole.get_submodule(name.rpartition(".")[0])).__name__
    attribute = lambda name: name.rpartition(".")[2]
    flat = {record.name for record in job.records if len(record.shape) < 2}
    return flat | {one.name for one in job.records if "bias" in attribute(one.name) or NORM.search(owner(one.name))}
