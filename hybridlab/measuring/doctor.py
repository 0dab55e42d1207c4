"""Examine this machine: facts, a test run of ranks with the speed of their messages, and advice."""

import contextlib
import os
import platform
import time
from pathlib import Path

from hybridlab.core import afford
from hybridlab.measuring import machine
from hybridlab.signatures import typed
from hybridlab.world.devices import gpus
from hybridlab.world.devices.placement import placement
from hybridlab.world.processes import namespaces
from hybridlab.world.processes.launch import RankError, ranks

GIB = 2**30
TOKEN = 1024  # bytes of the message that is timed
LEAST_MEMORY, LEAST_SHARED, LEAST_FILES = 2 * GIB, 256 * 2**20, 256
OWN = "ranks use a separate network"
CAN_BE_CLOSED = "every user here can reach the loopback of ranks; HYBRIDLAB_NETWORK=own closes it"
OPEN = "every user here can reach the loopback of ranks, and this system allows no separate one"
FIRST_USER, NOBODY = 1000, 65534  # user ids of people, on Linux
ADVICE = (  # (a test of the facts that finds a problem, the advice)
    (
        lambda facts: not facts["system"].startswith("Linux"),
        "Ranks run on Linux only (on Windows, in WSL2). Schedules, predictions and pictures work here.",
    ),
    (lambda facts: facts["missing packages"] != "none", "Packages are missing: run make setup."),
    (
        lambda facts: facts["cores"] < 2,
        "There is one core, so ranks take turns: emulated work shows true timelines, real models do not.",
    ),
    (
        lambda facts: 0 < facts["memory free, GiB"] * GIB < LEAST_MEMORY,
        "Little memory is free: close other programs, or use 4 ranks at most.",
    ),
    (
        lambda facts: 0 < facts["shared memory, GiB"] * GIB < LEAST_SHARED,
        "Shared memory is small, as is usual in Docker. The course needs little of it; NCCL and data loaders with "
        "workers need more: docker run --shm-size=1g.",
    ),
    (
        lambda facts: 0 < facts["open files allowed"] < LEAST_FILES,
        "Few files may be open at once, and many ranks need many sockets: ulimit -n 1024.",
    ),
    (
        lambda facts: "GPUs not used" in facts,
        "A GPU of this machine is not used: the line 'GPUs not used' says why, and what to do.",
    ),
    (
        lambda facts: facts["other users"] and facts["neighbours"] == CAN_BE_CLOSED,
        "Others use this machine, and ranks find each other on a loopback that they share: set HYBRIDLAB_NETWORK=own.",
    ),
    (
        lambda facts: facts["other users"] and facts["neighbours"] == OPEN,
        "Others use this machine, and can connect to ranks while these start: compute in a container, or alone.",
    ),
    (lambda facts: "ranks fail" in facts, "Ranks do not start: the line above says why."),
)


@typed
def doctor(count: int = 4) -> dict:
    """Facts about this machine, with units in their names; the last one, "what to do", is text.

    count  ranks that are started, 2 or more

    It measures how long ranks take to be ready, the first time and later; the delay of a message to a sleeping rank
    ("one message"); and alpha and beta of messages between ranks 0 and 1, fitted over sizes from 1 KiB to 4 MiB.

    >>> import hybridlab as hl
    >>> facts = hl.doctor(count=2)  # starts ranks
    >>> facts["cores"] >= 1, "ranks fail" in facts
    (True, False)
    """
    facts = _seen(count)
    try:
        facts |= _measured(count)
    except (RankError, RuntimeError, ModuleNotFoundError) as error:
        facts["ranks fail"] = str(error)
    return facts | {"what to do": " ".join(advice(facts)) or "nothing: all is well"}


def advice(facts: dict) -> list[str]:
    """A sentence for each problem that the facts show."""
    return [sentence for wrong, sentence in ADVICE if wrong(facts)]


def _seen(count: int) -> dict:
    free, all_of_it = afford.memory() or (0, 0)
    here = gpus.here()
    why = here.for_ranks(count)[1]
    return {
        "system": machine.system(),
        "python": platform.python_version(),
        "torch": machine.version("torch") or "none",
        "backends": _backends(),
        "missing packages": ", ".join(machine.missing()) or "none",
        "cores": afford.cores(),
        "memory free, GiB": round(free / GIB, 1),
        "memory, GiB": round(all_of_it / GIB, 1),
        "shared memory, GiB": round((machine.shared_memory() or 0) / GIB, 3),
        "open files allowed": machine.open_files() or 0,
        "neighbours": neighbours(),
        "other users": other_users(),
        "GPUs": "; ".join(f"{gpu.name}, {gpu.memory / GIB:.0f} GiB" for gpu in here.usable) or "none",
        **({"GPUs not used": why} if why else {}),
        "GPU driver": here.driver or "none",
        **{f"{n} ranks": placement(n).sentence for n in (2, 4, 8)},
    }


def neighbours() -> str:
    """The protection of ranks from other users of this machine; ranks use TCP on loopback without passwords."""
    if os.environ.get(namespaces.ASKED) == "own":
        return OWN
    return CAN_BE_CLOSED if namespaces.possible() else OPEN


def other_users() -> int:
    """The number of other people with processes here, as far as visible."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            found.add(place.stat().st_uid)
    return len([user for user in found - {os.getuid()} if FIRST_USER <= user < NOBODY])


def _backends() -> str:
    if machine.version("torch") is None:
        return "none"
    import torch.distributed as dist

    return ", ".join(name for name in ("gloo", "nccl", "mpi") if getattr(dist, f"is_{name}_available")()) or "none"


def _measured(count: int) -> dict:
    from hybridlab.measuring.links import measured_link
    from hybridlab.measuring.startup import ANSWER
    from hybridlab.runtime.links import edge_links

    found = {}
    for which in ("first", "next"):
        begin = time.perf_counter()
        with ranks(count) as pool:
            pool.run(ANSWER)
            found[f"{which} {count} ranks ready, s"] = round(time.perf_counter() - begin, 2)
            if which == "next":
                found["one message, µs"] = round(pool.run(edge_links, {0: [(0, 1)]}, [TOKEN])[0]["latency"][0] * 1e6)
                link, _ = measured_link(pool)
    fitted = {"alpha, µs": round(link.alpha * 1e6), "beta, s per GB": round(link.beta * 1e9, 3)}
    return found | fitted | {"alpha and beta on": placement(count).kind}
