"""Doors: public functions that look at their arguments where a user calls them, before the work.

Callers inside this package use the plain function: they call often, and may pass arrays of many plans. So the doors are
in `front`; only a module that is public as a whole, such as `programs` or `slicing`, has its own at its end. A value
checks its fields where it is made, by everybody: its class is `guarded`.
"""

import inspect
import math
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable
from numbers import Integral
from typing import Any, TypeVar

from hybridlab.signatures import typed

MOST = 10**9  # the largest number of devices or rows, and the largest size of a model
Check = Callable[[str, Any], None]  # of an argument's name and value: raises ValueError in a sentence
Made = TypeVar("Made")


def door(function: Callable, **checks: Check) -> Callable:
    """The function, with arguments of the types in its signature (`typed`) that also pass these checks.

    >>> double = door(lambda number: 2 * number, number=COUNT)
    >>> double(2), double(number=0)
    Traceback (most recent call last):
    ValueError: number=0 is out of range: give 1 or more, and at most 1e+09
    """
    return typed(function, **checks)


def doors(*functions: Callable, **checks: Check) -> list[Callable]:
    """A door for each of the functions; each check is for those of them that have the argument."""
    return [door(one, **_its(inspect.signature(one).parameters, checks)) for one in functions]


def guarded(usual: Check | None = None, **checks: Check) -> Callable[[type[Made]], type[Made]]:
    """A decorator of a NamedTuple or a dataclass: its constructor is a `door`, with a usual check for every field that
    has no other. `_make` and `_replace` of a NamedTuple check nothing.

    >>> from typing import NamedTuple
    >>> @guarded(COUNT)
    ... class Box(NamedTuple):
    ...     size: int
    >>> Box(3), Box(-1)
    Traceback (most recent call last):
    ValueError: size=-1 is out of range: give 1 or more, and at most 1e+09
    """

    def decorate(cls: type[Made]) -> type[Made]:
        name = "__new__" if issubclass(cls, tuple) else "__init__"
        plain = getattr(cls, name)
        plain.__qualname__ = f"{cls.__name__}.__init__"  # an error names the class
        every = dict.fromkeys(cls.__annotations__, usual) if usual else {}
        setattr(cls, name, door(plain, **every | checks))
        return cls

    return decorate


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
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        return [value]
    if not isinstance(value, Collection):
        raise ValueError(f"{name}={reprlib.repr(value)} has no length: give a list")
    if not len(value):
        raise ValueError(f"{name} is empty: give at least one number")
    return value


def several(number: int, check: Check) -> Check:
    """The check that a value is a list of so many items, of which each passes a check.

    >>> several(3, COUNT)("sizes", (4, 4))
    Traceback (most recent call last):
    ValueError: sizes=(4, 4) has 2 items: give 3
    """

    def each(name: str, value):
        if len(value) != number:
            raise ValueError(f"{name}={reprlib.repr(value)} has {len(value)} items: give {number}")
        check(name, value)

    return each


def intervals(name: str, value: Collection) -> None:
    """Raise ValueError unless this is a list of spans, (from, to), in whole numbers.

    >>> intervals("have", [(0, 4), (4, 3)])
    Traceback (most recent call last):
    ValueError: have=[(0, 4), (4, 3)] is not a list of spans: give pairs (from, to), such as [(0, 4), (4, 8)]
    """
    if not len(value) or not all(_is_interval(one) for one in value):
        raise ValueError(
            f"{name}={reprlib.repr(value)} is not a list of spans: give pairs (from, to), such as [(0, 4), (4, 8)]"
        )


def interval(name: str, value: Any) -> None:
    """Raise ValueError unless this is one span, (from, to)."""
    if not _is_interval(value):
        raise ValueError(f"{name}={reprlib.repr(value)} is not a span: give a pair (from, to), such as (0, 4)")


def _is_interval(value) -> bool:
    if not isinstance(value, Collection) or getattr(value, "ndim", 1) == 0 or len(value) != 2:
        return False
    begin, end = value
    return isinstance(begin, Integral) and isinstance(end, Integral) and begin <= end


def each_is(kind: type, remedy: str) -> Check:
    """The check that a list has items, each of this class.

    >>> each_is(int, "give whole numbers")("names", ["a"])
    Traceback (most recent call last):
    ValueError: names has 'a', a str: give whole numbers
    """

    def check(name: str, value: Collection):
        if not len(value):
            raise ValueError(f"{name} is empty: {remedy}")
        for one in value:
            if not isinstance(one, kind):
                raise ValueError(f"{name} has {reprlib.repr(one)}, a {type(one).__name__}: {remedy}")

    return check


def no_list(name: str, value: Any) -> None:
    """Raise ValueError for a list where arithmetic needs an array."""
    if isinstance(value, list | tuple | dict | set):
        raise ValueError(f"{name}={reprlib.repr(value)} is a {type(value).__name__}: give a number, or np.array([...])")


def both(first: Check, second: Check) -> Check:
    """The check that two checks pass.

    >>> both(each_is(int, "give whole numbers"), COUNT)("sizes", [2, 0])
    Traceback (most recent call last):
    ValueError: sizes=[2, 0] is out of range: give 1 or more, and at most 1e+09
    """

    def check(name: str, value: Any):
        first(name, value)
        second(name, value)

    return check


def one_of(known: Collection[str]) -> Check:
    """The check that a text is one of those that are known.

    >>> one_of(("gather", "scatter"))("move", "sum")
    Traceback (most recent call last):
    ValueError: move='sum' is not known: choose one of gather, scatter
    """

    def check(name: str, value: str):
        if value not in known:
            raise ValueError(f"{name}={value!r} is not known: choose one of {', '.join(known)}")

    return check


def texts(name: str, value: Iterable) -> None:
    """Raise ValueError unless this is a list of texts."""
    if isinstance(value, str) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name}={reprlib.repr(value)} is not a list of texts: give one, such as ['--steps', '9']")


FEW = span(1, 10**6, "give a number from 1 to 1e+06")  # of what is counted one by one
COUNT = span(1, MOST, f"give 1 or more, and at most {MOST:.0e}")
POSITIVE = span(sys.float_info.min, sys.float_info.max, "give a number above 0")
FRACTION = span(0, 1, "give a number from 0 to 1")
BYTES = span(0, math.inf, "give a number of bytes, or math.inf")
AMOUNT = span(0, sys.float_info.max, "give a number, 0 or more")
