"""Many lists of integers in two columns, so that a million of them need no objects."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Lists:
    """Many lists of integers in two columns: list i is values[starts[i] : starts[i + 1]]."""

    starts: np.ndarray
    values: np.ndarray

    @classmethod
    def of_rows(cls, found: list, rows: int, dtype: type) -> "Lists":
        """One list per row, assembled from values that were found for some rows at a time.

        found  (row numbers, [(count, values), …]): each run holds `count` values of every one of these rows, row after
               row; a row's list holds its values of the first run, then of the second, …

        >>> lists = Lists.of_rows([(np.array([0, 2]), [(1, [7, 8]), (np.array([False, True]), [9])])], 3, int)
        >>> [lists[row].tolist() for row in range(3)]
        [[7], [], [8, 9]]
        """
        starts = np.zeros(rows + 1, dtype=np.int64)
        for row, runs in found:
            starts[row + 1] = sum(count for count, _ in runs)  # the length of each list …
        np.cumsum(starts, out=starts)  # … and where it begins
        everything = np.empty(starts[-1], dtype)
        for row, runs in found:
            at = starts[row]
            for count, values in runs:
                everything[_spread(at, count)] = values
                at += count
        return cls(starts, everything)

    def joined(self, first: np.ndarray) -> "Lists":
        """Adjacent lists joined: each new list goes from one index in `first` to before the next.

        >>> [one.tolist() for one in Lists(np.array([0, 1, 1, 3]), np.array([7, 8, 9])).joined(np.array([0, 2]))]
        [[7], [8, 9]]
        """
        return self if len(first) == len(self) else Lists(self.starts[np.append(first, len(self))], self.values)

    def longer(self, lists: np.ndarray, values: np.ndarray) -> "Lists":
        """The same lists, some of them (in rising order) with one more value each.

        >>> longer = Lists(np.array([0, 1, 1]), np.array([7])).longer(np.array([1]), np.array([8]))
        >>> [one.tolist() for one in longer]
        [[7], [8]]
        """
        grown = np.searchsorted(lists, np.arange(len(self.starts)))
        return Lists(self.starts + grown, np.insert(self.values, self.starts[lists + 1], values))

    @cached_property
    def owners(self) -> np.ndarray:
        """The list that contains each value."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def __len__(self) -> int:
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


def seal(*arrays: np.ndarray) -> None:
    """Refuse writes into these arrays: results are stored for the value that they had (`flow.flow_of`)."""
    for one in arrays:
        one.setflags(write=False)
