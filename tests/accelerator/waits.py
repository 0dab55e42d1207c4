"""Where the host waits for a GPU: where a number is read, something is copied between host and device that may not come
later, or numbers decide how long a tensor is.

Waits in so many words (`synchronize`) are in a list of tests/house/test_devices.py.
"""

import sys
from collections import Counter
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import hybridlab
from hybridlab.training import loop

PACKAGE = f"{Path(hybridlab.__file__).parent}/"
EMULATOR = str(Path(__file__).parent / "on_path")
COPIES = ("_to_copy", "copy_")
DECIDED = ("nonzero", "masked_select", "_unique2", "unique_dim", "bincount", "repeat_interleave", "equal")


class Waits(TorchDispatchMode):
    """While this lasts, `found` counts waits by place: file and function of the package, the innermost."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        if waits(name, args, kwargs or {}, result) and (place := innermost()):
            self.found[place] += 1
        return result


def waits(name: str, args, kwargs, result) -> bool:
    """Whether the host has waited for this operation."""
    tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
    places = {x.device.type for x in tensors}
    if name in COPIES:
        later = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        return len(places) > 1 and not later
    if places <= {"cpu"}:
        return False
    return name == "_local_scalar_dense" or name in DECIDED or by_mask(name, args)


def by_mask(name: str, args) -> bool:
    """Whether a tensor is indexed by what is true."""
    masks = [x for x in tree_leaves(args[1:2]) if isinstance(x, torch.Tensor) and x.dtype == torch.bool]
    return name.startswith(("index", "_index_put")) and any(x.device.type != "cpu" for x in masks)


def innermost() -> str:
    """ "file function" of the package's innermost frame; "" for what the emulated backend does itself."""
    frame, place = sys._getframe(1), ""
    while frame:
        code = frame.f_code
        if code.co_filename.startswith(EMULATOR):
            return ""
        if not place and code.co_filename.startswith(PACKAGE):
            place = f"{code.co_filename.removeprefix(PACKAGE)} {code.co_qualname.partition('.<')[0]}"
        frame = frame.f_back
    return place


def of_a_step(comm, job) -> dict[str, int]:
    """{place: times} of the second step of a job, on this rank."""
    trainer = loop.Trainer(comm, job)
    trainer.step(0)
    with Waits() as waiting:
        trainer.step(1)
    return dict(waiting.found)
