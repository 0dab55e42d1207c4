"""A check that layers, a loss and the data change no state, since ranks would then continue from different states.

Ranks call their layers a different number of times from one device, and some layers twice. So neither a call nor its
backward may advance a generator, count, or change a buffer, unless the layer declares that it tallies. The same holds
for a loss, which is called once for each microbatch, and for the data, which every rank reads itself.

Read next: `carried`, which finds what a function reads outside; `losses` and `examination`, which use this.
"""

import random
import types
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from operator import eq
from typing import NoReturn

import numpy as np
import torch
from torch import nn

from hybridlab.core.what.seams import Tallies
from hybridlab.training.models.batches import Batches
from hybridlab.training.models.carried import MANY, values
from hybridlab.training.models.draws import seeded, tensors_of
from hybridlab.training.models.words import said

OF_TORCH = {name for name in vars(nn.Module()) if name != "training"}  # these are compared as tensors, or are code
SAMPLE = 4096  # the most elements of one value
FUNCTIONS = types.FunctionType, types.MethodType, partial
READING = "__getitem__", "__getitems__", "__iter__", "batch", "__call__"  # the methods by which data are read
HELD = nn.Module, type, types.ModuleType, *FUNCTIONS  # types without a value to compare


def generators() -> tuple:
    """The states of all generators that a layer could draw from without having one."""
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), (kind, keys.tolist(), *rest)


def drawing(call: Callable) -> bool:
    """Whether a call draws from one of these generators without setting its seed first.

    >>> drawing(random.random), drawing(lambda: (random.seed(3), random.random()))
    (True, False)
    """
    begins, ends = [], []
    for seed in (1, 2):
        with seeded(seed):
            begins.append(generators())
            call()
            ends.append(generators())
    return any(end != begin and end != other for begin, end, other in zip(begins[0], *ends))


def refuse_draws(states, who: str = "a forward"):
    """Raise an error if a generator has advanced: a comparison of two outputs would miss a draw that happens in one of
    fifty calls.
    """
    for before, now, whose in zip(states, generators(), ("torch's", "Python's", "numpy's")):
        if before != now:
            raise ValueError(
                f"{who} draws from {whose} generator, so ranks would draw different numbers: draw by position with "
                "hybridlab.training.models.gpt.Dropout"
            )


def kept_by(module: nn.Module) -> dict[str, object]:
    """The values that layers keep between calls besides weights and buffers, and the outside values that their forwards
    and hooks read: for each name a *print*, which changes if the value changes.
    """
    found, known = {}, {}
    for name, layer in module.named_modules():
        own = {attribute: one for attribute, one in vars(layer).items() if attribute not in OF_TORCH}
        found |= {f"{name}.{attribute}".lstrip("."): printed(one) for attribute, one in own.items()}
        runs = [one for one in (*own.values(), *_hooks(layer)) if isinstance(one, FUNCTIONS)]
        if not type(layer).__module__.startswith(("torch.", "hybridlab.")):
            runs.append(layer.forward)
        found |= _prints(pair for run in runs for pair in values(run, known))
    return found


def kept_by_loss(loss) -> dict[str, object]:
    """Like `kept_by`, for a loss: the values that it keeps or reads, and its buffers."""
    if not isinstance(loss, nn.Module):
        return _prints(values(loss))
    return kept_by(loss) | {name: printed(x) for name, x in loss.named_buffers()}


def _prints(pairs) -> dict[str, list]:
    """{name: the prints of all values with this name}."""
    found = {}
    for name, value in pairs:
        found.setdefault(name, []).append(printed(value))
    return found


def _hooks(layer) -> list:
    return [hook for name in OF_TORCH if name.endswith("_hooks") for hook in vars(layer)[name].values()]


def refuse_counters(module, kept, who: str = "a forward"):
    """Raise an error if a second call has changed some value, because a counter would differ from rank to rank."""
    if name := changed(kept, kept_by(module)):
        raise ValueError(
            f"{who} changes {name}, but ranks call their layers different numbers of times: keep no state between "
            "calls, and draw by position with hybridlab.training.models.gpt.Dropout"
        )


def refuse_first_input(who: str, name: str) -> NoReturn:
    """Raise an error for something that a layer computes from its first input, and then keeps."""
    raise ValueError(
        f"{who} keeps {name or 'something'}, computed from its first input, but every rank has another first input: "
        "compute it in each call, or once where the model is made"
    )


def changed(kept: dict, now: dict) -> str:
    """The name of the first value that differs; "" if there is none."""
    return next((name for name, value in now.items() if name in kept and not _alike(kept[name], value, eq)), "")


def overwritten(kept: dict, now: dict) -> str:
    """The name of the first tensor or array that was overwritten in place, not replaced; "" if there is none."""
    spared = lambda old, new: old == new or not isinstance(old, Bits) or old.x is not getattr(new, "x", None)
    return next((name for name, value in now.items() if name in kept and not _alike(kept[name], value, spared)), "")


def _alike(old, new, same: Callable) -> bool:
    """Whether two prints are the same, element by element. A list that has grown is only a record of the calls."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) <= len(new) and all(_alike(one, other, same) for one, other in zip(old, new))
    return same(old, new)


def printed(value, known: dict | None = None):
    """The print of a value: lists, texts and bytes. It covers values with which a layer might count, or from which it
    might draw; for large values, only some elements.

    known  the lists and objects, by id, that have a print already

    >>> counts = {"calls": 0, "seen": [torch.zeros(2)]}
    >>> before = printed(counts)
    >>> counts["seen"][0] += 1
    >>> before == printed(counts)
    False
    """
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, bool | int | float):
        return repr(value)  # a nan equals itself
    if isinstance(value, torch.Tensor):
        return _bits(value.detach(), value)
    if isinstance(value, np.ndarray):
        return Bits(value, (value.shape, value.reshape(-1)[:: max(1, value.size // SAMPLE)].tobytes()))
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return repr(value.getstate())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    known = {} if known is None else known
    if id(value) in known or len(known) > SAMPLE or isinstance(value, HELD):
        return None
    known[id(value)] = value
    if isinstance(value, Mapping):
        value = [one for pair in value.items() for one in pair]
    if not isinstance(value, list | tuple | set | deque):
        value = list(getattr(value, "__dict__", {}).values())
    return [printed(one, known) for one in islice(value, SAMPLE)]


class Bits:
    """The print of a tensor or an array `x`: some of its numbers."""

    def __init__(self, x, numbers):
        self.x, self.numbers = x, numbers

    def __eq__(self, other):
        return isinstance(other, Bits) and self.numbers == other.numbers


def _bits(x: torch.Tensor, whole: torch.Tensor):
    if x.layout is not torch.strided or x.is_meta:
        return None
    some = x.reshape(-1)[:: max(1, x.numel() // SAMPLE)].contiguous().cpu()
    return Bits(whole, (tuple(x.shape), some.view(torch.uint8).numpy().tobytes()))


def tallies_of(module) -> set[str]:
    """The names of the buffers that layers declare as tallies."""
    return {f"{name}.tally".lstrip(".") for name, layer in module.named_modules() if isinstance(layer, Tallies)}


def numbers_of(module) -> dict[str, torch.Tensor]:
    """{name: a copy of a weight or a buffer, which requires a gradient if the tensor does}."""
    return {name: x.detach().clone().requires_grad_(x.requires_grad) for name, x in tensors_of(module).items()}


def refuse_changes(module, before: dict[str, torch.Tensor], who: str = "a forward"):
    """Raise an error if weights or buffers have changed, except those that layers declare as tallies.

    before  see `numbers_of`
    """
    counted, now = tallies_of(module), tensors_of(module)
    for name in before | now:
        layer = type(module.get_submodule(name.rpartition(".")[0])).__name__
        if name not in now:
            raise ValueError(
                f"{who} removes {name} of {layer}, but ranks share out all weights and buffers before they train: "
                "keep it, or make it a plain attribute"
            )
        x = now[name]
        if name not in before:
            raise ValueError(
                f"{who} registers {name} of {layer}, but ranks share out all weights and buffers before they train: "
                "register it in __init__, or keep a constant as a plain attribute"
            )
        if x.requires_grad != before[name].requires_grad:
            raise ValueError(
                f"{who} changes requires_grad of the weight {name} of {layer}, but ranks decide before they train "
                "which weights to update: call requires_grad_() once, where the model is made"
            )
        if name in counted or torch.equal(x, before[name]):
            continue
        if isinstance(x, nn.Parameter):
            raise ValueError(
                f"{who} changes the weight {name} of {layer}, but only the optimizer may change a weight: compute "
                "the clamped or normalized value in the forward instead"
            )
        raise ValueError(
            f"{who} changes the buffer {name} of {layer}, and each microbatch and replica would change it "
            "differently: use hybridlab.training.models.batch_norm.BatchNorm, add up the changes in a tally, as "
            "BatchNorm does, or set the buffer once where the model is made, and keep it there with eval()"
        )


def refuse_backward(module, loss_of: Callable, before: dict[str, torch.Tensor]):
    """Raise an error if a backward draws, counts or changes a tensor: there is one for each microbatch, and ranks with
    split or repeated backwards have more.

    loss_of  () -> the loss, by another forward;  before  see `numbers_of`
    """
    who = "a backward"
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        try:
            loss_of().backward()
            kept, states = kept_by(module), generators()
            loss_of().backward()
        except Exception as error:
            raise ValueError(f"the backward of the loss fails: {said(error)}") from error
        refuse_draws(states, who)
    refuse_counters(module, kept, who)
    refuse_changes(module, before, who)
    module.zero_grad()


def kept_by_data(data) -> dict[str, object]:
    """Like `kept_by`, for the data: values that its objects hold, or that its functions read from enclosing scopes."""
    found, known = {}, {}
    parts = [getattr(data, name, None) for name in ("dataset", "collate")] if isinstance(data, Batches) else [data]
    for one in parts:
        own = {} if isinstance(one, HELD) else getattr(one, "__dict__", {})
        found |= {name: printed(value) for name, value in own.items()}
        runs = [one] if isinstance(one, FUNCTIONS) else [getattr(one, name, None) for name in READING]
        found |= _prints(pair for run in runs for pair in values(run, known, MANY))
    return found


def refuse_state_of_data(kept: dict, now: dict):
    """Raise an error if reading a batch has changed what the data keep."""
    if name := changed(kept, now):
        raise ValueError(
            f"reading a batch changes {name} of the data, but ranks, and a resumed run, read other numbers of batches: "
            "let a batch depend only on its step, and create a generator with a seed for each step, or each row; "
            "set_epoch(number) is called before each pass"
        )
