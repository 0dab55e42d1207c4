"""A placement: the backend for messages and the device of each rank, with the reason in a sentence.

Its functions are pure, so every case can be tested on any machine; only `gpus=None` inspects this machine. `meet`
applies it.
"""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial

from hybridlab.doors import FEW, door, span
from hybridlab.world.devices import gpus as found

ASKED = "HYBRIDLAB_DEVICES"  # overrides the devices found: "cpu", or a kind and a number, "cuda:2"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
# Channels for a pair of ranks. Each costs the receiver 10 MiB and the sender 2 MiB of a GPU's memory (NCCL 2.30,
# p2p.cc), and with a switch NCCL takes 32: 2.6 GiB on each of eight GPUs that connect with each other. More of them are
# not faster here.
CHANNELS = "4"
NOT_SPEED_UPS = "times measured here are not speed-ups"

# NCCL refuses two ranks of one host on one GPU. If each rank claims a separate host, NCCL takes them for a cluster and
# communicates through sockets; its search for faster ways between "hosts" is switched off. Read from NCCL's source
# (2.27 to 2.30: init.cc, utils.cc, mnnvl.cc); run on one H200 with NCCL 2.28.9.
HOSTS_OF_THEIR_OWN = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_MAX_NCHANNELS": "2",
}


@dataclass(frozen=True)
class Placement:
    """Backend ("gloo" or "nccl"), one device name per rank, whether ranks share a GPU, and the reason, as its text."""

    backend: str
    devices: tuple[str, ...]
    shared: bool
    sentence: str

    def __str__(self):
        return self.sentence

    @property
    def kind(self) -> str:
        """The kind of the devices, as torch names it: "cpu", "cuda"."""
        return self.devices[0].partition(":")[0]

    def takes_at_once(self, rank: int) -> bool:
        """Whether this rank initializes its device before it is ready. Otherwise its tensors on "the GPU" would be
        allocated on the first GPU. Ranks on the first GPU initialize it when they need it.
        """
        return not self.devices[rank].endswith(("cpu", ":0"))

    @property
    def contexts(self) -> int:
        """The number of ranks that initialize the same device before they are ready, for the device with the most such
        ranks.

        >>> [placement(8, gpus=gpus).contexts for gpus in (0, 1, 2, 8)]
        [0, 0, 4, 1]
        """
        return max(Counter(d for r, d in enumerate(self.devices) if self.takes_at_once(r)).values(), default=0)

    def environment(self, rank: int) -> dict[str, str]:
        """The variables that this rank must set before it meets the others; no port is open beyond this machine.

        >>> placement(2, gpus=1, backend="nccl").environment(1)["NCCL_HOSTID"]
        'hybridlab-rank-1'
        """
        variables = {"GLOO_SOCKET_IFNAME": LOOPBACK}
        if self.backend == "nccl":
            variables |= {"NCCL_SOCKET_IFNAME": LOOPBACK, "NCCL_RAS_ENABLE": "0", "NCCL_MAX_P2P_NCHANNELS": CHANNELS}
            if self.shared:
                variables |= HOSTS_OF_THEIR_OWN | {"NCCL_HOSTID": f"hybridlab-rank-{rank}"}
        return variables


@partial(door, ranks=FEW, gpus=span(0, 10**6, "give a number from 0 to 1e+06"))
def placement(ranks: int, gpus: int | None = None, backend: str | None = None) -> Placement:
    """The placement of ranks on a machine with `gpus` GPUs; None inspects this machine and HYBRIDLAB_DEVICES.

    ranks    the number of ranks
    gpus     the number of GPUs; 0: all ranks use the CPU
    backend  None: chosen automatically; "gloo" copies through host memory; "nccl" is also possible if ranks share a GPU
             (slow: a demonstration of the cluster's code path)

    raises  ValueError if `ranks` is less than 1, `gpus` less than 0, or the backend unknown or impossible

    >>> import hybridlab as hl
    >>> hl.placement(4, gpus=1).devices
    ('cuda:0', 'cuda:0', 'cuda:0', 'cuda:0')
    >>> print(hl.placement(2, gpus=0))
    2 ranks on the CPU: gloo over loopback, one thread each.
    """
    if backend not in (None, "gloo", "nccl"):
        raise ValueError(f"backend={backend!r} is not known: choose gloo or nccl, or leave it out")
    kind, numbers, why = _devices(ranks) if gpus is None else ("cuda", range(gpus), "")
    if not numbers:
        return _on_the_cpu(ranks, backend, why)
    gpus = len(numbers)
    shared = gpus < ranks
    devices = tuple(f"{kind}:{numbers[r % gpus]}" for r in range(ranks))
    where = f"{_count(ranks, 'rank')} {'share' if shared else 'on'} {_count(gpus, 'GPU')}"
    backend = backend or ("gloo" if shared else "nccl")
    return Placement(backend, devices, shared, f"{where}: {WHY[backend, shared]}.")


WHY = {  # (backend, shared)
    ("nccl", False): "one GPU each, so NCCL",
    ("gloo", False): "one GPU each, but gloo through host memory, as asked",
    ("gloo", True): f"gloo through host memory, because NCCL refuses two ranks on one GPU; {NOT_SPEED_UPS}",
    ("nccl", True): f"NCCL through sockets, each rank posing as a host of its own, as asked; {NOT_SPEED_UPS}",
}


def _devices(ranks):
    """(kind, torch's numbers of the usable devices for these ranks, the reason why a GPU here is not usable)."""
    if os.environ.get(ASKED):
        return *devices_here(), ""
    usable, why = found.here().for_ranks(ranks)
    return "cuda", [gpu.number for gpu in usable], why


def _on_the_cpu(ranks, backend, why=""):
    if backend == "nccl":
        raise ValueError("backend='nccl' needs a GPU, and none is usable here: leave out backend, or give gloo")
    each = ", one thread each" if ranks > 1 else ", one thread"
    aside = f"; there is a GPU, but {why}" if why else ""
    sentence = f"{_count(ranks, 'rank')} on the CPU: gloo over loopback{each}{aside}."
    return Placement("gloo", ("cpu",) * ranks, False, sentence)


def devices_here() -> tuple[str, list[int]]:
    """(kind, torch's numbers) of the devices for ranks: GPUs that torch can use, or the value of HYBRIDLAB_DEVICES.

    raises  ValueError if that is not a device
    """
    said = os.environ.get(ASKED, "")
    if not said:
        return "cuda", [gpu.number for gpu in found.here().usable]
    kind, _, count = said.partition(":")
    if kind != "cpu" and not count.isdigit():
        raise ValueError(
            f'{ASKED}={said} is not a device: give cpu, or a kind of device and a number of them, such as "cuda:2"'
        )
    return kind, [] if kind == "cpu" else list(range(int(count)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
