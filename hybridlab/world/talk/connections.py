"""Connections: NCCL connects ranks at their first common operation, and blocks the host of each until all have come.

A program that posts ahead could then deadlock: two ranks that each post a receive would keep each other from their
sends. So a thread posts the first operation of ranks that have not met, after the device's earlier work, and the rank
continues. A connection is made only when a tensor on the device needs it, and only between ranks that communicate. The
thread waits without NCCL until all the others have come. From then on it takes as long as NCCL does, and no rank is
late.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

ASIDE = -2  # priority of the streams for such operations; streams of marks, which wait for messages, have another
LOOK_SECONDS = 0.002  # between two checks whether the others have come
SHARE = 0.05  # fraction of the time already waited: the next check may be this much later


class Late:
    """torch's handle of an operation that a thread will post, or has posted."""

    def __init__(self):
        self.posted, self._notes, self._turn = Future(), [], threading.Lock()

    def when_posted(self, note: Callable):
        """Call note(torch's handle of it): now, or from the posting thread before others see that it is posted."""
        with self._turn:
            if not self.posted.done():
                self._notes.append(note)
                return
        note(self.posted.result())

    def is_here(self, work):
        """Report that it is posted."""
        with self._turn:
            for note in self._notes:
                note(work)
            self.posted.set_result(work)

    def wait(self):
        """Make the current stream wait; the host waits until it is posted."""
        self.posted.result().wait()

    def is_completed(self) -> bool:
        """Whether it is over, or could not be posted: then `wait` raises the error."""
        return self.posted.done() and (bool(self.posted.exception()) or self.posted.result().is_completed())


def when_posted(work, note: Callable):
    """Call note(torch's handle of an operation) when torch has it."""
    work.when_posted(note) if isinstance(work, Late) else note(work)


def until_posted(work):
    """Block the host until torch has an operation, or cannot have it."""
    if isinstance(work, Late):
        work.posted.exception()


class Connections:
    """The connected ranks on the device of this rank; one record for all communicators of a rank."""

    def __init__(self, rank: int):
        self.rank, self.made, self._turn = rank, set(), threading.Lock()
        self._waiting: dict[tuple, deque] = {}  # by group of ranks: the operations that their thread will post

    def post(self, ledger, group, ranks: tuple[int, ...], device: torch.device, call: Callable):
        """The result of `call`, which posts an operation of these ranks in one of torch's groups; for ranks that have
        not been connected there, a `Late`."""
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
        """In a thread: wait for the others, then post the waiting operations, and those that come meanwhile."""
        torch.accelerator.set_device_index(device.index)  # every thread starts with device 0
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
        """Post one operation; False if there is none, and the ranks are connected."""
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
        except Exception as error:  # the error is raised where the operation is waited for
            late.posted.set_exception(error)
        return True
