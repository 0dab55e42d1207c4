"""Random numbers drawn by place: every rank computes the number of any place, and all ranks get the same.

A generator that makes one number after another would have to make those of the full model before those of a rank. Here
draws are numbered: number i of a stream is a function of the stream and of i. Dropout reads its streams while a model
trains. Each parameter's initial numbers come from a separate stream, so no rank ever holds the full model.

Read next: `training.models.gpt.Dropout`, `training.models.model.Model.part` (a rank's part of a model).
"""

import hashlib
import math
import random
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from hybridlab.core.what.seams import Draws, DrawsByPlace

STRIDE = 0x9E3779B97F4A7C15 - 2**64  # as int64, of which torch keeps the lowest 64 bits: 2⁶⁴ over the golden ratio
ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))
BLOCK = 1 << 16  # numbers drawn at once: intermediate results then fit in a core's cache, which is three times as fast
ONES = ("weight", "running_var")  # of norms
FILLS = ("normal_", "uniform_", "fill_", "zero_")
STIRRED = 0.01  # standard deviation of the noise added to weights that start equal: less than that of embeddings


def drawn(key, number):
    """The `number`-th draw of the stream that begins at `key`: any 64 bits (as int64), and a key for further streams.

    The draws are numbered, not produced in sequence, so that any rank can compute the draw at any position. key and
    number are tensors of int64 that broadcast. Source: Steele, Lea and Flood 2014 (OOPSLA), SplitMix64.

    >>> hex(int(drawn(torch.tensor(0), torch.tensor(0))) % 2**64)
    '0xe220a8397b1dcdaf'
    """
    z = (number + 1) * STRIDE + key
    for shift, factor in ROUNDS:
        z ^= (z >> shift).bitwise_and_((1 << 64 - shift) - 1)  # >> copies the sign; it is masked away
        z *= factor
    return z


@contextmanager
def seeded(seed: int, devices: bool = True):
    """A context in which torch's, numpy's and Python's generators begin at a seed; afterwards they are restored.

    devices  whether torch's generators of devices begin there too, which takes most of the time

    >>> with seeded(7):
    ...     first = torch.rand(()), np.random.rand(), random.random()
    >>> with seeded(7):
    ...     first == (torch.rand(()), np.random.rand(), random.random())
    True
    """
    states = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        (torch.manual_seed if devices else torch.default_generator.manual_seed)(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(states[0])
            random.setstate(states[1])


def stream(*numbers: int):
    """The key of a stream for some integers in this order, such as a seed, a step, a site."""
    key = torch.tensor(0)
    for number in numbers:
        key = drawn(key, torch.tensor(number))
    return key


def normal(key, deviation: float, shape, box: tuple[slice, ...], out: torch.Tensor) -> torch.Tensor:
    """A box of a tensor of normal numbers with mean 0, drawn by place from the stream of a key; written into `out`.

    deviation  the standard deviation;  shape  that of the full tensor;  box  a slice for each dim, or () for all of it
    out        a tensor of the box's shape, on any device

    Element i of the flattened tensor is √2·erf⁻¹(u), where u, in (-1, 1), has the highest 53 bits of draw i. All of it
    is computed in float64, so numbers in another dtype are the same, rounded once. On another kind of processor the
    last bit of erf⁻¹ may differ.

    >>> whole = normal(stream(7), 1.0, (4, 6), (), torch.empty(4, 6))
    >>> box = slice(1, 3), slice(2, 6)
    >>> torch.equal(normal(stream(7), 1.0, (4, 6), box, torch.empty(2, 4)), whole[box])
    True
    """
    if not shape:  # one number
        normal(key, deviation, (1,), (), out.view(1))
        return out
    width = math.prod(shape[1:])
    columns = torch.arange(width, device=out.device).view(shape[1:])[box[1:]]
    rows = torch.arange(shape[0], device=out.device)[box[:1]].view(-1, *[1] * columns.dim()) * width
    at_once = max(1, BLOCK // max(1, columns.numel()))
    for some, into in zip(rows.split(at_once), out.split(at_once)):
        u = (drawn(key, some + columns) >> 11).double().add_(0.5).mul_(2.0**-52)
        into.copy_(u.erfinv_().mul_(math.sqrt(2) * deviation))
    return out


def shared_draws(module: nn.Module, seed: int) -> Draws:
    """The seed and step of a module's draws, shared by all layers that draw; these layers are numbered."""
    draws = Draws(seed)
    for site, layer in enumerate(one for one in module.modules() if isinstance(one, DrawsByPlace)):
        layer.draws, layer.site = draws, site
    return draws


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module by name; a tied tensor has its first name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def buffers_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module besides its weights, by name: a checkpoint must contain them. A `state_dict` that the
    module defines itself may leave some out, or rename them.
    """
    aside = {
        f"{place}.{name}".lstrip(".")
        for place, layer in module.named_modules(remove_duplicate=False)
        for name in layer._non_persistent_buffers_set
    }
    return {name: buffer for name, buffer in module.named_buffers() if name not in aside}


class Unfilled(TorchFunctionMode):
    """A context in which tensors keep their numbers when code fills them: on torch's meta device they have none.

    There torch would first import its compiler, which takes over a second.

    >>> with Unfilled():
    ...     x = torch.zeros(2).normal_()
    >>> x
    tensor([0., 0.])
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") in FILLS:
            return next(iter((*args, *kwargs.values())))
        return function(*args, **kwargs)


class ByPlace(nn.Module):
    """A module whose initial numbers depend on seed, name and place: a rank can create any part of them, and only that
    part.

    Parameters of two dims or more are drawn from a normal distribution, with the standard deviation that a subclass
    defines in `deviation(shape)`. Norms start with weights of 1 and running variances of 1; everything else starts with
    0.

    A constructor must end with `begin` and must not change numbers itself: when a rank creates its part, there are none
    yet.

    draws  its seed and step, which the trainer sets before every forward
    """

    @torch.no_grad()
    def begin(self, seed: int, dtype: torch.dtype):
        """Set the initial numbers of all parameters and buffers; on torch's meta device there are none."""
        self.draws = shared_draws(self, seed)
        self.to(dtype)
        for name, x in tensors_of(self).items():
            if not x.is_meta:
                x.copy_(self.first(name, x, (), x.device))

    def first(self, name: str, like: torch.Tensor, box: tuple[slice, ...], device) -> torch.Tensor:
        """The initial numbers of a box of a parameter or buffer: of `like`, which may be on the meta device."""
        out = torch.empty_like(like.detach()[box], device=device)
        if out.is_meta:
            return out  # it has no numbers
        if isinstance(like, nn.Parameter) and like.dim() > 1:
            key = stream(self.draws.seed, _number(name))
            return normal(key, self.deviation(like.shape), like.shape, box, out)
        return out.fill_(float(name.endswith(ONES)))


@torch.no_grad()
def stirred(module: nn.Module, original: nn.Module, seed: int, boxes: dict):
    """Change, by place, the trained weights whose elements all start equal, such as a bias of zeros or a norm of ones.

    A bias of 0 may be added on every rank, and no check would notice it before the second step.

    boxes  as in `Model.part`, which made the module from the original
    """
    weights = dict(module.named_parameters())
    for name, x in original.named_parameters():
        alike = x.dim() < 2 if x.is_meta else x.numel() > 0 and bool((x == x.flatten()[0]).all())
        if name in boxes and x.requires_grad and alike:
            here = weights[name]
            here += normal(stream(seed, _number(name), 1), STIRRED, x.shape, boxes[name], torch.empty_like(here))


def _number(name: str) -> int:
    """An integer of 64 bits for a name, the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
