"""A check that a forward changes no state, since ranks would then continue from different states.

Ranks call their layers another number of times than one device does, and some layers twice. So a call may not advance a
generator, count, or change a buffer, unless the layer declares that it tallies.
"""

import random

import numpy as np
import torch
from torch import nn

from hybridlab.core.what.seams import Tallies
from hybridlab.training.models.draws import tensors_of


def generators() -> tuple:
    """The states of all generators that a layer could draw from."""
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), (kind, keys.tolist(), *rest)


def refuse_draws(states):
    """Raise an error if a generator has advanced: comparing two outputs would miss a draw in one of fifty calls."""
    for before, now, whose in zip(states, generators(), ("torch's", "Python's", "numpy's")):
        if before != now:
            raise ValueError(
                f"a forward draws from {whose} generator, so ranks would draw different numbers: draw by position with "
                "hybridlab.training.models.gpt.Dropout"
            )


def kept_by(module) -> dict[str, object]:
    """The values that layers store between calls besides weights and buffers: plain values, by name."""
    return {
        f"{name}.{attribute}".lstrip("."): value
        for name, layer in module.named_modules()
        for attribute, value in vars(layer).items()
        if isinstance(value, bool | int | float | str)
    }


def refuse_counters(module, kept):
    """Raise an error if a second call has changed some value, because a counter would differ from rank to rank."""
    for name, value in kept_by(module).items():
        if name in kept and kept[name] != value:
            raise ValueError(
                f"a forward changes {name} (now {value}), but ranks call their layers different numbers of times: "
                "keep no state between calls"
            )


def refuse_changes(module, before: dict[str, torch.Tensor]):
    """Raise an error if weights or buffers have changed, except those that layers declare as tallies."""
    tallied = {f"{name}.tally".lstrip(".") for name, layer in module.named_modules() if isinstance(layer, Tallies)}
    for name, x in tensors_of(module).items():
        if name in tallied or torch.equal(x, before[name]):
            continue
        layer = type(module.get_submodule(name.rpartition(".")[0])).__name__
        if isinstance(x, nn.Parameter):
            raise ValueError(
                f"a forward changes the weight {name} of {layer}, but only the optimizer may change a weight: compute "
                "the clamped or normalized value in the forward instead"
            )
        raise ValueError(
            f"a forward changes the buffer {name} of {layer}, and each microbatch and replica would change it "
            "differently: use hybridlab.training.models.batch_norm.BatchNorm, or add up the changes in a tally, as "
            "BatchNorm does"
        )
