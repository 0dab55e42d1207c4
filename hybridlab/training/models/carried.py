"""The things that a function carries along: modules, tensors and values that it reads besides its arguments.

Ranks get copies of them. So a weight that a loss reads would get no gradient, and a value that a call changes would
differ from rank to rank.

A function reads names: its closure, globals and defaults, and those attributes of these objects that its code names.
Functions that it calls are read too, but not those of torch or of Python's library.

Read next: `training.models.losses` and `training.models.left_behind`, which use it.
"""

import dis
import functools
import inspect
import math
import sys
import types
import weakref
from collections.abc import Iterator

import torch
from torch import nn

OTHERS = {*sys.stdlib_module_names, "torch", "numpy"}  # packages whose code reads no value of a user's
SEVERAL = list | tuple | dict | set
SIMPLE = bool | int | float | str | bytes | None  # small integers share one id
MANY = 1000  # elements of a list above which it may hold rows


def carried(function: object, known: dict | None = None) -> list[tuple[str, object]]:
    """(name, a module or a tensor) for all that a function carries along.

    known  {id: (an object, its attributes that code has named)} for all that was met before, and is left out now

    >>> net = nn.Linear(1, 1)
    >>> carried(lambda x: x + sum(net.weight[i] for i in range(1)))
    [('net', Linear(in_features=1, out_features=1, bias=True))]
    """
    return [(name, one) for name, one in _reached(function, known) if isinstance(one, nn.Module | torch.Tensor)]


def values(function: object, known: dict | None = None, most: float = math.inf) -> list[tuple[str, object]]:
    """(name, value) for all that a function carries along, except modules, functions and classes; lists are also given
    as a whole.

    most  elements of a list; longer ones are not looked into

    >>> counted = [0]
    >>> values(lambda x: x * counted[0])
    [('counted', [0]), ('counted', 0)]
    """
    return [(name, one) for name, one in _reached(function, known, most) if not isinstance(one, nn.Module)]


def _reached(function: object, known: dict | None, most: float = math.inf) -> Iterator[tuple[str, object]]:
    """(name, thing): modules, tensors, values and lists of values; for functions and other objects, the things that
    they read. A list is given as a whole, and its elements also one by one.
    """
    known, waiting = {} if known is None else known, [("itself", function, frozenset())]
    while waiting:
        name, one, names = waiting.pop()
        new, (_, seen) = id(one) not in known, known.get(id(one), (None, frozenset()))
        if not new and (names <= seen or isinstance(one, types.FunctionType)):  # which has names of its own
            continue
        if not isinstance(one, SIMPLE):
            known[id(one)] = one, names | seen  # the object too, so that no other gets its id
        long = isinstance(one, SEVERAL) and len(one) > most
        inside = [] if long else [*_inside(name, one, names - seen)]
        if not new and isinstance(one, SEVERAL | functools.partial):
            inside = [each for each in inside if not isinstance(each[1], SIMPLE)]  # these were given before
        waiting += reversed(inside)  # in order, so that a list that grows only adds to the end
        if new and (not (inside or callable(one) or isinstance(one, types.ModuleType)) or _is_value(one)):
            yield name, one


def _is_value(one) -> bool:
    return isinstance(one, nn.Module | torch.Tensor | Iterator | SEVERAL)


def _inside(name: str, one: object, names: frozenset[str]) -> Iterator[tuple[str, object, frozenset[str]]]:
    """(name, thing, the attributes of it that count) for all that an object refers to."""
    if isinstance(one, nn.Module | torch.Tensor):
        return
    if isinstance(one, functools.partial):
        yield from ((name, each, names) for each in (one.func, *one.args, *one.keywords.values()))
    elif isinstance(one, types.MethodType):
        more = frozenset() if _of_others(one.__func__) else _spelled(one.__func__)
        yield from ((name, one.__self__, names | more), (name, one.__func__, names))
    elif isinstance(one, types.BuiltinMethodType):
        yield name, one.__self__, names
    elif isinstance(one, types.FunctionType):
        if not _of_others(one):
            yield from ((each, value, _spelled(one)) for each, value in named_in(one))
    elif isinstance(one, weakref.ref):
        yield name, one(), names
    elif isinstance(one, list | tuple | set):
        yield from ((name, each, names) for each in one)
    elif isinstance(one, dict):
        yield from ((name, each, names) for each in one.values())
    else:
        yield from ((attribute, value, names) for attribute, value in _attributes(one, names))


def _attributes(one: object, names: frozenset[str]) -> Iterator[tuple[str, object]]:
    """(name, value) of an object's attributes that count: those that code names, or all, if the object is called."""
    own, whole = getattr(one, "__dict__", {}), isinstance(one, type | types.ModuleType)
    if whole and str(getattr(one, "__module__", one.__name__)).partition(".")[0] in OTHERS:
        return
    every = callable(one) and not whole
    yield from ((name, own[name]) for name in (own if every else names & own.keys()))
    for name in () if whole else names | {"__call__"} if every else names:
        method = inspect.getattr_static(type(one), name, None)
        method = method.fget if isinstance(method, property) else method
        if isinstance(method, types.FunctionType) and not _of_others(method):
            yield name, types.MethodType(method, one)


def named_in(function: types.FunctionType) -> list[tuple[str, object]]:
    """(name, value) of the closure, the defaults and the globals of a function."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    closed = [(name, cell.cell_contents) for name, cell in cells if cell != types.CellType()]
    steps = (step for code in _codes(function) for step in dis.get_instructions(code))
    read = dict.fromkeys(step.argval for step in steps if step.opname == "LOAD_GLOBAL")
    reads = [(name, function.__globals__[name]) for name in read if name in function.__globals__]
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return [*closed, *reads, *(("a default", one) for one in given)]


def _spelled(function: types.FunctionType) -> frozenset[str]:
    """All names and texts in the code of a function: it can read only attributes of objects with these names."""
    codes = _codes(function)
    texts = (one for code in codes for one in code.co_consts if isinstance(one, str))
    return frozenset((*(name for code in codes for name in code.co_names), *texts))


def _codes(function: types.FunctionType) -> list[types.CodeType]:
    """The code of a function, and that of the functions and comprehensions inside."""
    found, waiting = [], [function.__code__]
    while waiting:
        found.append(waiting.pop())
        waiting += (one for one in found[-1].co_consts if isinstance(one, types.CodeType))
    return found


def _of_others(function) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] in OTHERS
