"""A rank's tensors, counted: the bytes that it stores between two training steps, and the squares of its gradients."""

import torch


def memory(trainer) -> dict[str, int]:
    """Bytes that a rank stores between two steps: of weights, of gradients, and of the optimizer's other tensors; with
    offload, those are on the host.

    Every storage is counted once, even if several tensors view it; Adam's step counts, single numbers, are not counted.
    """
    job, weights, shares = trainer.job, trainer.weights, list(trainer.parameters.values())
    values = [weight for module in weights.stages.values() for weight in module.parameters()]
    values += trainer.alone
    gradients = [weight.grad for weight in (*values, *shares)]
    kept = [x for one in trainer.optimizers for its in one.state.values() for x in its.values() if torch.is_tensor(x)]
    state = [x for x in kept if x.dim()] + (weights.besides if job.flushes else [])
    counted, seen = {}, set()
    for what, tensors in (("value", values), ("optimizer", state + shares), ("gradient", gradients)):
        own = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x is not None}
        counted[what] = sum(size for place, size in own.items() if place not in seen)
        seen |= own.keys()
    return counted | ({"host": counted.pop("optimizer")} if job["offload"] else {})


def squares(trainer) -> torch.Tensor:
    """The sum of squares of each parameter's gradient, where this rank counts it: every element counts once."""
    rank, parameters = trainer.comm.rank, trainer.parameters
    where = torch.device("cpu") if trainer.job["offload"] else trainer.comm.device
    nothing = torch.zeros((), dtype=torch.float64, device=where)
    counted = {name for name in trainer.layout.named if trainer.layout.counts(name, rank, trainer.one_model)}
    own = lambda name: parameters[name].grad.double().square().sum()
    return torch.stack([own(name) if name in counted else nothing for name in trainer.layout.named])
