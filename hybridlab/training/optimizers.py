"""The optimizers by name, and the one of a job.

Relatives: `training.muon`; `modes.full_matrices`, which says what Muon needs of a layout.
"""

import torch

from hybridlab.modes import full_matrices
from hybridlab.training.muon import Muon
from hybridlab.training.rates import rate_of

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "muon": Muon}
STATES = {"sgd": 0, "adamw": 2, "muon": 2}  # numbers per weight in an optimizer's state; of Muon's matrices: 1
PLAIN = ("norm", "bias")  # in a weight's name: it has no weight decay


def optimizer_of(job, weights: dict, comm=None) -> torch.optim.Optimizer:
    """The optimizer of a job's named weights, in groups: those with weight decay, those without, and Muon's matrices.

    comm  the communicator of a rank whose weights may be shards; None: the weights are complete
    """
    trained = {name: weight for name, weight in weights.items() if name not in job.frozen}
    matrices = {name: trained.pop(name) for name in job.once(full_matrices.of_muon) if name in trained}
    flat = {record.name for record in job.records if len(record.shape) < 2}  # a norm, with any name
    stays = lambda name: name in flat or any(word in name for word in PLAIN)
    plain = [weight for name, weight in trained.items() if stays(name)]
    decaying = [weight for name, weight in trained.items() if not stays(name)]
    groups = [{"params": decaying, "weight_decay": job.decay}, {"params": plain, "weight_decay": 0.0}]
    updates = [full_matrices.update_of(job, name, comm) for name in matrices]
    groups.append({"params": [*matrices.values()], "weight_decay": job.decay, "update": updates})
    some = [group for group in groups if group["params"]]
    some = some or [{"params": [torch.nn.Parameter(torch.empty(0))]}]  # a stage may have no weights
    more = {"betas": job.betas} if STATES[job.optimizer] else {}
    return OPTIMIZERS[job.optimizer](some, lr=rate_of(job, 0), **more)
