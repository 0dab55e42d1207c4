"""Notebook 40: two linear layers that PyTorch shards along two axes, and the errors of their gradients."""

import torch
from torch import nn


def two_layers() -> nn.Sequential:
    """Two linear layers with GELU between them, the same numbers whenever it is called.

    >>> bool((two_layers()[0].weight == two_layers()[0].weight).all())
    True
    """
    draw = torch.Generator().manual_seed(40)
    made = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8), nn.Tanh())  # FSDP warns if its output is a view
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.3, generator=draw)
    return made


def furthest(model: nn.Module, whole: nn.Module) -> float:
    """The largest difference between the gradients of sharded parameters, joined to full tensors, and those of full
    parameters."""
    gaps = [
        (one.grad.full_tensor() - other.grad).abs().max() for one, other in zip(model.parameters(), whole.parameters())
    ]
    return float(max(gaps))
