"""The offset of a rank's clock to that of rank 0, to put their times on one axis.

`time.perf_counter_ns` counts from the start of a machine, and is one clock for all its processes. Two machines differ
by days. So a rank on another machine asks rank 0 for the time, many times. The answer was given somewhere between
question and reply; assuming the middle is wrong by at most half of that trip. The shortest trip is used. NTP sets
clocks in the same way (RFC 5905, section 8).
"""

import time

import torch

from hybridlab.world.devices.surroundings import machine

ASKED = 50  # number of trips: if programs share cores, few of them are short


def offset(comm) -> int:
    """Nanoseconds to add to a time on this rank's clock to convert it to rank 0's clock. All ranks call this.

    0 for ranks on the machine of rank 0, which send nothing. The error is at most half of a message's round trip.
    Clocks also drift apart, by some µs per second if nothing corrects them: measure the offset close to the timed work.
    """
    machines = comm.all_gather(torch.tensor([machine()])).tolist()
    mine = 0
    for rank in (rank for rank, its in enumerate(machines) if its != machines[0]):
        if comm.rank == rank:
            mine = min(_ask(comm) for _ in range(ASKED))[1]
        elif comm.rank == 0:
            for _ in range(ASKED):
                _answer(comm, rank)
    return mine


def _ask(comm) -> tuple[int, int]:
    """(length of the trip, offset that follows from it), in ns."""
    came_and_left = torch.zeros(2, dtype=torch.int64)
    begin = time.perf_counter_ns()
    comm.send(came_and_left, to=0)
    comm.recv(came_and_left, source=0)
    end = time.perf_counter_ns()
    came, left = came_and_left.tolist()
    return (end - begin) - (left - came), (came - begin + left - end) // 2


def _answer(comm, rank: int):
    question = torch.zeros(2, dtype=torch.int64)
    comm.recv(question, source=rank)
    came = time.perf_counter_ns()
    comm.send(torch.tensor([came, time.perf_counter_ns()]), to=rank)
