"""Doors: public functions that look at their arguments where a user calls them, before the work.

Callers inside this package use the plain function: they call often, and may pass arrays of many plans. So the doors are
in `front`; only a module that is public as a whole, such as `programs` or `slicing`, has its own at its end.
"""

import functools
import inspect
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

from hybridlab.signatures import typed

MOST = 10**9  # the largest number of devices or rows, and the largest size of a model
Check = Callable[[str, Any], None]  # of an argument's name and value: raises ValueError in a sentence


def door(function: Callable, **checks: Check) -> Callable:
    """The function, with arguments of the types in its signature (`typed`) that also pass these checks.

    >>> double = door(lambda number: 2 * number, number=COUNT)
    >>> double(2), double(number=0)
    Traceback (most recent call last):
    ValueError: number=0 is out of range: give 1 or more, and at most 1e+09
    """
    signature = inspect.signature(function)

    @typed
    @functools.wraps(function)
    def called(*given, **named):
        for name, value in signature.bind(*given, **named).arguments.items():
            if name in checks and value is not None:
                checks[name](name, value)
        return function(*given, **named)

    return called


def doors(*functions: Callable, **checks: Check) -> list[Callable]:
    """A door for each of the functions; each check is for those of them that have the argument."""
    return [door(one, **_its(inspect.signature(one).parameters, checks)) for one in functions]


def _its(names: Iterable[str], checks: dict[str, Check]) -> dict[str, Check]:
    return {name: checks[name] for name in names if name in checks}


def span(least: float, most: float, remedy: str) -> Check:
    """The check that a number, or each number of a list, is from `least` to `most`; nan is not.

    >>> span(0, 1, "give a fraction")("part", [0.5, 2])
    Traceback (most recent call last):
    ValueError: part=[0.5, 2] is out of range: give a fraction
    """

    def check(name: str, value):
        if not all(_is_within(one, least, most) for one in _each(name, value)):
            raise ValueError(f"{name}={reprlib.repr(value)} is out of range: {remedy}")

    return check


def _is_within(one, least: float, most: float) -> bool:
    number = one.item() if getattr(one, "ndim", 1) == 0 else one
    return isinstance(number, int | float) and least <= number <= most


def _each(name: str, value) -> Collection:
    """The numbers of a list, or the one number."""
    if isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        return [value]
    if not isinstance(value, Collection):
        raise ValueError(f"{name}={reprlib.repr(value)} has no length: give a list")
    if not len(value):
        raise ValueError(f"{name} is empty: give at least one number")
    return value


def texts(name: str, value: Iterable) -> None:
    """Raise ValueError unless this is a list of texts."""
    if isinstance(value, str) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name}={reprlib.repr(value)} is not a list of texts: give one, such as ['--steps', '9']")


COUNT = span(1, MOST, f"give 1 or more, and at most {MOST:.0e}")
POSITIVE = span(sys.float_info.min, sys.float_info.max, "give a number above 0")
AMOUNT = span(0, sys.float_info.max, "give a number, 0 or more")
