"""A message: a tensor on its way, and the stop on the host that gloo makes necessary.

gloo's send and receive read and write host memory and do not look where a tensor lives: given one on a GPU, they hand
its address to a socket. So such a tensor goes by way of a twin in pinned host memory, and never reaches gloo itself.
(gloo's collectives make that detour themselves; NCCL needs none.)
"""

import threading
import time
from concurrent.futures import Future

import torch


class Message:
    """A tensor on its way; leave the tensor alone until `wait` has returned.

    deliver     called once it is over; what it returns, `wait` returns
    work        torch's hold on the operation; None where there is nobody to exchange anything with
    travelling  what torch reads or writes, kept alive until it is over
    polls       whether the work can be asked. Some of gloo's (sends, receives, reduce-scatters) say "not completed"
                however long ago they were over, at least until somebody has waited (torch 2.13), so a thread waits
    """

    def __init__(self, deliver, work=None, travelling=None, ledger=None, row=None, polls=False):
        self._deliver, self._work, self._travelling = deliver, work, travelling
        self._ledger, self._row, self._polls = ledger, row, polls
        self._watched: Future | None = None

    def wait(self):
        """Wait until it has left or arrived, and return its tensor; a second wait returns at once."""
        if self._work:
            self._ledger.waiting(self._row)
            self._watched.result() if self._watched else self._work.wait()
            self._ledger.end(self._row)
        if self._deliver:
            self._result = self._deliver()
            self._deliver = self._work = self._travelling = None
        return self._result

    def done(self) -> bool:
        """Whether `wait` would return at once; asking takes no time."""
        if not self._work or self._work.is_completed():
            return True
        return False if self._polls else self._watch().done()

    def when_over(self, note):
        """Call note(time in ns) when it is over, from a thread that waits for it; at once where nothing travels."""
        if not self._work:
            note(time.perf_counter_ns())
        elif not self._polls:
            self._watch().add_done_callback(lambda _: note(time.perf_counter_ns()))

    def _watch(self) -> Future:
        if not self._watched:
            self._watched = Future()
            threading.Thread(target=_settle, args=(self._watched, self._work.wait), daemon=True).start()
        return self._watched


def _settle(future: Future, wait):
    try:
        future.set_result(wait())
    except Exception as error:  # it is raised again where the message is waited for
        future.set_exception(error)


def outgoing(x, via_host: bool):
    """x as the network can read it: outside autograd, in one piece, on the host where it must be."""
    x = x.detach()
    return _twin(x).copy_(x) if via_host else x.contiguous()


def incoming(x, via_host: bool):
    """Room for what will become x: x's own memory where the network can write there."""
    return _twin(x) if via_host else x.detach().contiguous()


def settle(arrived, x):
    """Bring what arrived to x, unless it is there; returns x."""
    if arrived.data_ptr() != x.data_ptr():
        x.detach().copy_(arrived)
    return x


def _twin(x):
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=x.is_cuda)
