"""The machine as one process sees it, and the placement of ranks from the views of all processes.

Some clusters show every process all GPUs of its machine. Others bind one GPU to each process (Slurm's --gpus-per-task):
then every process calls its own GPU cuda:0. The UUID of a GPU distinguishes them.
"""

import hashlib
import os
import socket
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hybridlab.world.devices import driver
from hybridlab.world.devices.gpus import ONE_EACH, Gpus, judged
from hybridlab.world.devices.placement import ASKED, Placement, devices_here, placement

BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs between machines, and after every start


class Seen(NamedTuple):
    """One process's view: a number for its machine; the devices that torch can use: their kind, and for each its number
    in torch and a name that is the same in every process; the name of the machine; and whether ranks cannot share a
    device."""

    machine: int
    kind: str
    devices: list[tuple[int, str]]
    host: str = ""
    alone: bool = False


def seen() -> Seen:
    """The view of this process. It is a rank, so it queries CUDA itself; a GPU is identified by its UUID."""
    kind, numbers = devices_here() if os.environ.get(ASKED) else ("cuda", None)
    here = judged(driver.told(), "", driver.cards()) if kind == "cuda" else Gpus()
    gpus = {gpu.number: gpu.uuid for gpu in here.usable}
    numbers = gpus if numbers is None else numbers
    devices = [(number, gpus.get(number, f"{kind} {number}")) for number in numbers]
    return Seen(machine(), kind, devices, socket.gethostname(), here.alone)


def machine() -> int:
    """A number for this machine, the same in all its processes."""
    name = BOOT.read_bytes() if BOOT.exists() else uuid.getnode().to_bytes(8, "big")
    return int.from_bytes(hashlib.sha256(name).digest()[:7], "big")


def everywhere(table: list[Seen]) -> Placement:
    """The placement of all ranks, from the view of each: ranks that see the same devices use them in turn.

    >>> everywhere([Seen(machine, "cuda", [(0, "a"), (1, "b")]) for machine in (1, 1, 2, 2)]).devices
    ('cuda:0', 'cuda:1', 'cuda:0', 'cuda:1')
    >>> bound = everywhere([Seen(1, "cuda", [(0, name)]) for name in "abcd"])  # as Slurm binds a GPU to each task
    >>> bound.backend, bound.devices
    ('nccl', ('cuda:0', 'cuda:0', 'cuda:0', 'cuda:0'))
    """
    if without := [rank for rank, one in enumerate(table) if not one.devices]:
        on_the_cpu = placement(len(table), gpus=0)
        if len(without) == len(table):
            return on_the_cpu
        return replace(on_the_cpu, sentence=f"rank {without[0]} sees no GPU, so all are on the CPU: {on_the_cpu}")
    turns, taken = Counter(), []
    for one in table:
        who = one.machine, *(name for _, name in one.devices)
        taken.append(one.devices[turns[who] % len(one.devices)])
        turns[who] += 1
    distinct = {(one.machine, name) for one, (_, name) in zip(table, taken)}
    if len(distinct) < len(table) and any(one.alone for one in table):
        why = f"the compute mode of a GPU lets in one process, and ranks would share GPUs: {ONE_EACH}"
        return replace(placement(len(table), gpus=0), sentence=f"all ranks are on the CPU: {why}")
    devices = tuple(f"{one.kind}:{number}" for one, (number, _) in zip(table, taken))
    return replace(placement(len(table), gpus=len(distinct)), devices=devices)
