"""Notebook 32: which experts real tokens choose, while a small model trains on the course's text."""

from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape

SMALL = Shape(layers=2, width=32, heads=2, context=64, experts=8, chosen=2)
SEQUENCES, STEPS, RATE = 8, 100, 2e-3
PACES = {"none": 0.01, "loss": 0.03, "bias": 0.003}  # the factor of the loss, the step of the bias


class Trained(NamedTuple):
    """A small training: its losses, and the loads of the last block's experts, step by step."""

    losses: list[float]
    loads: list[list[int]]

    @property
    def busiest(self) -> list[float]:
        """The load of the most loaded expert over the mean, in each step."""
        return [max(one) * len(one) / sum(one) for one in self.loads]


def trained(steps: int = STEPS) -> dict[str, Trained]:
    """{way to balance: its training}; all start with the same weights and use the same batches, each in a separate
    process."""
    from hybridlab.world.processes.launch import ranks

    with ranks(len(PACES)) as pool:
        return {balance: Trained(*home) for balance, home in zip(PACES, pool.run(_train, steps))}


def _train(comm, steps):
    """Each rank trains its own model."""
    import torch

    from hybridlab.training.data.text import Text
    from hybridlab.training.models.gpt import GPT, token_loss

    balance, pace = list(PACES.items())[comm.rank]
    model = GPT(replace(SMALL, routing=Routing(balance=balance, pace=pace)))
    routers, adam = [block.mlp.router for block in model.blocks], torch.optim.AdamW(model.parameters(), RATE)
    losses, loads = [], []
    for step in range(steps):
        tokens, targets = map(torch.from_numpy, Text.of().batch(step, SEQUENCES, SMALL.context))
        loss = token_loss(model(tokens), targets) / targets.numel()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
        loads.append(routers[-1].tally.long().tolist())
        for router in routers:
            router.settle()
    return losses, loads
