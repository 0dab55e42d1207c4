"""The two halves of a backward, without a stage: the same gradients as one backward, to the last bit."""

import pytest
import torch
from torch import nn

from hybridlab.runtime.halves import input_half, weight_half


class Branching(nn.Module):
    """Three products of one input that meet again, as the queries, keys and values of an attention layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.parts = nn.LayerNorm(4), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        q, k, v = (part(self.norm(x)) for part in self.parts)
        return x + torch.softmax(q @ k.transpose(-1, -2), -1) @ v


class Twice(nn.Module):
    """One weight in two layers, the second above the first."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Stacked(nn.Module):
    """Slices of one tensor, as of experts, in products beside each other."""

    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, x):
        return sum(torch.tanh(x @ expert) for expert in self.experts)


class Beside(nn.Module):
    """Two layers in line, and beside them a sum over both of their weights, which meet at one node."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))

    def forward(self, x):
        parts = (2 * torch.cat([self.up, self.down])).split([4, 4])
        return torch.tanh(x @ self.up) @ self.down + sum(part.sum() for part in parts)


MODELS = {
    "a chain": lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)),
    "branches that meet": lambda: nn.Sequential(Branching(), nn.Linear(4, 4), Branching()),
    "one weight twice in line": lambda: nn.Sequential(nn.Linear(4, 4), Twice()),
    "slices of one tensor": lambda: nn.Sequential(nn.Linear(4, 4), Stacked()),
    "weights in line, and together beside it": lambda: nn.Sequential(nn.Linear(4, 4), Beside()),
}


@pytest.mark.parametrize("first", [False, True], ids=["a later stage", "the first stage"])
@pytest.mark.parametrize("kind", MODELS)
def test_two_halves_are_one_backward(kind, first):
    torch.manual_seed(0)
    model = MODELS[kind]().double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=not first)
    gradient, inputs = torch.randn(5, 4, dtype=torch.float64), [] if first else [x]
    wanted = torch.autograd.grad(model(x), [*inputs, *model.parameters()], gradient)
    by_inputs, kept = input_half([model(x)], [gradient], inputs)
    assert all(weight.grad is None for weight in model.parameters())
    weight_half(kept)
    found = [*by_inputs, *(weight.grad for weight in model.parameters())]
    assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))


def test_the_weight_half_repeats_no_product_of_the_input_half():
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
    x = torch.randn(5, 4, requires_grad=True)
    with torch.profiler.profile() as seen:
        _, kept = input_half([model(x)], [torch.randn(5, 4)], [x])
        weight_half(kept)
    products = sum(event.count for event in seen.key_averages() if event.key == "aten::mm")
    assert products == 3 + 3 + 3  # forward, by inputs, by weights
