"""Make signatures that name every argument of a function, including those from a table shared with other functions.

A function such as `hl.check` takes about forty arguments of a job, and the modes add more. They are described once, in
a table {name: Argument}. `spelled` puts them into the function's signature and its docstring, so that Shift-Tab, Tab,
`help`, the stub for editors and the reference pages show each of them. It also rejects unknown names.
"""

import difflib
import functools
import inspect
import numbers
import os
import re
import reprlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple

WIDTH = 108  # of a line in a docstring that is made here
PLACE = "{arguments}"  # the line of a docstring that the table replaces
_spelled: dict[Callable, Callable] = {}  # for each function, the function that updates its signature


class Argument(NamedTuple):
    """One argument: its type as Python text, its default, and its meaning in a line."""

    type: str
    usual: Any
    meaning: str


class _Type(str):
    """A type that is shown as it was written."""

    __repr__ = str.__str__


def spelled(table: Callable[[], dict[str, Argument]], positional: int = 0, **usual) -> Callable:
    """A decorator: instead of its last parameter, **more, the function gets the arguments of a table.

    table       called for {name: Argument}, and called again by `renew`
    positional  how many of the table's first arguments may be given by position, in front of the function's own
    usual       defaults of this function only, instead of those of the table

    raises      the function raises TypeError for an argument name that it does not have, and suggests the nearest name

    >>> table = {"steps": Argument("int", 3, "optimizer steps"), "rate": Argument("float", 1.0, "")}
    >>> @spelled(lambda table=table: table, rate=0.1)
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
            bound = _bound(function.__name__, called.__signature__, given, named).arguments
            said = {name: bound[name] for name in bound if name not in named} | named  # in its order
            said = {name: called.fits[name](value) for name, value in said.items()}
            params = called.__signature__.parameters
            said = {name: value for name, value in said.items() if value is not None or params[name].default is None}
            return function(**said | {name: value for name, value in usual.items() if name not in said})

        def spell():
            mine = {one.name for one in own}
            rows = {name: one for name, one in table().items() if name not in mine}
            rows = {name: one._replace(usual=usual.get(name, one.usual)) for name, one in rows.items()}
            called.__signature__ = _signature(function, own, rows, positional)
            called.fits = checks(function.__name__, called.__signature__, or_none=True)
            called.__doc__ = told.replace(PLACE, described(rows))

        spell()
        _spelled[called] = spell
        return called

    return decorate


def typed(function: Callable, **further: Callable[[str, Any], None]) -> Callable:
    """A decorator: arguments of types other than those in the signature raise an error in one sentence, before the
    work.

    further  {argument: a check of its name and value}; of an optional argument, unless it is None

    raises  the function raises WrongType, which says what to give; numbers of other libraries become Python's

    >>> @typed
    ... def twice(number: int) -> int:
    ...     return 2 * number
    >>> twice("3")
    Traceback (most recent call last):
    hybridlab.signatures.WrongType: twice takes number as int, not '3', a str
    """
    signature, name_of_it = inspect.signature(function), _name(function)
    fits = checks(name_of_it, signature)
    optional = {name for name, one in signature.parameters.items() if "None" in f"{one.annotation} {one.default}"}
    several = {one.name: one.kind for one in signature.parameters.values() if one.kind in SEVERAL}

    @functools.wraps(function)
    def called(*given, **named):
        if inspect.Parameter.VAR_KEYWORD not in several.values():
            refuse(name_of_it, named, signature.parameters)
        bound = _bound(name_of_it, signature, given, named)
        for name, value in bound.arguments.items():
            if name not in several:
                bound.arguments[name] = value = fits[name](value)
            elif isinstance(value, tuple):
                bound.arguments[name] = tuple(map(fits[name], value))
            if name in further and not (value is None and name in optional):
                further[name](name, value)
        return function(*bound.args, **bound.kwargs)

    return called


def checked(function, named: dict) -> dict:
    """A user's arguments in a dict, checked as those of this `spelled` function; raises WrongType as it does."""
    return {name: function.fits[name](value) for name, value in named.items()}


def _name(function) -> str:
    """The name by which a user calls a function; for a constructor, that of its class."""
    return function.__qualname__.removesuffix(".__init__").rpartition(".")[2]


def _bound(name: str, signature: inspect.Signature, given, named) -> inspect.BoundArguments:
    """The arguments by name.

    raises  a TypeError that says what is missing
    """
    try:
        return signature.bind(*given, **named)
    except TypeError as error:
        names = [one.name for one in signature.parameters.values() if one.default is one.empty]
        needed = ", ".join(one for one in names if one not in ITSELF)
        raise TypeError(f"{name}: {error} (required: {needed or 'none'})") from None


class WrongType(TypeError, ValueError):
    """A value of a different type from that of an argument: also a ValueError, like the errors for other arguments that
    do not fit.
    """


GIVE = {  # how to find the arguments of a function
    "Module": "an nn.Module (of a list of layers, nn.Sequential(*layers))",
    "Mesh": "hl.Mesh(dp=2, pp=2)",
    "Schedule": 'hl.schedule("1f1b", ranks=4, microbatches=8)',
    "Timeline": "hl.simulate(schedule), or what hl.run gives back",
    "Costs": "hl.Costs(F=1, B=2)",
    "Shape": "hl.Shape(layers=4, width=64)",
    "Room": "hl.Room(capacity=4)",
}
ANYTHING = ("Any", "object", "")
SEVERAL = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
ITSELF = ("self", "_cls")  # the first argument of a constructor
INSIDE = re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]")  # text in brackets, two levels deep
OF_ONE_KIND = re.compile(r"(?<!\[)(tuple)\[(int|float), \.\.\.\]")
NUMBERS = {"int", "float", "bool"}
NO_LIST = str | bytes | Mapping  # nor is an array without a dim
KINDS: dict[str, Callable] = {
    "int": lambda x: isinstance(x, numbers.Integral) and not isinstance(x, bool),
    "float": lambda x: isinstance(x, numbers.Real) and not isinstance(x, bool),
    "bool": lambda x: isinstance(x, bool),
    "str": lambda x: isinstance(x, str),
    "Path": lambda x: isinstance(x, os.PathLike),
    "PathLike": lambda x: isinstance(x, os.PathLike),
    "Literal": lambda x: isinstance(x, str),
    "Callable": callable,
    "dict": lambda x: isinstance(x, Mapping),
    "Sequence": lambda x: isinstance(x, Iterable) and not isinstance(x, NO_LIST) and getattr(x, "ndim", 1) > 0,
    "None": lambda x: x is None,
}
KINDS |= dict.fromkeys(("Collection", "Iterable", "list", "set", "frozenset"), KINDS["Sequence"])
KINDS["tuple"] = lambda x: KINDS["Sequence"](x) and not isinstance(x, Set)  # a set has no order


def checks(function: str, signature: inspect.Signature, or_none: bool = False) -> dict[str, Callable]:
    """{argument: the function that checks a value and returns it}."""
    words = {name: str(_short(one.annotation)) for name, one in signature.parameters.items()}
    words |= {name: "" for name, one in signature.parameters.items() if one.annotation is one.empty}
    left_out = {name: or_none and one.default is not one.empty for name, one in signature.parameters.items()}
    return {name: functools.partial(_fit, function, name, said, left_out[name]) for name, said in words.items()}


def _fit(function: str, name: str, words: str, or_none: bool, value):
    """A value, if it is of one of the types that the words name, by the names of its classes; numbers are then those of
    Python, also in a tuple.

    >>> import numpy as np
    >>> _fit("f", "x", "Mesh | tuple[int, ...] | None", False, None)
    >>> _fit("f", "x", "float", False, np.float64(0.5)), _fit("f", "x", "tuple[float, ...]", False, np.ones(2))
    (0.5, (1.0, 1.0))
    """
    every, items_of = _read(words)
    said = lambda: f"{function} takes {name} as {words}"
    if "Path" in every and isinstance(value, str) and not value:
        raise ValueError(f"{name}='' is an empty path: give a folder or a file, such as '.', or leave it out")
    try:
        value = plain(value, every)
        classes = {one.__name__ for one in type(value).__mro__}
        fits = lambda one: KINDS[one](value) if one in KINDS else one in ANYTHING or one in classes
        found = next(filter(fits, every), "None" if or_none and value is None else None)
        if of := items_of.get(found):
            items = tuple(plain(one, [of]) for one in value)
            if all(map(KINDS[of], items)):
                return items
        elif found is not None:
            return tuple(value) if found == "tuple" and not isinstance(value, tuple) else value
    except OverflowError:
        raise WrongType(f"{said()}, and {reprlib.repr(value)} is too large for a float: give a smaller one") from None
    give = next((f": give {GIVE[one]}" for one in every if one in GIVE), "")
    raise WrongType(f"{said()}, not {reprlib.repr(value)}, {_a(type(value).__name__)}{give}")


@functools.cache
def _read(words: str) -> tuple[list[str], dict[str, str]]:
    """(the names of the types, {a type of lists: the type of its items})."""
    names = [one.partition("[")[0].strip().rpartition(".")[2] for one in INSIDE.sub("", words).split("|")]
    return names, dict(OF_ONE_KIND.findall(words))


def plain(value, kinds: Iterable[str]):
    """A value as Python's own int, float or bool, if one of these is wanted: results travel as JSON, which knows no
    number of numpy, no fraction, and no tensor without a dim.

    raises  OverflowError where a float is wanted and the number is beyond all floats

    >>> import fractions
    >>> plain(fractions.Fraction(1, 4), ["float"]), plain("x", ["float"])
    (0.25, 'x')
    """
    if not NUMBERS.isdisjoint(kinds) and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    if "float" in kinds:
        number = float(value)
        return int(value) if isinstance(value, numbers.Integral) else number
    return int(value) if isinstance(value, numbers.Integral) else value


def _a(name: str) -> str:
    return f"a{'n' * (name[0].lower() in 'aeiou')} {name}"


def renew():
    """Read all tables again after a mode was added or removed."""
    for spell in _spelled.values():
        spell()


def is_spelled(function) -> bool:
    """Whether a function's arguments come from a table."""
    return inspect.isfunction(function) and function in _spelled


def refuse(name: str, given: Iterable[str], known: Iterable[str]):
    """Check that all given names are known.

    raises  TypeError with the nearest known one

    >>> refuse("learn", ["rate"], ["steps", "rate"])
    """
    for one in given:
        if one not in known:
            raise TypeError(f"{name} has no argument {one!r}: {nearest(one, known)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word.

    >>> nearest("microbatchs", ["mesh", "microbatches"]), nearest("colour", ["mesh", "seed"])
    ("did you mean 'microbatches'?", 'choose one of mesh, seed')
    """
    found = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {found[0]!r}?" if found else f"choose one of {', '.join(known)}"


def described(rows: dict[str, Argument]) -> str:
    """A line for each argument, in columns: its name and its meaning; longer ones continue below.

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
    said = inspect.formatannotation(annotation)  # the name of a later class is in quotes
    return _Type(re.sub(r"\b(?:\w+\.)+(?=[A-Za-z])", "", said.strip("'")))
