"""The arena: the device memory for saved activations, counted byte by byte, with a real limit.

A forward saves tensors for its backward. A *storage* is the memory of a tensor: it counts once, however many tensors
look at it and however many actions keep it. On a CPU, where nothing else would object, a storage too many is an error.
On a GPU it is one before the allocator is asked.

Relatives: `runtime.copies`, which empty and fill it; `modes.out_of_core`, whose forwards keep their tensors here;
`core.when.room`, which expresses free memory as dependencies. Source: Wahib et al. 2020, arXiv:2008.11421 (KARMA).
"""

import math
import threading
import time

import torch


class Arena:
    """Memory for saved activations.

    capacity  in bytes;  rank  whose device it is;  doing  what its rank does at the moment, for the error
    held, peak  bytes held now, and at most

    raises  MemoryError, from `take`, in one sentence

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
        self._turn, self._holders = threading.Lock(), {}  # {identity of a storage: how many hold it}
        self.held = self.peak = 0
        self.history: list[tuple[int, int]] = []

    def told(self) -> torch.Tensor:
        """The history, (changes, 2): time in ns and bytes held from then on; a new one begins."""
        told, self.history = torch.tensor(self.history, dtype=torch.int64).view(-1, 2), []
        return told

    def take(self, storage: torch.UntypedStorage, doing: str = ""):
        """Hold a storage; `doing`: the action that needs it, where that is not what the rank does."""
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
        """Let a storage go; it is gone when nothing refers to it."""
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
    """The storage of a saved tensor: on the device, or away on the host.

    size  in bytes;  flat  all of it as one row of numbers, on the device; None while it is away, in `host`
    """

    def __init__(self, arena: Arena, x: torch.Tensor):
        storage = x.untyped_storage()
        arena.take(storage)
        self.arena, self.size, self.host = arena, storage.nbytes(), None
        self.flat = x.detach().as_strided((self.size // x.itemsize,), (1,), 0)

    def end(self):
        """Free it: it is not needed on the device any more."""
        if self.flat is not None:
            self.arena.give(self.flat.untyped_storage())
            self.flat = None


class Look:
    """How a tensor looks at a storage that is kept, wherever that is at the moment."""

    def __init__(self, kept: Kept, x: torch.Tensor):
        self.kept, self.dtype, self.form = kept, x.dtype, (x.shape, x.stride(), x.storage_offset())

    def tensor(self) -> torch.Tensor:
        """The tensor; its storage must be on the device."""
        if self.kept.flat is None:
            raise RuntimeError("the activations of this backward are not on the device: let its SWAP_IN end first")
        return self.kept.flat.view(self.dtype).as_strided(*self.form)
