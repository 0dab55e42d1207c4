"""Sums with the same last digit on every Python, for single numbers and for arrays."""

import functools
import operator
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def added(parts: Iterable[T]) -> T | int:
    """The sum of numbers or arrays, added one after another.

    Since Python 3.12 the built-in `sum` compensates rounding errors, for floats but not for arrays.

    >>> added([0.1] * 10), added([])
    (0.9999999999999999, 0)
    """
    return functools.reduce(operator.add, parts, 0)  # pyright: ignore[reportCallIssue, reportArgumentType]
