"""The GPU suite: whether and how several ranks can share one GPU, how fast they are, and the difference if each has its
own GPU.

Every question runs in separate processes with a time limit, so an endless kernel, a crash or a deadlock costs only one
row. This module asks the questions and imports no torch; `gpu_answers` is the program of the ranks.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hybridlab.measuring.row import where
from hybridlab.world.devices.placement import Placement, placement
from hybridlab.world.explain.faults import name_of_signal

TIMEOUT = 15  # timeout of an operation, in seconds
PATIENCE = TIMEOUT + 8  # seconds in which the others must notice and report a lost rank
# NCCL gives up by a watchdog, a thread that ends the process before this can say why. With value 2 it ends only the
# communicators, and the next operation should raise an error (torch 2.13's ProcessGroupNCCL.hpp). On one H200 with
# torch 2.11 no error had been raised when the patience ended.
WATCHDOG = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
POLL = 0.05
FOLDERS = re.compile(r"(?<![\w.…])/(?:[\w.+-]+/)+")


class Question(NamedTuple):
    """One question: the function in `gpu_answers` that the ranks run, the number of ranks, and their GPUs.

    asks      the question in words
    gpus      the number of GPUs on which the ranks are placed; a machine with fewer reports this instead of an answer
    backend   as `placement` takes it;  host_each  whether to keep the disguise with which NCCL lets ranks share a GPU
    extra     further environment variables;  cap  seconds after which it is ended
    """

    name: str
    asks: str
    answer: str
    ranks: int
    gpus: int = 1
    backend: str = "gloo"
    host_each: bool = True
    extra: tuple = ()
    cap: float = 40


QUESTIONS = (
    Question("one rank", "what a rank costs on a GPU before it does anything", "alone", 1),
    Question("ours, 2 ranks", "the course's own way: is every operation right, and how fast", "ours", 2),
    Question("ours, 4 ranks", "the same with four ranks", "ours", 4, cap=60),
    Question("gloo, collectives", "which collectives take tensors of a GPU", "collectives", 2),
    Question("gloo, messages", "do sends of GPU tensors fail, as the source says", "messages", 2),
    Question("gloo, reduce-scatter of a list", "is it right", "reduce_scatter_list", 2),
    Question("gloo, coalesced", "does it crash, as reported", "coalesced", 2),
    Question("NCCL as hosts, 2 ranks", "does NCCL run on a shared GPU, by sockets", "everything", 2, backend="nccl"),
    Question("NCCL as hosts, 4 ranks", "the same with four ranks", "everything", 4, backend="nccl", cap=60),
    Question(
        "NCCL as hosts, Ring and Simple",
        "is it faster than with what NCCL chooses itself",
        "sizes",
        2,
        backend="nccl",
        extra=(("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")),
    ),
    Question("NCCL as hosts, overlap", "do kernels that wait let others compute", "overlap", 2, backend="nccl"),
    Question("NCCL as hosts, lost peer", "how soon is a killed rank noticed", "lost_peer", 2, backend="nccl"),
    Question(
        "NCCL undisguised",
        "does it refuse two ranks on one GPU, as it should",
        "first",
        2,
        backend="nccl",
        host_each=False,
    ),
    Question(
        "NCCL's own switch",
        "does NCCL 2.30 share a GPU when told so",
        "first",
        2,
        backend="nccl",
        host_each=False,
        extra=(("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_MAX_CTAS", "4")),
    ),
    Question("memory of a peer, 2 ranks", "is CUDA IPC allowed here, and how fast", "peer_memory", 2),
    Question("memory of a peer, 4 ranks", "the same with four ranks", "peer_memory", 4, cap=60),
    Question(
        "symmetric memory",
        "does it work for ranks of one GPU",
        "symmetric",
        2,
        extra=(("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1"),),
    ),
    Question("a GPU each, 2 ranks", "what a cluster's nodes do", "everything", 2, gpus=2, backend="nccl"),
    Question("a GPU each, 4 ranks", "the same with four ranks", "everything", 4, gpus=4, backend="nccl", cap=60),
)


def rows(gpus: int) -> Iterator[dict]:
    """Yield one row per question, on a machine with this number of GPUs."""
    for question in QUESTIONS:
        told = {"name": question.name, "asks": question.asks, "ranks": question.ranks}
        if question.gpus > gpus:
            yield told | {"needs": f"{question.gpus} GPUs; this machine has {gpus}"}
        else:
            placed = placement(question.ranks, gpus=question.gpus, backend=question.backend)
            yield told | {"device": placed.kind, "placement": placed.sentence} | where(placed) | ask(question, placed)


def ask(question: Question, placed: Placement) -> dict:
    """Run the ranks of one question, and return how they ended, their results, and NCCL's messages."""
    with tempfile.TemporaryDirectory(prefix="hybridlab-") as folder:
        begin = time.monotonic()
        ranks = [_start(question, placed, rank, folder) for rank in range(question.ranks)]
        try:
            in_time = _wait(ranks, begin + question.cap)
        finally:
            _end(ranks)
        ended = "well" if not any(rank.returncode for rank in ranks) else _endings(ranks)
        return {
            "ended": ended if in_time else f"was stopped after {time.monotonic() - begin:.0f} s",
            "seconds": round(time.monotonic() - begin, 1),
            **_told(folder, question.ranks),
            **_nccl_said(folder),
        }


def _start(question, placed, rank, folder):
    seen = placed if question.host_each else replace(placed, shared=False)  # as if nothing had to be disguised
    environment = seen.environment(rank) | dict(question.extra)
    if placed.backend == "nccl":
        log = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM",
            "NCCL_DEBUG_FILE": f"{folder}/nccl-{rank}",
        }
        environment |= log | WATCHDOG
    job = [question.answer, rank, json.dumps(placed.devices), placed.backend, folder]
    with open(f"{folder}/said-{rank}", "w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "hybridlab.measuring.gpu_answers", *map(str, job)],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _wait(ranks, cap: float) -> bool:
    """Whether all processes ended by themselves: before the time limit, and soon after the first failure."""
    until = cap
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            until = min(until, time.monotonic() + PATIENCE) if until == cap else until
        if time.monotonic() > until:
            return False
        time.sleep(POLL)
    return True


def _end(ranks):
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()


def _endings(ranks) -> str:
    codes = [rank.returncode for rank in ranks]
    return "; ".join(
        f"rank {rank} by {name_of_signal(-code)}" if code < 0 else f"rank {rank} with exit code {code}"
        for rank, code in enumerate(codes)
        if code
    )


def _told(folder, count) -> dict:
    """The answers, and the errors: those that a rank recorded, or its last output."""
    answers, errors = [], {}
    for rank in range(count):
        file = Path(folder, f"answers-{rank}")
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        answers += [line for line in lines if "error" not in line]
        said = Path(folder, f"said-{rank}").read_text(errors="replace").strip().splitlines()
        if error := [line["error"] for line in lines if "error" in line] or said[-1:]:
            errors[f"rank {rank}"] = anonymous(error[0])
    return {"answers": answers} | ({"errors": errors} if errors else {})


def _nccl_said(folder) -> dict:
    """The transports that NCCL used ("via NET/Socket"), and its warnings."""
    ways, warnings = {}, set()
    for file in Path(folder).glob("nccl-*"):
        for line in file.read_text(errors="replace").splitlines():
            if " via " in line:
                way = line.split(" via ", 1)[1].split()[0]
                ways[way] = ways.get(way, 0) + 1
            elif "WARN" in line:
                warnings.add(anonymous(line.split("WARN", 1)[1].strip()))
    return ({"NCCL went by": ways} if ways else {}) | ({"NCCL warned": sorted(warnings)[:4]} if warnings else {})


def anonymous(text: str) -> str:
    """A message without the folders of this machine, and not longer than a few lines."""
    return FOLDERS.sub("…/", " ".join(text.split()))[:300]
