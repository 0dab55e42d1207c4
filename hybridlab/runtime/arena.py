"""The arena: the device memory for saved activations, counted byte by byte, with a real limit.

A forward saves tensors for its backward. A *storage* is the memory of a tensor. It counts once, even if several tensors
view it and several actions keep it. On a CPU, which has memory to spare, exceeding the capacity raises an error. On a
GPU the error comes before the allocator is asked.

Relatives: `runtime.copies`, which empty and fill it; `modes.out_of_core`, whose forwards keep their tensors here;
`core.when.room`, which expresses free memory as dependencies. Source: Wahib et al. 2020, arXiv:2008.11421 (KARMA).
"""

import math
import threading
import time

import torch


class Arena:
    """Memory for saved activations.

    capacity  its size in bytes;  rank  the rank that owns the device;  doing  the rank's current action, for the error
    held, peak  bytes held now, and the maximum so far

    raises  MemoryError, from `take`, with one sentence

    >>> arena = Arena(capacity=100)
    >>> x, y = torch.ones(20), torch.ones(10)
    >>> arena.take(x.untyped_storage())
    >>> arena.take(x[3:].untyped_storage())  # the same memory
    >>> arena.held
    80
    >>> arena.take(y.untyped_storage())
    Traceback (most recent call last):
    MemoryError: rank 0 has no room: it needs 40 bytes more, 80 are held, and the capacity is 100
    >>> arena.give(x.untyped_storage())
    >>> arena.held, arena.give(x.untyped_storage()), arena.held, arena.peak
    (80, None, 0, 80)
    """

    def __init__(self, capacity: float = math.inf, rank: int = 0):
        self.capacity, self.rank, self.doing = capacity, rank, ""
        self._turn, self._holders = threading.Lock(), {}  # {identity of a storage: its number of holders}
        self.held = self.peak = 0
        self.history: list[tuple[int, int]] = []

    def told(self) -> torch.Tensor:
        """The history, (changes, 2): time in ns, and bytes held since then; a new history begins."""
        told, self.history = torch.tensor(self.history, dtype=torch.int64).view(-1, 2), []
        return told

    def take(self, storage: torch.UntypedStorage, doing: str = ""):
        """Hold a storage; `doing`: the action that needs it, if it is not the rank's current action."""
        with self._turn:
            size, holders = storage.nbytes(), self._holders.get(storage._cdata, 0)
            if not holders and self.held + size > self.capacity:
                who = f"rank {self.rank} has no room" + (f" for {doing or self.doing}" if doing or self.doing else "")
                raise MemoryError(
                    f"{who}: it needs {size:,} bytes more, {self.held:,} are held, and the capacity is "
                    f"{self.capacity:,.0f}"
                )
            self._holders[storage._cdata] = holders + 1
            if not holders:
                self._changed(size)

    def give(self, storage: torch.UntypedStorage):
        """Release a storage; its memory is free when nothing refers to it."""
        with self._turn:
            self._holders[storage._cdata] -= 1
            if not self._holders[storage._cdata]:
                del self._holders[storage._cdata]
                self._changed(-storage.nbytes())

    def _changed(self, size):
        self.held += size
        self.peak = max(self.peak, self.held)
        self.history.append((time.perf_counter_ns(), self.held))


class Kept:
    """The storage of a saved tensor: on the device, or moved to the host.

    size  its bytes;  flat  its bytes as one row of numbers, on the device; None while they are in `host`
    """

    def __init__(self, arena: Arena, x: torch.Tensor):
        storage = x.untyped_storage()
        arena.take(storage)
        self.arena, self.size, self.host = arena, storage.nbytes(), None
        self.flat = x.detach().as_strided((self.size // x.itemsize,), (1,), 0)

    def end(self):
        """Free the storage: the device no longer needs it."""
        if self.flat is not None:
            self.arena.give(self.flat.untyped_storage())
            self.flat = None


class Look:
    """A tensor's view of a saved storage, whether that is on the device or on the host."""

    def __init__(self, kept: Kept, x: torch.Tensor):
        self.kept, self.dtype, self.form = kept, x.dtype, (x.shape, x.stride(), x.storage_offset())

    def tensor(self) -> torch.Tensor:
        """The tensor; its storage must be on the device."""
        if self.kept.flat is None:
            raise RuntimeError("the activations of this backward are not on the device: let its SWAP_IN end first")
        return self.kept.flat.view(self.dtype).as_strided(*self.form)
