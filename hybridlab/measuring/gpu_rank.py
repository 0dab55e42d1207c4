"""A rank of the GPU suite: its device, its connection to the others, and the report of its results.

Every result is written to a file immediately, so that a later crash loses nothing.
"""

import json
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from hybridlab.measuring.gpu_suite import TIMEOUT
from hybridlab.measuring.row import row
from hybridlab.measuring.timed import finish, now
from hybridlab.world.devices.meet import meet, take_device
from hybridlab.world.devices.placement import Placement


class Rank:
    """One rank of a question: its number, the number of ranks, its device, and the file for its results."""

    def __init__(self, rank: int, placed: Placement, folder: str):
        self.rank, self.count, self.placed, self.folder = rank, len(placed.devices), placed, folder
        self.device = torch.device(placed.devices[rank])
        self._answers = open(os.path.join(folder, f"answers-{rank}"), "a", buffering=1)

    def meet(self):
        """Wait for the others, and record how long that took."""
        begin = time.perf_counter()
        self.store = dist.FileStore(os.path.join(self.folder, "store"), self.count)
        take_device(self.placed, self.rank)
        meet(self.placed, timedelta(seconds=TIMEOUT), store=self.store, rank=self.rank, world_size=self.count)
        self.tell("met", unit="s", value=round(time.perf_counter() - begin, 3))

    def tell(self, what: str, **more):
        """Record one answer; rank 0 does so for all ranks unless `rank` is given."""
        if self.rank == more.get("rank", 0):
            self._answers.write(json.dumps({"what": what, **more}) + "\n")

    def fail(self, error: BaseException):
        """Record why this rank cannot continue."""
        self._answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")

    def timed(self, what: str, run, repeats: int = 10, **more):
        """Record the seconds of every repetition, after two that do not count."""
        seconds = []
        for _ in range(repeats + 2):
            begin = now(self.device)
            run()
            seconds.append(round(now(self.device) - begin, 7))
        if self.rank == 0:
            one = row(what, "s", seconds[2:], device=self.device.type, **more)
            self.tell(one.pop("name"), **one)

    def right(self, what: str, got, expected):
        """Record whether a result is exactly the expected one."""
        self.tell(what, right=bool(torch.equal(got.double().cpu(), expected.double().cpu())))

    def wait(self):
        """Wait until the GPU has finished its work."""
        finish(self.device)

    def numbers(self, elements: int):
        """A tensor that holds this rank's number plus one everywhere."""
        return torch.full((elements,), self.rank + 1.0, device=self.device)
