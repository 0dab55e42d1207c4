"""A source of batches: the batch of a step, and its inputs and targets, for every form of a batch.

Relatives: `theirs` makes one from each kind of data in PyTorch; `models.model` reads them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from zlib import crc32

import numpy as np
import torch

from hybridlab.training.models.draws import seeded
from hybridlab.training.models.trees import flat, mapped

UNSEEN = 1 << 30  # these steps are never used in training: for evaluation, a function of the step is called with them
LABELS = ("labels", "label", "targets", "target")  # keys of a dict batch that are not inputs


def batch_of(data, step: int, rows: int, seed: int = 0, unseen: bool = False) -> tuple:
    """The batch of a step from `data`: a function of step and rows, or the result of `batches_of`.

    unseen  a batch for evaluation, never used in training

    The generators of torch, numpy and Python begin with the seed and the step, so the numbers that the data draw, for
    example for augmentation, are the same on every rank and after a resume.

    >>> batch_of(lambda step, rows: (step, rows), 3, 8)
    (3, 8)
    """
    with seeded(crc32(f"{seed} {step} {unseen}".encode()), devices=False):
        if not hasattr(data, "batch"):
            both = data(step + UNSEEN * unseen, rows)
            return parted(both) if isinstance(both, Mapping) else both
        return (data.unseen if unseen else data).batch(step, rows, seed)


class Ordered:
    """Batches whose inputs and targets have their names in one order, that of the first batch: a layer gets tensors in
    order, and rows that were read from a file may list them in any."""

    def __init__(self):
        self.names: tuple | None = None

    def read(self, data, step: int, rows: int, seed: int, unseen: bool) -> tuple:
        """The same as `batch_of`, with names in one order.

        raises  ValueError for other names

        >>> data = lambda step, rows: ({"a": 1, "b": 2} if step == 0 else {"b": 4, "a": 3}, 0)
        >>> ordered = Ordered()
        >>> [ordered.read(data, step, 1, 0, False) for step in (1, 0)]
        [({'a': 3, 'b': 4}, 0), ({'a': 1, 'b': 2}, 0)]
        """
        both = batch_of(data, step, rows, seed, unseen)
        if self.names is None:
            first = batch_of(data, 0, rows, seed) if step or unseen else both
            self.names = tuple(map(names_of, first)) if isinstance(first, tuple | list) else ()
        if not isinstance(both, tuple | list) or len(both) != len(self.names):
            return both
        return tuple(self._sorted(step, one, names) for one, names in zip(both, self.names))

    def _sorted(self, step, one, names):
        if (now := names_of(one)) == names:
            return one
        if now is None or names is None or set(now) != set(names):
            told = [", ".join(map(str, some)) if some else "no names" for some in (now, names)]
            raise ValueError(
                f"data({step}, rows) gave {told[0]}, but {told[1]} in step 0: give every batch the same names"
            )
        return {name: one[name] for name in names}


def names_of(x) -> tuple | None:
    """The names of inputs or targets; None if they have none."""
    return tuple(x) if isinstance(x, Mapping) else None


class Batches(ABC):
    """A source of batches; a subclass reads the batch of a step in its method `read`.

    rows  of every batch; None: the requested number
    """

    rows: int | None = None

    @abstractmethod
    def read(self, step: int, rows: int):
        """The raw batch of a step: of `rows` rows, or of the source's own number of rows if it has one."""

    def batch(self, step: int, rows: int, seed: int = 0) -> tuple:
        """(inputs, targets) of a step: the first `rows` rows, if the batch has more, as in an examination."""
        if self.rows is not None and rows > self.rows:
            raise ValueError(f"data has batches of {self.rows} rows, but a step needs {rows}: give batch={self.rows}")
        return tuple(_chosen(slice(rows), _in_numbers(one)) for one in parted(self.read(step, rows)))

    @property
    def unseen(self):
        raise ValueError(
            "data has no rows for evaluation: give an object with batch(step, rows, seed) and an attribute `unseen`, "
            "which is another such object"
        )


def parted(batch) -> tuple:
    """(inputs, targets) of a batch: a pair, or a dict with labels, whose inputs keep their names.

    raises  ValueError if it is unclear which entries are the targets

    >>> parted({"tokens": [[7, 4]], "mask": [[1, 1]], "labels": [5]})
    ({'tokens': [[7, 4]], 'mask': [[1, 1]]}, [5])
    """
    if isinstance(batch, Mapping):
        label = next((name for name in LABELS if name in batch), None)
        if label is None or len(batch) < 2:
            raise ValueError(
                f"a batch of data has the keys {', '.join(map(str, batch)) or '(none)'}: give inputs, and targets "
                f"under one of the keys {', '.join(LABELS)}"
            )
        return {name: x for name, x in batch.items() if name != label}, batch[label]
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        what = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
        raise ValueError(f"a batch of data is {what}: give (inputs, targets), or a dict with the key labels")
    return tuple(batch)


def in_order(x):
    """The argument of a first layer or a loss: a tensor; several tensors, with or without names, as a tuple in order.

    >>> in_order({"tokens": 1, "mask": 2})
    (1, 2)
    """
    every = tuple(x.values()) if isinstance(x, Mapping) else tuple(x) if isinstance(x, list) else x
    return every[0] if isinstance(every, tuple) and len(every) == 1 else every


def in_tensors(batch, step: int, rows: int) -> tuple:
    """(inputs, targets) of a batch of these rows, as tensors, or tuples of them.

    raises  ValueError if the data returned anything else in this step

    >>> in_tensors((np.ones(2), {"mask": np.zeros(2)}), step=0, rows=2)
    (tensor([1., 1.], dtype=torch.float64), tensor([0., 0.], dtype=torch.float64))
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        what = f"{len(batch)} things" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
        raise ValueError(f"data({step}, {rows}) gave {what}: return (inputs, targets)")
    inputs, targets = (mapped(_tensor, in_order(one)) for one in batch)
    for x in (*flat(inputs), *flat(targets)):
        if reason := _unfit(x, rows):
            raise ValueError(f"data({step}, {rows}) gave {reason}")
    return inputs, targets


def _tensor(x) -> torch.Tensor:
    return torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x


def _unfit(x, rows: int) -> str:
    """The reason why `x` cannot be a part of a batch of these rows, with a remedy; empty if it can."""
    if not torch.is_tensor(x):
        return f"a {type(x).__name__}: give tensors, or tuples of them"
    if x.layout is not torch.strided or x.is_nested:
        return "a sparse or nested tensor, which has no rows to divide: make it dense and padded"
    if x.shape[:1] != (rows,):
        return f"a tensor of shape {tuple(x.shape)}: make its first dim {rows} rows in every step"
    if x.grad_fn:
        return "a tensor with a graph of the operations that made it, through which a backward would go: detach() it"
    return ""


def _in_numbers(x):
    """The same inputs or targets, if they are arrays; names of rows, for example, are not numbers."""
    named = x.items() if isinstance(x, Mapping) else enumerate(x) if isinstance(x, tuple | list) else [("", x)]
    for name, one in named:
        if not hasattr(one, "shape"):
            which = f"{name!r}" if name != "" else "it"
            raise ValueError(
                f"a batch of data has a {type(one).__name__} and not a tensor: leave out {which} in the dataset's "
                "rows, or in collate_fn"
            )
    return x


def example_of(data, rows: int) -> tuple:
    """A batch of this number of rows, as an example; if the source makes smaller batches, rows are repeated."""
    own = min(rows, getattr(data, "rows", None) or rows)
    numbers = [number % own for number in range(rows)]
    return tuple(_chosen(numbers, one) for one in batch_of(data, 0, own)) if own < rows else batch_of(data, 0, rows)


def _chosen(numbers: slice | list[int], x):
    """Some rows of a tensor, or of several tensors."""
    some = mapped(lambda one: one[numbers], in_order(x))
    return dict(zip(x, flat(some), strict=True)) if isinstance(x, Mapping) else some


def length(batch) -> int:
    """The number of rows of a batch."""
    return len(flat(in_order(parted(batch)[0]))[0])


def even(batches: list, lengths: list[int]) -> tuple[list, int]:
    """(batches without a short last one, the number of rows in each)."""
    rows = lengths[0]
    even = batches[:-1] if lengths[-1] < rows else batches
    for number, length in enumerate(lengths[: len(even)]):
        if length != rows:
            raise ValueError(f"batch {number} of data has {length} rows, but batch 0 has {rows}: make them equal")
    return even, rows
