"""Connections: NCCL connects ranks at their first operation together, and keeps the host of each until all have come.

A program that posts ahead could stand still there: two ranks that each post a receive would keep each other from the
sends. So the first operation of those who have not met is posted by a thread, behind what the device was told to do
before it, and the rank goes on. Nothing is connected before a tensor on the device needs it, nor anybody who does not
talk. The thread waits until all the others have come, without NCCL: from then on it takes as long as NCCL does, and no
rank is late.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

ASIDE = -2  # the priority of streams on which such an operation is posted: those of marks wait for messages
LOOK_SECONDS = 0.002  # between two looks whether the others have come
SHARE = 0.05  # of the time that a rank has looked for others already: it may look so much later


class Late:
    """torch's hold on an operation that a thread will post, or has posted."""

    def __init__(self):
        self.posted, self._notes, self._turn = Future(), [], threading.Lock()

    def when_posted(self, note: Callable):
        """Call note(torch's hold on it): now, or from the thread that posts it, before anybody sees that it did."""
        with self._turn:
            if not self.posted.done():
                self._notes.append(note)
                return
        note(self.posted.result())

    def is_here(self, work):
        """Say that it is posted."""
        with self._turn:
            for note in self._notes:
                note(work)
            self.posted.set_result(work)

    def wait(self):
        """Make the current stream wait; the host waits until it is posted."""
        self.posted.result().wait()

    def is_completed(self) -> bool:
        """Whether it is over, or could not be posted: then `wait` raises why."""
        return self.posted.done() and (bool(self.posted.exception()) or self.posted.result().is_completed())


def when_posted(work, note: Callable):
    """Call note(torch's hold on an operation) when torch has it."""
    work.when_posted(note) if isinstance(work, Late) else note(work)


def until_posted(work):
    """Keep the host until torch has an operation, or cannot have it."""
    if isinstance(work, Late):
        work.posted.exception()


class Connections:
    """Who is connected with whom, on the device of this rank; one record for all doors of a rank."""

    def __init__(self, rank: int):
        self.rank, self.made, self._turn = rank, set(), threading.Lock()
        self._waiting: dict[tuple, deque] = {}  # by those who connect: what their thread will post, in order

    def post(self, ledger, group, ranks: tuple[int, ...], device: torch.device, call: Callable):
        """What `call` returns, which posts an operation of these ranks in a group of torch's; of ranks that have not
        been connected there, a `Late`."""
        key = group.group_name, ranks
        with self._turn:
            if key not in self.made:
                late, now = Late(), torch.accelerator.current_stream(device).record_event()
                first = key not in self._waiting
                self._waiting.setdefault(key, deque()).append((late, now, call))
                if first:
                    threading.Thread(target=self._connect, args=(ledger, key, device), daemon=True).start()
                return late
        return call()

    def _connect(self, ledger, key, device):
        """In a thread: wait for the others, then post what is waiting, and what comes meanwhile."""
        torch.accelerator.set_device_index(device.index)  # every thread begins at the first one
        self._meet(*key)
        with ledger.preparing():  # the first one connects
            self._post_next(key, device)
        while self._post_next(key, device):
            pass

    def _meet(self, name: str, ranks):
        """Wait until all these ranks have come here."""
        store, begin = dist.PrefixStore(f"connections of {name}", _get_default_store()), time.monotonic()
        place = lambda rank: f"{rank} of {ranks}"
        store.set(place(self.rank), "")
        while not store.check([place(rank) for rank in ranks]):
            time.sleep(LOOK_SECONDS + SHARE * (time.monotonic() - begin))

    def _post_next(self, key, device) -> bool:
        """Post one operation; False when there is none, and they are connected."""
        with self._turn:
            if not self._waiting[key]:
                self.made.add(key)
                del self._waiting[key]
                return False
            late, before, call = self._waiting[key].popleft()
        try:
            with torch.Stream(device=device, priority=ASIDE) as stream:
                stream.wait_event(before)
                late.is_here(call())
        except Exception as error:  # it is raised where the operation is waited for
            late.posted.set_exception(error)
        return True
