"""Many lists of whole numbers in two columns, so that a million of them cost no objects."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Lists:
    """Many lists of whole numbers in two columns: list i is values[starts[i] : starts[i + 1]]."""

    starts: np.ndarray
    values: np.ndarray

    @classmethod
    def gathered(cls, found: list, first_row: np.ndarray, rows: int, dtype) -> "Lists":
        """Lists out of what was found in `rows` rows; a list holds its first row and all rows before the next list's.

        found  (rows, [(count, values), …]): values of these rows, each row's `count` of them, row after row
        """
        starts = np.zeros(rows + 1, dtype=np.int64)
        for row, runs in found:
            starts[row + 1] = sum(count for count, _ in runs)
        np.cumsum(starts, out=starts)
        everything = np.empty(starts[-1], dtype)
        for row, runs in found:
            at = starts[row]
            for count, values in runs:
                everything[_spread(at, count)] = values
                at += count
        return cls(starts[np.append(first_row, rows)] if len(first_row) < rows else starts, everything)

    @cached_property
    def owners(self) -> np.ndarray:
        """The list that each value stands in."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def __len__(self):
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return self.values[self.starts[i] : self.starts[i + 1]]


def _spread(at: np.ndarray, count) -> np.ndarray:
    """The places at[0], at[0] + 1, … (count[0] of them), at[1], at[1] + 1, …; `count` may be 1 for all.

    >>> _spread(np.array([0, 7]), np.array([2, 1])).tolist()
    [0, 1, 7]
    """
    if isinstance(count, int):
        return at
    if count.dtype == bool:
        return at[np.flatnonzero(count)]
    return np.repeat(at - np.cumsum(count) + count, count) + np.arange(count.sum())
