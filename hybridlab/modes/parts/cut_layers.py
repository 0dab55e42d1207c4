"""Layers that use neighbouring pixels, for images that are sharded.

  layer                          needs from other ranks                           forward, and the same backward
  convolution, pooling           a halo: rows, then columns                       messages between neighbours
  nearest-neighbour upsampling   pixels, where strips of outputs have drifted     the same
  batch norm                     mean and variance of the whole microbatch        two all-reduces of C numbers
  mean over all pixels           their sum                                        an all-reduce of B·C numbers

Torch's layers are recognized by their class, a batch norm by its base class `Normalises`.

Relatives: `halos`, which computes them; `spatial_parallel`, which finds them in a model; `training.models.batch_norm`.
"""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.what.seams import Normalises
from hybridlab.core.where.spans import Repeat, Sight
from hybridlab.modes.parts import halos
from hybridlab.modes.parts.halos import COLUMNS, ROWS
from hybridlab.modes.parts.plain_layers import has_own_forward
from hybridlab.world.talk.typed import all_reduce

SEEING = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)
KNOWN = "Conv2d, MaxPool2d, AvgPool2d, Upsample, AdaptiveAvgPool2d(1) and BatchNorm"


def is_known(layer: nn.Module) -> bool:
    """Whether a layer is one of these."""
    return isinstance(layer, (*SEEING, nn.Upsample, nn.AdaptiveAvgPool2d)) or isinstance(layer, Normalises)


def is_mean(layer: nn.Module) -> bool:
    """Whether the output of a layer is the same on all ranks, and no longer sharded."""
    return isinstance(layer, nn.AdaptiveAvgPool2d)


def unfit(layer: nn.Module) -> str:
    """The reason why one of these layers cannot be sharded, in words; "" if it can."""
    if isinstance(layer, Normalises):
        return "" if _is_batch_norm(layer) else "does not normalize by the mean and the variance of a microbatch"
    reasons = {
        "has its own forward": has_own_forward(layer, (*SEEING, nn.Upsample, nn.AdaptiveAvgPool2d)),
        "pads otherwise than with zeros": getattr(layer, "padding_mode", "zeros") != "zeros",
        "has ceil_mode=True": getattr(layer, "ceil_mode", False),
        "does not count its padding": not getattr(layer, "count_include_pad", True) and _pair(layer.padding) != (0, 0),
        "has its own divisor": getattr(layer, "divisor_override", None) is not None,
        "returns indices": getattr(layer, "return_indices", False),
    }
    if is_mean(layer):
        reasons["makes more than one pixel"] = _pair(layer.output_size) != (1, 1)
    if isinstance(layer, nn.Upsample):
        times = layer.scale_factor and _pair(layer.scale_factor)
        reasons["does not take the nearest pixel a whole number of times"] = (
            layer.mode != "nearest" or not times or any(one % 1 for one in times)
        )
    return next((reason for reason, there in reasons.items() if there), "")


@torch.no_grad()
def _is_batch_norm(layer: Normalises) -> bool:
    """Whether a layer's `normalise` computes the same as the function that replaces it on ranks."""
    numbers = lambda *size: torch.linspace(-1, 2, math.prod(size), dtype=torch.float64, device="cpu").exp().view(size)
    x_BCYX, weight_C, bias_C = numbers(2, 3, 5, 1), numbers(3), numbers(3)
    made = layer.normalise(x_BCYX, weight_C, bias_C, 0.1)
    return torch.allclose(made, functional.batch_norm(x_BCYX, None, None, weight_C, bias_C, True, eps=0.1))


def sights_of(layer: nn.Module) -> dict[int, Sight | Repeat]:
    """The `Sight` of a layer along each dim of pixels; empty for a layer that sends no halos.

    >>> sights_of(nn.Conv2d(1, 1, (3, 5), stride=2, padding="valid"))[COLUMNS]
    Sight(kernel=5, stride=2, before=0, after=0, dilation=1)
    >>> sights_of(nn.ReLU())
    {}
    """
    if isinstance(layer, nn.Upsample):
        return {dim: Repeat(int(times)) for dim, times in zip((ROWS, COLUMNS), _pair(layer.scale_factor))}
    if not isinstance(layer, SEEING):
        return {}
    kernels, strides, dilations = map(_pair, (layer.kernel_size, layer.stride, getattr(layer, "dilation", 1)))
    found = {}
    for dim, kernel, stride, dilation, padding in zip((ROWS, COLUMNS), kernels, strides, dilations, _padding(layer)):
        found[dim] = Sight(kernel, stride, *padding, dilation)
    return found


def forward_of(layer: nn.Module, comm, cuts: halos.Cuts, ranks, alone: bool = False):
    """The forward of a layer on a rank, for an input sharded as in `cuts`.

    ranks  the ranks that have parts of the same pictures
    alone  whether its input and its output are one pixel; after a mean every rank has this pixel, and needs no other
    """
    sights = sights_of(layer)
    if alone and sights:
        plain, on_parts = layer.forward, forward_of(layer, comm, cuts, ranks)
        return lambda x: plain(x) if x.shape[2:] == (1, 1) else on_parts(x)
    if isinstance(layer, nn.Conv2d):
        return lambda x: halos.convolved(comm, x, layer.weight, layer.bias, cuts, sights, layer.groups)
    if isinstance(layer, nn.MaxPool2d):
        largest = lambda x, pad: functional.max_pool2d(x, layer.kernel_size, layer.stride, pad, layer.dilation)
        return lambda x: halos.looked(comm, x, cuts, sights, largest, fill=-math.inf)
    if isinstance(layer, nn.AvgPool2d):
        average = lambda x, pad: functional.avg_pool2d(x, layer.kernel_size, layer.stride, pad)
        return lambda x: halos.looked(comm, x, cuts, sights, average)
    if isinstance(layer, nn.Upsample):
        return lambda x: halos.stretched(comm, x, cuts, {dim: sight.times for dim, sight in sights.items()})
    return lambda x: halos.mean(comm, x, cuts, ranks)


def normalised(x_BCYX, weight_C, bias_C, eps: float, comm, cuts: halos.Cuts, ranks):
    """A batch norm over a microbatch whose pixels are sharded. It saves no copy of them for its backward.

    Each rank sums squares around its own mean; then the differences between means are added: Chan, Golub and LeVeque
    1979.
    """
    wide_BCYX = x_BCYX.to(torch.promote_types(x_BCYX.dtype, torch.float32))  # as torch's own does
    here, count = x_BCYX[:, 0].numel(), len(x_BCYX) * halos.pixels(x_BCYX, cuts)
    total = partial(all_reduce, comm, axis=ranks, to="R")
    sum_C = wide_BCYX.sum((0, ROWS, COLUMNS))
    mean_C = total(sum_C) / count
    own_C = wide_BCYX.var((0, ROWS, COLUMNS), correction=0) if here else sum_C
    apart_C = sum_C / max(here, 1) - mean_C
    variance_C = total(here * (own_C + apart_C.square())) / count
    scale_C = (variance_C + eps).rsqrt() * weight_C
    shift_C = bias_C - mean_C * scale_C
    return (wide_BCYX * scale_C[:, None, None] + shift_C[:, None, None]).to(x_BCYX.dtype)


def _padding(layer) -> list[tuple[int, int]]:
    """(before, after) along each dim."""
    if layer.padding == "valid":
        return [(0, 0), (0, 0)]
    if layer.padding == "same":
        reach = [dilation * (kernel - 1) for kernel, dilation in zip(layer.kernel_size, layer.dilation)]
        return [(one // 2, one - one // 2) for one in reach]
    return [(one, one) for one in _pair(layer.padding)]


def _pair(one) -> tuple:
    return tuple(one) if isinstance(one, tuple | list) else (one, one)
