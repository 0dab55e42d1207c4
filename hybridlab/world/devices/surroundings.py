"""The machine as seen by a process, and the placement of ranks from what all of them see.

Some clusters show every process all GPUs of its machine, others bind one to each (Slurm's --gpus-per-task): then every
process calls its own cuda:0. A GPU's UUID tells them apart.
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
from hybridlab.world.devices.gpus import judged
from hybridlab.world.devices.placement import ASKED, Placement, devices_here, placement

BOOT = Path("/proc/sys/kernel/random/boot_id")  # another one on every machine, and after every start


class Seen(NamedTuple):
    """What a process has: a number for its machine, and the devices that torch can use: their kind, and for each
    torch's number here and a name that is the same in every process that sees it; and what its machine is called."""

    machine: int
    kind: str
    devices: list[tuple[int, str]]
    host: str = ""


def seen() -> Seen:
    """What this process has. It is a rank, so it asks CUDA itself; a GPU goes by its UUID."""
    kind, numbers = devices_here() if os.environ.get(ASKED) else ("cuda", None)
    gpus = {gpu.number: gpu.uuid for gpu in judged(driver.told(), "", []).usable} if kind == "cuda" else {}
    numbers = gpus if numbers is None else numbers
    return Seen(
        machine(), kind, [(number, gpus.get(number, f"{kind} {number}")) for number in numbers], socket.gethostname()
    )


def machine() -> int:
    """A number for this machine, the same in all its processes."""
    name = BOOT.read_bytes() if BOOT.exists() else uuid.getnode().to_bytes(8, "big")
    return int.from_bytes(hashlib.sha256(name).digest()[:7], "big")


def everywhere(table: list[Seen]) -> Placement:
    """The placement of all ranks, from the view of each: those that see the same devices take them in turn.

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
    devices = tuple(f"{one.kind}:{number}" for one, (number, _) in zip(table, taken))
    return replace(placement(len(table), gpus=len(distinct)), devices=devices)
