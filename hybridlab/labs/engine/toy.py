"""A toy to cut into stages: a chain of small layers and its microbatches, the same on every rank.

Every boundary between layers has the same shape, (ROWS, WIDTH), so a rank knows what it will receive.
"""

import torch
from torch import Tensor, nn

from hybridlab.labs.engine.case import ROWS, WIDTH

LAYERS = 2  # layers of one stage


def stage(number: int, stages: int, layers: int = LAYERS) -> nn.Sequential:
    """Stage `number` of a chain cut into `stages` stages: `layers` times a linear layer and tanh.

    >>> len(stage(0, stages=3)), stage(2, 3)(torch.ones(4, 16)).shape
    (4, torch.Size([4, 16]))
    """
    if not 0 <= number < stages:
        raise ValueError(f"there is no stage {number} of {stages}: choose from 0 to {stages - 1}")
    made = nn.Sequential()
    for place in range(number * layers, (number + 1) * layers):
        made.append(nn.Linear(WIDTH, WIDTH)).append(nn.Tanh())
        made[-2].weight, made[-2].bias = _drawn(place)
    return made


def _drawn(place: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight and bias of one layer of the chain: a layer is the same for every cut of the chain."""
    chance = torch.Generator().manual_seed(place)
    weight = torch.randn(WIDTH, WIDTH, generator=chance) / WIDTH**0.5
    return nn.Parameter(weight), nn.Parameter(0.1 * torch.randn(WIDTH, generator=chance))


def microbatches(count: int) -> list[tuple[Tensor, Tensor]]:
    """This number of microbatches, each (x, target) of shape (ROWS, WIDTH).

    >>> [tuple(x.shape) for x, target in microbatches(2)]
    [(4, 16), (4, 16)]
    """
    chance = torch.Generator().manual_seed(1000)
    draw = lambda: torch.randn(ROWS, WIDTH, generator=chance)
    return [(draw(), draw().tanh()) for _ in range(count)]


def loss(y: Tensor, target: Tensor) -> Tensor:
    """The mean squared error of one microbatch, a mean over its rows and columns."""
    return ((y - target) ** 2).mean()


def one_device(stages: int, count: int, layers: int = LAYERS) -> list[nn.Sequential]:
    """All stages after the forwards and backwards of `count` microbatches in one process; they hold the right
    gradients.

    The loss of the batch is the mean of its microbatches' losses.

    >>> made = one_device(stages=3, count=4)
    >>> len(made), made[0][0].weight.grad.shape
    (3, torch.Size([16, 16]))
    """
    made = [stage(number, stages, layers) for number in range(stages)]
    for x, target in microbatches(count):
        (loss(nn.Sequential(*made)(x), target) / count).backward()
    return made


def difference(mine: nn.Module, number: int, stages: int, count: int) -> float:
    """The largest difference between the gradients of a stage and those of one device.

    >>> first = one_device(stages=2, count=3)[0]
    >>> difference(first, number=0, stages=2, count=3)
    0.0
    """
    right = one_device(stages, count)[number]
    return max((a.grad - b.grad).abs().max().item() for a, b in zip(mine.parameters(), right.parameters()))
