"""Live bytes of tensors, operation by operation and kind by kind.

A *storage* is the memory of a tensor; views share it, and it counts once. It is noticed when an operation returns it,
and it is gone when nothing refers to it any more. The internal memory of a kernel is not seen. Single numbers do not
count.

Relatives: `measuring.saved`, which counts the tensors that autograd saves; `counted`, which assigns the kinds.
"""

import weakref
from typing import NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

WORKING = "working"  # the kind of storages without a given kind


class Life(NamedTuple):
    """The time for which a storage had one kind: from one operation to another, both numbered in order."""

    kind: str
    size: int
    begin: int
    end: int


class Held:
    """A storage: its kind, the operation since which it has that kind, its bytes, and whether it still exists."""

    __slots__ = "kind", "size", "begin", "there", "watch"

    def __init__(self, size, begin):
        self.kind, self.size, self.begin, self.there = WORKING, size, begin, True


class Alive(TorchDispatchMode):
    """A count that is updated while its `with` block runs.

    device      kind of device whose memory counts;  now, peak  bytes: currently, and the maximum so far
    operations  number of operations done so far
    held        {identity of a storage: its record}

    >>> with Alive("cpu") as alive:
    ...     x = torch.ones(1000)
    ...     y = x.view(10, 100) + 1
    ...     del x
    ...     z = y * 2
    >>> alive.peak, alive.now
    (8000, 8000)
    """

    def __init__(self, device: str = "meta"):
        super().__init__()
        self.device, self.now, self.peak, self.operations = device, 0, 0, 0
        self.held: dict[int, Held] = {}
        self.fresh: list[Held] = []
        self.lives: list[Life] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **kwargs) if kwargs else function(*args)
        self.operations += 1
        if isinstance(made, torch.Tensor):
            self._see(made)
        elif isinstance(made, tuple | list):
            for one in made:
                if isinstance(one, torch.Tensor):
                    self._see(one)
        return made

    def __enter__(self):
        self._resize = torch.UntypedStorage.resize_
        torch.UntypedStorage.resize_ = lambda storage, size: self._resized(storage, size)
        return super().__enter__()

    def __exit__(self, *about):
        torch.UntypedStorage.resize_ = self._resize
        return super().__exit__(*about)

    def _see(self, x):
        if x.device.type != self.device or not x.dim():
            return
        storage = x.untyped_storage()
        key = storage._cdata
        if key not in self.held:
            self.held[key] = one = Held(storage.nbytes(), self.operations)
            one.watch = weakref.ref(storage, lambda _, key=key: self._gone(key))
            self.fresh.append(one)
            self._grown(one.size)

    def _grown(self, size):
        self.now += size
        self.peak = max(self.peak, self.now)

    def _gone(self, key):
        one = self.held.pop(key)
        one.there, one.watch = False, None
        self.now -= one.size
        self._note(one)

    def _note(self, one: Held):
        """Record its kind until now."""
        self.lives.append(Life(one.kind, one.size, one.begin, self.operations))

    def _resized(self, storage, size):
        """Memory of a tensor freed or allocated again, while the tensor itself stays."""
        self._resize(storage, size)
        if one := self.held.get(storage._cdata):
            self._note(one)
            self.now -= one.size
            self.operations += 1
            one.size, one.begin = size, self.operations
            self._grown(size)

    def tick(self) -> int:
        """The index of a moment between two operations, after the memory that the last one released is free.

        >>> alive = Alive("cpu")
        >>> alive.tick(), alive.tick()
        (1, 2)
        """
        self.operations += 1
        return self.operations

    def forget(self, storages):
        """Ignore some storages, as if they had never been created: examples, which do not exist in a real run."""
        for one in storages:
            self.now -= one.size
            one.size = 0

    # kinds

    def of(self, tensors) -> list[Held]:
        """The records of the storages of some tensors, without those of another device."""
        found = (self.held.get(x.untyped_storage()._cdata) for x in tensors)
        return [one for one in found if one]

    def came(self) -> list[Held]:
        """The storages that were created since the last call and still exist."""
        fresh, self.fresh = self.fresh, []
        return [one for one in fresh if one.there]

    def name(self, kind: str, storages, from_now: bool = False):
        """Set the kind of some storages: since their creation, or from now on. Freed storages keep their kind."""
        for one in storages:
            if one.there and one.kind != kind:
                if from_now:
                    self._note(one)
                    one.begin = self.operations + 1
                one.kind = kind

    def history(self, kinds: tuple[str, ...]) -> np.ndarray:
        """history[operation, kind]: bytes in use right after each operation."""
        last = self.operations + 1
        lives = self.lives + [Life(one.kind, one.size, one.begin, last - 1) for one in [*self.held.values()]]
        changes = np.zeros((last + 1, len(kinds)), dtype=np.int64)
        number = {kind: place for place, kind in enumerate(kinds)}
        kind = np.array([number[one.kind] for one in lives], dtype=np.int64)
        size, begin, end = (np.array([one[field] for one in lives], dtype=np.int64) for field in (1, 2, 3))
        np.add.at(changes, (begin, kind), size)
        np.add.at(changes, (end + 1, kind), -size)
        return np.cumsum(changes, axis=0)[:last]
