"""The GPUs that torch can use on this machine, and for each of the others the reason in a sentence.

All code that counts GPUs calls this: the placement of ranks, ranks that torchrun started, the doctor, records, make
gpu.
"""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import NamedTuple

from hybridlab.world.devices import driver

NEW_BUILD = "remove .venv and say make setup, which takes the build that fits"
ONE_EACH = "use a rank for each GPU, or run nvidia-smi -c DEFAULT"


class Gpu(NamedTuple):
    """A GPU that torch can use: its number in torch, its name, bytes of memory, and its UUID."""

    number: int
    name: str
    memory: int
    uuid: str


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a machine.

    usable  the GPUs that torch can use;  driver  the driver's version, "" without one
    alone   whether a GPU accepts only one process, so that ranks cannot share it
    why     "" or a clause with the reason why torch cannot use a GPU of this machine, and the remedy
    """

    usable: tuple[Gpu, ...] = ()
    driver: str = ""
    alone: bool = False
    why: str = ""

    def __len__(self):
        return len(self.usable)

    def for_ranks(self, ranks: int) -> tuple[tuple[Gpu, ...], str]:
        """(the GPUs that this number of ranks can use, "" or a clause with the reason why some GPU of this machine is
        not among them).

        >>> Gpus((Gpu(0, "A100", 80, "GPU-1"),), alone=True).for_ranks(2)[1].partition(":")[0]
        'its compute mode lets in one process, so 2 ranks cannot share it'
        """
        if self.alone and 0 < len(self) < ranks:
            which = "it" if len(self) == 1 else f"{len(self)} GPUs"
            return (), f"its compute mode lets in one process, so {ranks} ranks cannot share {which}: {ONE_EACH}"
        return self.usable, self.why


@functools.cache
def here() -> Gpus:
    """The GPUs of this machine, queried once, in a child process: this process does not use CUDA, so it can fork."""
    if not any(os.path.exists(file) for file in driver.FILES):
        return Gpus()
    child = subprocess.run([sys.executable, driver.__file__, "torch"], capture_output=True, text=True)
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return Gpus(driver=driver.version(), why=f"torch cannot say which GPUs it sees: {last[0]}")
    return judged(json.loads(child.stdout), driver.version(), driver.cards())


def judged(told: dict, version: str, cards: list[dict[str, str]]) -> Gpus:
    """The usable GPUs, and why the others are not usable, from torch (`driver.told`) and nvidia-smi (`cards`).

    >>> old = {"torch": "2.13.0", "cuda": "13.0", "kernels": ["sm_80"], "counted": 1, "gpus": []}
    >>> judged(old, "550.54", []).why.partition(":")[0]
    'the driver is 550.54, and torch 2.13.0 is built with CUDA 13.0, which needs 580 or newer'
    """
    modes = [card["compute_mode"] for card in cards]
    alone = any(mode.startswith("Exclusive") for mode in modes)
    if not told["gpus"]:
        return Gpus((), version, alone, _why_none(told, version, modes, cards))
    usable, without = [], []
    for number, (name, memory, capability, uuid) in enumerate(told["gpus"]):
        if has_kernels(told["kernels"], *capability):
            usable.append(Gpu(number, name, memory, uuid))
        else:
            without.append(f"{name} (sm_{capability[0]}{capability[1]})")
    built = f"it is built for {', '.join(told['kernels'])}"
    why = f"torch {told['torch']} has no kernels for {', '.join(without)}: {built}" if without else ""
    return Gpus(tuple(usable), version, alone, why)


def _why_none(told, version, modes, cards) -> str:
    """The reason why CUDA opens no GPU."""
    if not version:
        return ""
    if not told["cuda"]:
        return f"torch {told['torch']} is a CPU build: {NEW_BUILD}"
    needs = driver.OLDEST.get(int(told["cuda"].partition(".")[0]), 0)
    if int(version.partition(".")[0]) < needs:
        built = f"torch {told['torch']} is built with CUDA {told['cuda']}, which needs {needs} or newer"
        return f"the driver is {version}, and {built}: {NEW_BUILD}"
    if "Prohibited" in modes:
        return "its compute mode is Prohibited: an administrator can run nvidia-smi -c DEFAULT"
    if any(card["mig.mode.current"] == "Enabled" for card in cards):
        return "it is divided by MIG and has no instance for this process: ask for one, or set CUDA_VISIBLE_DEVICES"
    if not told["counted"]:
        return "no GPU is visible to this process: look at CUDA_VISIBLE_DEVICES"
    return "CUDA does not open it: nvidia-smi may say why"


def has_kernels(kernels: list[str], major: int, minor: int) -> bool:
    """Whether a GPU of this capability runs one of these builds: binaries of its own generation up to its own minor
    number, or code of an older generation that the driver compiles.

    >>> has_kernels(["sm_80", "sm_86"], 8, 9), has_kernels(["sm_75"], 7, 0), has_kernels(["compute_70"], 9, 0)
    (True, False, True)
    """
    for one in kernels:
        kind, _, number = one.partition("_")
        if not number.isdigit():  # sm_90a: for one kind of GPU only
            if number[:-1] == f"{major}{minor}":
                return True
            continue
        its = int(number[:-1]), int(number[-1])
        if its <= (major, minor) and (kind == "compute" or its[0] == major):
            return True
    return False
