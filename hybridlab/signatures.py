"""Signatures that name every argument of a verb, also those that are described in a table and shared with other verbs.

A verb such as `hl.check` takes some forty arguments of a job, and the modes add theirs. They are described once, in a
table {name: Argument}. `spelled` puts them into the verb's signature and into its docstring, so that Shift-Tab, Tab,
`help`, the stub for editors and the reference pages show each of them, and refuses a name that none of them has.
"""

import difflib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

WIDTH = 108  # of a line in a docstring that is made here
PLACE = "{arguments}"  # the line of a docstring that the table replaces
_spelled: dict[Callable, Callable] = {}  # for each verb, what spells it anew


class Argument(NamedTuple):
    """One argument: its type in words of Python, its value where nobody gives one, and its meaning in a line."""

    type: str
    usual: Any
    meaning: str


class _Type(str):
    """A type that is shown as it was written."""

    __repr__ = str.__str__


def spelled(table: Callable[[], dict[str, Argument]], positional: int = 0, **usual) -> Callable:
    """A decorator: in place of its last parameter, **more, the function has the arguments of a table.

    table       called for {name: Argument}, and called again by `renew`
    positional  how many of the table's first arguments may be given by position, in front of the function's own
    usual       values of this function alone where nobody gives one, in place of those of the table

    raises  TypeError, from the function, for a name that it does not have, with the nearest one

    >>> @spelled(lambda: {"steps": Argument("int", 3, "optimizer steps"), "rate": Argument("float", 1.0, "")}, rate=0.1)
    ... def learn(mesh, **more):
    ...     return more
    >>> learn(4, steps=2), inspect.signature(learn)
    ({'steps': 2, 'rate': 0.1}, <Signature (mesh, *, steps: int = 3, rate: float = 0.1)>)
    >>> learn(4, stpes=2)
    Traceback (most recent call last):
    TypeError: learn has no argument 'stpes': did you mean 'steps'?
    """

    def decorate(function):
        own = [one for one in inspect.signature(function).parameters.values() if one.kind != one.VAR_KEYWORD]
        told = inspect.getdoc(function) or ""

        @functools.wraps(function)
        def called(*given, **named):
            refuse(function.__name__, named, called.__signature__.parameters)
            bound = called.__signature__.bind(*given, **named).arguments
            said = {name: bound[name] for name in bound if name not in named} | named  # in its order
            return function(**said | {name: value for name, value in usual.items() if said.get(name) is None})

        def spell():
            mine = {one.name for one in own}
            rows = {name: one for name, one in table().items() if name not in mine}
            rows = {name: one._replace(usual=usual.get(name, one.usual)) for name, one in rows.items()}
            called.__signature__ = _signature(function, own, rows, positional)
            called.__doc__ = told.replace(PLACE, described(rows))

        spell()
        _spelled[called] = spell
        return called

    return decorate


def renew():
    """Ask all tables again: a mode has been added, or taken away."""
    for spell in _spelled.values():
        spell()


def is_spelled(function) -> bool:
    """Whether a function's arguments come from a table."""
    return inspect.isfunction(function) and function in _spelled


def refuse(name: str, given: Iterable[str], known: Iterable[str]):
    """Nothing, if all names that were given are known.

    raises  TypeError with the nearest known one

    >>> refuse("learn", ["rate"], ["steps", "rate"])
    """
    for one in given:
        if one not in known:
            raise TypeError(f"{name} has no argument {one!r}: {nearest(one, known)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about a word that nobody knows.

    >>> nearest("microbatchs", ["mesh", "microbatches"]), nearest("colour", ["mesh", "seed"])
    ("did you mean 'microbatches'?", 'choose one of mesh, seed')
    """
    found = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {found[0]!r}?" if found else f"choose one of {', '.join(known)}"


def described(rows: dict[str, Argument]) -> str:
    """A line for each argument, in columns: its name and its meaning; longer ones go on below.

    >>> print(described({"steps": Argument("int", 3, "of training"), "rate": Argument("float", 0.1, "of learning")}))
    steps  of training
    rate   of learning
    """
    wide = max(map(len, rows), default=0) + 2
    fill = lambda name, told: textwrap.fill(
        told, WIDTH, initial_indent=f"{name:{wide}}", subsequent_indent=" " * wide, break_on_hyphens=False
    )
    return "\n".join(fill(name, one.meaning) for name, one in rows.items())


def _signature(function, own: list, rows: dict[str, Argument], positional: int) -> inspect.Signature:
    """The table's first arguments, the function's own, and the rest of the table by keyword."""
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * positional
    kinds += [inspect.Parameter.KEYWORD_ONLY] * (len(rows) - positional)
    parts = [
        inspect.Parameter(name, kind, default=one.usual, annotation=_Type(one.type))
        for kind, (name, one) in zip(kinds, rows.items())
    ]
    own = [one.replace(annotation=_short(one.annotation)) for one in own]
    given_back = inspect.signature(function).return_annotation
    return inspect.Signature(parts[:positional] + own + parts[positional:], return_annotation=_short(given_back))


def _short(annotation):
    """A type without the names of modules."""
    if annotation is inspect.Parameter.empty:
        return annotation
    return _Type(re.sub(r"\b(?:\w+\.)+(?=[A-Za-z])", "", inspect.formatannotation(annotation)))
