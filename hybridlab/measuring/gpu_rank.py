"""A rank of the GPU suite: its device, its connection to the others, and the report of its results.

What it tells is written down at once, so that a crash afterwards loses nothing.
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
    """One rank of a question: its number, how many there are, its device, and where it writes what it finds."""

    def __init__(self, rank: int, placed: Placement, folder: str):
        self.rank, self.count, self.placed, self.folder = rank, len(placed.devices), placed, folder
        self.device = torch.device(placed.devices[rank])
        self._answers = open(os.path.join(folder, f"answers-{rank}"), "a", buffering=1)

    def meet(self):
        """Wait for the others, and tell how long that took."""
        begin = time.perf_counter()
        self.store = dist.FileStore(os.path.join(self.folder, "store"), self.count)
        take_device(self.placed, self.rank)
        meet(self.placed, timedelta(seconds=TIMEOUT), store=self.store, rank=self.rank, world_size=self.count)
        self.tell("met", unit="s", value=round(time.perf_counter() - begin, 3))

    def tell(self, what: str, **more):
        """Write one answer down; rank 0 speaks for all unless `rank` is given."""
        if self.rank == more.get("rank", 0):
            self._answers.write(json.dumps({"what": what, **more}) + "\n")

    def fail(self, error: BaseException):
        """Write down why this rank cannot go on."""
        self._answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")

    def timed(self, what: str, run, repeats: int = 10, **more):
        """Tell the seconds of every repetition, after two that are not counted."""
        seconds = []
        for _ in range(repeats + 2):
            begin = now(self.device)
            run()
            seconds.append(round(now(self.device) - begin, 7))
        if self.rank == 0:
            one = row(what, "s", seconds[2:], device=self.device.type, **more)
            self.tell(one.pop("name"), **one)

    def right(self, what: str, got, expected):
        """Tell whether a result is exactly what it must be."""
        self.tell(what, right=bool(torch.equal(got.double().cpu(), expected.double().cpu())))

    def wait(self):
        """Until the GPU has done all that it was given."""
        finish(self.device)

    def numbers(self, elements: int):
        """A tensor that holds this rank's number plus one everywhere."""
        return torch.full((elements,), self.rank + 1.0, device=self.device)
