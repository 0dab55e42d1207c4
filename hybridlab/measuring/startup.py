"""Measure the time until ranks are ready: ours from their warm parent and, for comparison, processes spawned by torch.

Ready means that every rank has connected to the others and has answered once.
"""

import os
import tempfile
import time

from hybridlab.world.processes.launch import ranks
from hybridlab.world.processes.zygote import IDLE_SECONDS

ANSWER = lambda comm: comm.rank  # sent by value, like a function of a notebook: no rank imports this file


def parent() -> float:
    """The seconds of the very first start. On return, the warm parent has also imported the modules that it imports
    while idle.
    """
    first = warm(1)
    time.sleep(5 * IDLE_SECONDS)
    warm(1)
    return first


def warm(count: int) -> float:
    """The seconds until this number of our ranks is ready, if their parent already runs; the ranks are then ended."""
    begin = time.perf_counter()
    with ranks(count) as pool:
        pool.run(ANSWER)
        return time.perf_counter() - begin


def spawned(count: int) -> float:
    """The seconds until this number of processes is ready, if `torch.multiprocessing` spawns each as a fresh
    interpreter.
    """
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        ready = processes.get_context("spawn").SimpleQueue()
        begin = time.perf_counter()
        group = processes.spawn(_meet, (count, os.path.join(folder, "store"), ready), count, join=False)
        for _ in range(count):
            ready.get()
        took = time.perf_counter() - begin
        group.join()
        return took


def in_turns(count: int, rounds: int) -> tuple[list[float], list[float]]:
    """The times of warm starts and of spawned starts, in seconds.

    Each round has three warm starts and one spawned start, so that other load on the machine affects both.
    """
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(spawned(count))
        ours += [warm(count) for _ in range(3)]
    return ours, theirs


def calls(count: int, repeats: int) -> list[float]:
    """The seconds of each call, if ranks that already run call an empty function several times."""
    times = []
    with ranks(count) as pool:
        pool.run(ANSWER)
        for _ in range(repeats):
            begin = time.perf_counter()
            pool.run(ANSWER)
            times.append(time.perf_counter() - begin)
    return times


def crowd(count: int) -> float:
    """The seconds in which this number of ranks starts, adds up the ranks' numbers, and ends.

    raises  ArithmeticError when the sum is wrong
    """
    begin = time.perf_counter()
    with ranks(count) as pool:
        sums = pool.run(_sum)
    took = time.perf_counter() - begin
    if sums != [count * (count - 1) / 2] * count:
        raise ArithmeticError(f"{count} ranks added up to {sums}")
    return took


def _sum(comm):
    import torch

    return comm.all_reduce(torch.tensor([float(comm.rank)])).item()


def _meet(rank, count, store, ready):
    """The program of a spawned process: connect to the others over loopback, as our ranks do, and report it."""
    import torch
    import torch.distributed as dist

    from hybridlab.world.devices.placement import LOOPBACK

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
    dist.barrier()
    ready.put(rank)
    dist.destroy_process_group()
