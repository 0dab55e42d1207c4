"""Muon: an optimizer that orthogonalizes the momentum of hidden matrices; AdamW updates all other weights.

    M ← M + (1-μ)(G - M)                  the momentum, a mean of gradients
    O ← NS(G + μ(M - G))                  Nesterov's step, orthogonalized, see `modes.parts.newton_schulz`
    W ← W(1 - ηλ) - η · 0.2 √max(m, n) O  for m rows and n columns

The factor 0.2 √max(m, n) makes the update as long as a usual one of AdamW, so one learning rate serves all weights. It
keeps one number for each element, the momentum, where AdamW keeps two.

Source: Jordan et al. 2024; the factor: Liu et al. 2025, arXiv:2502.16982. PyTorch's torch.optim.Muon, with
adjust_lr_fn="match_rms_adamw", is the same, but it orthogonalizes in bfloat16.
"""

from collections.abc import Callable

import torch

MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """The optimizer of matrices and of other weights, which may be shards.

    groups  torch's groups of parameters. One with "update", a function of the momentum for each parameter, has the
            matrices; the others are AdamW's
    lr      the learning rate;  betas  AdamW's

    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> one = Muon([{"params": [weight], "update": [lambda x: x]}], lr=1.0)
    >>> weight.grad = torch.eye(2)
    >>> one.step()
    >>> round(weight[0, 0].item(), 4)  # Nesterov's first step is 1 - 0.95² of the gradient
    -0.0975
    """

    def __init__(self, groups: list[dict], lr: float, betas: tuple[float, float] = (0.9, 0.999)):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        others = [group for group in self.param_groups if "update" not in group]
        self.others = torch.optim.AdamW(others, lr=lr, betas=betas) if others else None
        if self.others:
            self.others.state = self.state  # one table, as for any optimizer

    @torch.no_grad()
    def step(self, closure=None):
        """Update all weights that have gradients."""
        if self.others:
            self.others.step()
        for group in self.param_groups:
            for weight, update in zip(group["params"], group.get("update", ())):
                self._step(weight, update, group["lr"], group["weight_decay"])

    def _step(self, weight, update: Callable, rate: float, decay: float):
        if weight.grad is None:
            return
        momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
        momentum.lerp_(weight.grad, 1 - MOMENTUM)
        ahead = weight.grad.lerp(momentum, MOMENTUM)
        weight.mul_(1 - rate * decay).add_(update(ahead), alpha=-rate)
