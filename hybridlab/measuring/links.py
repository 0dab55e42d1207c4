"""Measure links: the times of messages and collectives of several sizes between ranks. `pool.run` calls these
functions.

All repetitions are returned. Lines are fitted to the shortest time of each size, because other work of the machine only
adds time, often milliseconds. For a collective, the slowest rank counts. The tensors are on the ranks' device.
"""

import torch

from hybridlab.measuring.timed import now
from hybridlab.predict.bytes.collectives import Link

SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22)  # bytes
REPEATS = 25


def message_times(comm, sizes=SIZES, repeats: int = REPEATS) -> list[list[float]]:
    """Seconds that one message between ranks 0 and 1 takes, for every size and repetition: half of a round trip."""
    times = []
    for size in sizes:
        ball = torch.zeros(size, dtype=torch.uint8, device=comm.device)
        times.append([_there_and_back(comm, ball) / 2 for _ in range(repeats + 1)][1:])  # the first one warms up
    return times


def collective_times(comm, op: str, sizes=SIZES, repeats: int = REPEATS) -> list[list[float]]:
    """Seconds of a collective for every size (bytes of the full tensor) and repetition; all ranks get all of them."""
    times = []
    for size in sizes:
        x = _input(comm, op, size)
        runs = []
        for _ in range(repeats + 1):
            comm.barrier()
            begin = now(comm.device)
            getattr(comm, op)(x)
            runs.append(now(comm.device) - begin)
        slowest = comm.all_reduce(torch.tensor(runs[1:], dtype=torch.float64), op="max")
        times.append(slowest.tolist())
    return times


def measured_link(pool, op: str = "send", sizes=SIZES, repeats: int = REPEATS) -> tuple[Link, list[list[float]]]:
    """The link fitted to an operation between the ranks of a pool, and the times that it was fitted to."""
    if op == "send":
        times = pool.run(message_times, sizes, repeats)[0]
    else:
        times = pool.run(collective_times, op, sizes, repeats)[0]
    ranks = 2 if op == "send" else pool.size
    return Link.fit(op, ranks, sizes, [min(runs) for runs in times]), times


def _there_and_back(comm, ball) -> float:
    begin = now(comm.device)
    if comm.rank == 0:
        comm.send(ball, to=1)
        comm.recv(ball, source=1)
    elif comm.rank == 1:
        comm.recv(ball, source=0)
        comm.send(ball, to=0)
    return now(comm.device) - begin


def _input(comm, op: str, size: int):
    """The input tensor of a rank, in float32, of which the full tensor has `size` bytes."""
    elements = size // 4
    return torch.zeros(elements // comm.size if op == "all_gather" else elements, device=comm.device)
