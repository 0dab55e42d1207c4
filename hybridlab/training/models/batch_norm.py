"""Batch norm with the same result for every division of the batch into microbatches and ranks.

There are two kinds of statistics. Training normalizes with those of the *microbatch*, which is computed on one rank, so
no layout changes them. Evaluation normalizes with running averages. These averages are updated with the statistics of
the *global batch*, but a forward sees only a microbatch. So every forward only adds to a tally. Once per optimizer
step, the tallies of all replicas are all-reduced and the averages updated.

Shape suffixes
    B batch · C channels · Y rows of pixels, X columns

Source: Huang et al. 2019, arXiv:1811.06965 (GPipe), section 2.2; Kim et al. 2020, arXiv:2004.09910 (torchgpipe), whose
library calls it `DeferredBatchNorm`. Batch norm itself: Ioffe and Szegedy 2015, arXiv:1502.03167.
"""

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.what.seams import Draws, DrawsByPlace, Normalises
from hybridlab.doors import AMOUNT, COUNT, FRACTION, guarded
from hybridlab.training.models.counting import Counting


def normalised(x_BCYX, weight_C, bias_C, eps: float):
    """Every channel with mean 0 and variance 1 over the microbatch, then scaled and shifted.

    raises  ValueError if a channel has one element: it has no variance
    """
    if x_BCYX[:, 0].numel() == 1:
        raise ValueError("batch norm received one element per channel, which has no variance: use larger microbatches")
    return functional.batch_norm(x_BCYX, None, None, weight_C, bias_C, training=True, eps=eps)


@guarded(channels=COUNT, eps=AMOUNT, momentum=FRACTION)
class BatchNorm(Counting, Normalises, DrawsByPlace):
    """A batch norm: scales every channel to mean 0 and variance 1, then applies a learned weight and bias.

    channels      C
    momentum      of the averages over steps: the weight of the newest step
    tally         statistics of the forwards since the last `settle()`, (3, C): the number of elements, their sum, the
                  sum of their squares, in float64, because a variance is a small difference of large sums
    running_mean  (C,), and running_var, (C,): averages over steps, for evaluation
    draws         the model's `Draws`; `draws.on` is False during evaluation, which then uses the averages over steps
    normalise     normalise(x_BCYX, weight_C, bias_C, eps), with the statistics of a microbatch; a mode that shards
                  pictures replaces it

    A forward adds to the tally only with autograd on. So a microbatch with recomputation is counted once.

    >>> norm = BatchNorm(channels=1)
    >>> norm(torch.tensor([1.0, 3.0]).view(2, 1, 1, 1)).flatten().detach().round(decimals=3)
    tensor([-1.,  1.])
    >>> norm.settle()
    >>> norm.running_mean, norm.running_var  # a tenth of the way from 0 to 2, and from 1 to 2
    (tensor([0.2000]), tensor([1.1000]))
    """

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__((3, channels))
        self.eps, self.momentum, self.draws, self.normalise = eps, momentum, Draws(), normalised
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x_BCYX):
        if not self.draws.on:
            running = self.running_mean, self.running_var
            return functional.batch_norm(x_BCYX, *running, self.weight, self.bias, eps=self.eps)
        if torch.is_grad_enabled():
            self._count(x_BCYX.detach().double())
        return self.normalise(x_BCYX, self.weight, self.bias, self.eps)

    def _count(self, x_BCYX):
        number_C = torch.full_like(self.tally[0], x_BCYX[:, 0].numel())
        every = [dim for dim in range(x_BCYX.dim()) if dim != 1]  # a row may have only the dim of channels
        self.tally += torch.stack([number_C, *(x.sum(every) for x in (x_BCYX, x_BCYX.square()))])

    def conclude(self):
        """Update the running averages with the tally. The variance is the unbiased one, as in torch."""
        number_C, sum_C, squares_C = self.tally
        mean_C = sum_C / number_C.clamp(min=1)
        var_C = (squares_C - sum_C * mean_C).clamp(min=0) / (number_C - 1).clamp(min=1)
        pace_C = self.momentum * number_C.clamp(max=1)
        self.running_mean += pace_C * (mean_C - self.running_mean)
        self.running_var += pace_C * (var_C - self.running_var)
