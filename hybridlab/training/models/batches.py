"""A source of batches: the batch of a step, and its inputs and targets, for every form of a batch.

Relatives: `theirs` makes one from each kind of data in PyTorch; `models.model` reads them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from hybridlab.training.models.trees import flat, mapped

UNSEEN = 1 << 30  # these steps are never trained on: evaluation asks a function of the step for them
LABELS = ("labels", "label", "targets", "target")  # keys of a dict batch that are not inputs


def batch_of(data, step: int, rows: int, seed: int = 0, unseen: bool = False) -> tuple:
    """The batch of a step from `data`: a function of step and rows, or the result of `batches_of`.

    unseen  a batch for evaluation, never used in training

    >>> batch_of(lambda step, rows: (step, rows), 3, 8)
    (3, 8)
    """
    if not hasattr(data, "batch"):
        return data(step + UNSEEN * unseen, rows)
    return (data.unseen if unseen else data).batch(step, rows, seed)


class Batches(ABC):
    """A source of batches; a subclass reads the batch of a step in its method `read`.

    rows  of every batch; None: the requested number
    """

    rows: int | None = None
    shapes: list | None = None  # of one row, as in the first batch

    @abstractmethod
    def read(self, step: int, rows: int):
        """The raw batch of a step: of `rows` rows, or of the source's own number of rows if it has one."""

    def batch(self, step: int, rows: int, seed: int = 0) -> tuple:
        """(inputs, targets) of a step: the first `rows` rows, if the batch has more, as in an examination."""
        if self.rows is not None and rows > self.rows:
            raise ValueError(f"data has batches of {self.rows} rows, but a step needs {rows}: give batch={self.rows}")
        both = tuple(_first(rows, _in_numbers(one)) for one in parted(self.read(step, rows)))
        shapes = [tuple(x.shape[1:]) for one in both for x in flat(in_order(one))]
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise ValueError(
                f"data has rows of shapes {shapes} in step {step}, but {self.shapes} before: pad all rows to one length"
            )
        return both

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


def _in_numbers(x):
    """The same inputs or targets, if they are arrays; names of rows, for example, cannot be computed with."""
    named = x.items() if isinstance(x, Mapping) else enumerate(x) if isinstance(x, tuple | list) else [("", x)]
    for name, one in named:
        if not hasattr(one, "shape"):
            which = f"{name!r}" if name != "" else "it"
            raise ValueError(
                f"a batch of data has a {type(one).__name__} and not a tensor: leave {which} out in the dataset's "
                "rows, or in collate_fn"
            )
    return x


def _first(rows: int, x):
    """The first rows of a tensor, or of several tensors."""
    some = mapped(lambda one: one[:rows], in_order(x))
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
