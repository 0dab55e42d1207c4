"""The broken program of notebook 32: gradients of a layer with experts, averaged over copies as data parallelism does.

A program is called as average(comm, gradients) on a mesh of dp × ep ranks, each with its own tokens. `gradients` has,
by name, the gradients of this rank's mean loss: those of the router, and those of this rank's experts.
"""

import math
from typing import NamedTuple

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh

TOKENS, NEAR = 6, 1e-9  # tokens of each rank; relative tolerance
CAUSES = {
    "a": "Then they would be sums over fewer tokens, not exact multiples of those of one device.",
    "b": "",
    "c": "Then numbers of different experts would be mixed, which gives no exact multiple.",
    "d": "Then the gradient of the router would be off by the same factor.",
}


class On(NamedTuple):
    """A mesh with copies and with ranks along ep, and the number of experts of the layer."""

    dp: int
    ep: int
    experts: int = 4

    @property
    def ranks(self) -> Mesh:
        return Mesh(dp=self.dp, ep=self.ep)

    def __str__(self):
        """
        >>> print(On(1, 2))
        dp=1, ep=2 with 4 experts
        """
        return f"dp={self.dp}, ep={self.ep} with {self.experts} experts"


CASES = (On(1, 2), On(2, 2), On(1, 3, 5), On(2, 1))


def average(comm, gradients):
    """Gradients averaged over all ranks that have a copy of a weight; in place."""
    for name, gradient in gradients.items():
        axes = ("dp",) if name.startswith("experts") else ("dp", "ep")
        comm.all_reduce(gradient, axes)
        gradient /= math.prod(comm.mesh[axis] for axis in axes)


def play(comm, answer, case) -> dict:
    """On a rank: {"loss", name of a parameter: its factor relative to one device}; nan if it is not a multiple."""
    from hybridlab.modes.parts.dispatch import by_all_to_all

    whole, x, target = _given(case)
    layer, here = _part(whole, comm, case), slice(TOKENS * comm.rank, TOKENS * (comm.rank + 1))
    owned = [end - begin for begin, end in _spans(case)]
    layer.dispatch = lambda *of_tokens: by_all_to_all(*of_tokens, comm, owned)
    mine = _loss(layer, x[:, here], target[:, here])
    mine.backward()
    found = {name: weight.grad for name, weight in layer.named_parameters()}
    answer(comm, found)
    loss = _loss(whole, x, target)
    loss.backward()
    mean = comm.all_reduce(mine.detach().clone()) / comm.size
    span = slice(*_spans(case)[comm.coordinates.get("ep", 0)])
    wanted = {
        name: weight.grad[span] if "experts" in name else weight.grad for name, weight in whole.named_parameters()
    }
    return {"loss": (mean / loss).item()} | {name: _times(found[name], wanted[name]) for name in found}


def _given(case):
    """(the whole layer, tokens and targets of all ranks): the same on each rank."""
    import torch

    from hybridlab.training.models.experts import Experts
    from hybridlab.training.models.gpt import Mlp

    draw, rows = torch.Generator().manual_seed(3), TOKENS * case.dp * case.ep
    layer = Experts(Shape(width=4, heads=1, experts=case.experts, chosen=2, inner=6, context=rows), Mlp).double()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape, dtype=torch.float64, generator=draw))
    x, target = torch.randn(2, 1, rows, 4, dtype=torch.float64, generator=draw)
    return layer, x, target


def _loss(layer, x, target):
    return (layer(x) - target).square().mean()


def _spans(case):
    from hybridlab.core.where.layout import even

    return even(case.experts, case.ep)


def _part(whole, comm, case):
    """A copy of the layer with the experts of this rank alone."""
    import copy

    from torch import nn

    layer, span = copy.deepcopy(whole), slice(*_spans(case)[comm.coordinates.get("ep", 0)])
    layer.zero_grad()
    for one in (layer.experts.up, layer.experts.down):
        one.weight, one.bias = (nn.Parameter(weight.detach()[span].clone()) for weight in (one.weight, one.bias))
    return layer


def _times(found, wanted) -> float:
    factor = (found.norm() / wanted.norm()).item()
    return factor if (found - factor * wanted).abs().max() <= NEAR * (1 + found.abs().max()) else math.nan


def symptoms(cases=CASES[:2]) -> list[tuple]:
    """(name, and for each mesh the factor relative to one device), for a table."""
    from hybridlab.world.processes.launch import ranks

    found = []
    for case in cases:
        with ranks(case.ranks) as pool:
            found.append(pool.run(play, average, case)[0])
    return [(name, *(f"{one[name]:.2f}" for one in found)) for name in found[0]]


def too_large():
    """For `hl.check`, on every rank: gradients of experts get the mistake of the broken program."""
    from hybridlab.modes.expert_parallel import ExpertParallel

    plain = ExpertParallel.fit

    def fit(self, module, comm, job):
        plain(self, module, comm, job)
        for name, weight in module.named_parameters():
            if ".experts." in name and not weight.is_meta:
                weight.register_hook(lambda gradient: gradient * job.mesh["ep"])

    ExpertParallel.fit = fit


UNDIVIDED = " All are: was none divided? gradient /= … divides in place; gradient = gradient / … makes a new tensor."


def _undivided(case, home) -> bool:
    times = {factor for name, factor in home.items() if name != "loss"}
    return case.dp * case.ep > 1 and all(abs(one - case.dp * case.ep) < 1e-6 for one in times)


def judge(case, homes) -> str:
    """The first mistake that is found on a rank, in words; empty if there is none."""
    for rank, home in enumerate(homes):
        for name, times in home.items():
            if math.isnan(times):
                return f"rank {rank} has a gradient of {name} that is not a multiple of that of one device."
            if abs(times - 1) > 1e-6:
                told = f"rank {rank} has a gradient of {name} that is {times:.2f} times that of one device."
                return told + UNDIVIDED if _undivided(case, home) else told
    return ""
