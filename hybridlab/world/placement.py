"""A placement: which backend carries messages and which device each rank computes on, with the reason in a sentence.

Pure, so every case can be tested on any machine; only `gpus=None` looks at this one.
"""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass

DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")  # the last one is WSL2's
COUNT = "import torch; print(torch.cuda.device_count())"


@dataclass(frozen=True)
class Placement:
    """Backend ("gloo" or "nccl"), one device name per rank, whether ranks share a GPU, and why; prints as the why."""

    backend: str
    devices: tuple[str, ...]
    shared: bool
    sentence: str

    def __str__(self):
        return self.sentence


def placement(ranks: int, gpus: int | None = None) -> Placement:
    """Where `ranks` ranks run on a machine with `gpus` GPUs; None counts those that torch can use here.

    raises  ValueError when `ranks` is less than 1 or `gpus` less than 0

    >>> placement(4, gpus=1).devices
    ('cuda:0', 'cuda:0', 'cuda:0', 'cuda:0')
    >>> print(placement(2, gpus=0))
    2 ranks on the CPU: gloo over loopback, one thread each.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} ranks cannot be placed: ask for 1 or more")
    gpus = count_gpus() if gpus is None else gpus
    if gpus < 0:
        raise ValueError(f"a machine cannot have {gpus} GPUs: give 0 or more")
    if gpus == 0:
        each = ", one thread each" if ranks > 1 else ", one thread"
        sentence = f"{_count(ranks, 'rank')} on the CPU: gloo over loopback{each}."
        return Placement("gloo", ("cpu",) * ranks, False, sentence)
    devices = tuple(f"cuda:{r % gpus}" for r in range(ranks))
    if gpus >= ranks:
        sentence = f"{_count(ranks, 'rank')} on {_count(ranks, 'GPU')}: one GPU each, so NCCL."
        return Placement("nccl", devices, False, sentence)
    sentence = (
        f"{_count(ranks, 'rank')} share {_count(gpus, 'GPU')}: gloo through host memory, because NCCL refuses "
        "two ranks on one GPU; times measured here are not speed-ups."
    )
    return Placement("gloo", devices, True, sentence)


@functools.cache
def count_gpus() -> int:
    """How many GPUs torch can use on this machine, asked in a child so that CUDA stays untouched in this process."""
    if not any(os.path.exists(file) for file in DRIVER_FILES):
        return 0
    child = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True)
    return int(child.stdout) if child.returncode == 0 else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
