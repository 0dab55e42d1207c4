"""A message in transit, for which the host or the device waits; and the synchronization on the host that gloo needs.

gloo's operations are over when the host has waited for them. NCCL's are work for the device: `wait` makes its stream
wait, and the host continues; if the host itself must wait, it calls `over`.

gloo's send and receive access host memory without checking the device of a tensor: for a tensor on a GPU they would
give its address to a socket. So such a tensor is copied to a twin in pinned host memory, and gloo never sees it.
(gloo's collectives make this copy themselves; NCCL needs none.)
"""

import queue
import threading
import time
from concurrent.futures import Future

import torch

from hybridlab.world.talk.connections import until_posted, when_posted

LOOK_SECONDS = 20e-6  # between two checks of a host that waits for the device


class Message:
    """A tensor in transit; do not touch the tensor until `wait` has returned.

    deliver     called once it is over; `wait` returns its result
    work        torch's handle of the operation; None if there is no other rank
    travelling  the tensors that torch reads or writes, kept alive until it is over
    """

    def __init__(self, deliver, work=None, travelling=None, ledger=None, row=None):
        self._deliver, self._work, self._travelling = deliver, work, travelling
        self._ledger, self._row, self._run = ledger, row, ledger and ledger.end_ns
        self._watched: Future | None = None

    def __del__(self):
        if self._forgotten():
            self._ledger.dropped(self._row, self._run)

    def _forgotten(self) -> bool:
        """Whether no code has waited for the message, and no thread watches it."""
        return bool(self._work) and not self._watched

    def wait(self):
        """Wait until it has left or arrived, and return its tensor; a second wait returns at once."""
        if self._work:
            self._ledger.waiting(self._row)
            self._watched.result() if self._watched else self._work.wait()
            self._ledger.end(self._row)
            self._work = None
        return self._delivered()

    def then(self, change) -> "Message":
        """The same message, with a `wait` that returns change(its tensor)."""
        deliver = self._deliver
        self._deliver = lambda: change(deliver())
        return self

    def over(self):
        """Like `wait`, but the host waits in any case."""
        return self.wait()

    def done(self) -> bool:
        """Whether `over` would return at once; this takes no time.

        Some of gloo's operations (sends, receives, reduce-scatters) report "not completed" even long after their end,
        until some thread has waited (torch 2.13): so a thread waits.
        """
        return not self._work or self._work.is_completed() or self._watch().done()

    def when_over(self, note, clock=None):
        """Call note(mark) when it is over: from a thread that waits for it, with the host's time in ns; at once if
        nothing is sent, or if the device's `clock` can mark a future event."""
        if not self._work:
            note(clock.mark() if clock else time.perf_counter_ns())
        else:
            self._watch().add_done_callback(lambda _: note(time.perf_counter_ns()))

    def _watch(self) -> Future:
        if not self._watched:
            self._watched = Future()
            WATCHERS.put(lambda: _settle(self._watched, self._end))
        return self._watched

    def _end(self):
        self._work.wait()

    def _delivered(self):
        if self._deliver:
            self._result = self._deliver()
            self._deliver = self._travelling = None
        return self._result


class StreamMessage(Message):
    """A message of a backend that works on the device's streams, as NCCL does.

    `wait` makes the current stream wait, but not the host: later work on that stream finds the tensor. The ledger's row
    ends when the host sees that it is over.
    """

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.waited, self._turn = False, threading.Lock()  # the thread that posts the next message may end this one

    def _forgotten(self):
        return super()._forgotten() and not self.waited

    def wait(self):
        if not self.waited:
            self._work.wait()
            self.waited = True
        return self._delivered()

    def over(self):
        with self._turn:
            if self._work:
                self._ledger.waiting(self._row)
                self._end()
            result = self.wait()
            if self._work:
                self._ledger.end(self._row)
                self._work = None
            return result

    def done(self):
        work = self._work
        return not work or work.is_completed()

    def when_over(self, note, clock=None):
        if self._work and clock and clock.sees:
            when_posted(self._work, lambda work: note(clock.aside(work.wait)))
        else:
            super().when_over(note, clock)

    def _end(self):
        looked_after(self._work)


def looked_after(work):
    """Block the host until a device's operation is over; no stream waits for it."""
    until_posted(work)
    while not work.is_completed():
        time.sleep(LOOK_SECONDS)


class _Watchers:
    """Threads that wait for something; an idle thread is reused."""

    def __init__(self):
        self._tasks, self._idle, self._turn = queue.SimpleQueue(), 0, threading.Lock()

    def put(self, task):
        """Run `task` in a thread."""
        with self._turn:
            start, self._idle = not self._idle, max(0, self._idle - 1)
        if start:
            threading.Thread(target=self._serve, daemon=True).start()
        self._tasks.put(task)

    def _serve(self):
        while True:
            self._tasks.get()()
            with self._turn:
                self._idle += 1


WATCHERS = _Watchers()


def _settle(future: Future, wait):
    try:
        future.set_result(wait())
    except Exception as error:  # the error is raised again where the message is waited for
        future.set_exception(error)


def outgoing(x, via_host: bool):
    """x in a form that the network can read: outside autograd, contiguous, and if necessary on the host."""
    x = x.detach()
    return twin(x).copy_(x) if via_host else x.contiguous()


def incoming(x, via_host: bool):
    """A buffer into which x is received: x's own memory, if the network can write to it."""
    return twin(x) if via_host else x.detach().contiguous()


def settle(arrived, x):
    """Copy the arrived tensor to x, unless it is there already, and return x."""
    if arrived.untyped_storage()._cdata != x.untyped_storage()._cdata:
        x.detach().copy_(arrived)
    return x


def twin(x, dtype: torch.dtype | None = None):
    """A buffer for x on the host; pinned if x is on a GPU: then the GPU copies, several times as fast."""
    return torch.empty(x.shape, dtype=dtype or x.dtype, pin_memory=x.is_cuda)
