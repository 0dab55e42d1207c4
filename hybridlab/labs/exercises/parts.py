"""Parts of a source: the text of each name that a function needs, in the order of their dependencies.

A name has the same meaning in all cells. If a name stands for two things, as in two closures of one factory, the second
function gets a separate factory: it is defined inside a function whose arguments are its names.
"""

import ast
import builtins
import dataclasses
import dis
import enum
import functools
import math
import re
import sys
import types
from decimal import Decimal
from fractions import Fraction

from hybridlab.labs.exercises.definition import DEFS, Definition, definition_of, is_definition, replaced, shifted
from hybridlab.labs.exercises.imports import import_of
from hybridlab.labs.exercises.words import a_kind

PLAIN = (type(None), bool, int, str, bytes, type(...))
LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
INSTEAD = {functools.partial: "write a function with def instead"}


class Unwritable(Exception):
    """A value that cannot be written as text; it is the exception's only argument."""


class Parts:
    """Names, their values, and the text that creates each value; the first `outside` names belong to the surrounding
    code."""

    def __init__(self):
        self.values: dict[str, object] = {}
        self._texts: dict[str, str] = {}
        self._last: list[str] = []  # other names of definitions that are not complete yet

    @property
    def text(self) -> str:
        return "\n\n".join([*filter(None, self._texts.values()), *self._last]) + "\n"

    def bind(self, name: str, value, outside: dict) -> None:
        """Write what binds this name, which is still free, to a value.

        outside  the surrounding names of the code that uses it; a class without methods does not know its own
        raises   a ValueError that says what cannot be written down
        """
        self.values[name] = value
        text = self._text(name, value, outside)
        self._texts[name] = text

    def _text(self, name: str, value, outside: dict) -> str:
        other = next((known for known, its in self.values.items() if its is value and known != name), None)
        if is_definition(value) and other in self._texts:
            return f"{name} = {other}"
        if is_definition(value) and other:
            self._last.append(f"{name} = {other}")
            return ""
        return import_of(name, value) or (
            self._definition(name, value, outside)
            if is_definition(value)
            else f"{name} = {self._expression(name, value, outside)}"
        )

    # --- functions and classes ------------------------------------------------------------------------------------

    def _definition(self, name: str, value, outside: dict) -> str:
        found = definition_of(value)
        outside = found.functions[0].__globals__ if found.functions else outside
        text = self._with_defaults(found, outside)
        cells = {word: its for function in found.functions for word, its in _cells(function).items()}
        kept = _kept(text) & set(cells)
        words = _words(text, kept) | kept
        used = {word: (outside | cells)[word] for word in sorted(words) if word in outside | cells}
        again = found.name != name and cells.get(found.name) is value  # it calls itself by its former name
        scope = {}
        for word, its in used.items():
            if self._means(word, its) or its is getattr(builtins, word, used) or (again and word == found.name):
                continue
            if word in self.values or (word in cells and (hasattr(builtins, word) or word in kept)):
                scope[word] = its
            else:
                self.bind(word, its, outside)
        if scope or again:
            return self._factory(name, text if found.name else f"made = {text}", found.name or "made", scope, outside)
        return _renamed(text, found.name, name) if found.name else f"{name} = {text}"

    def _means(self, word: str, value) -> bool:
        """Whether a name is bound to a value, or will be."""
        return word in self.values and self.values[word] is value

    def _factory(self, name: str, text: str, own: str, scope: dict, outside: dict) -> str:
        given = ", ".join(self._expression(word, its, outside) for word, its in scope.items())
        return (
            f"def _make_{name}({', '.join(scope)}):\n{shifted(text, 4)}\n    return {own}\n\n"
            f"{name} = _make_{name}({given})"
        )

    def _with_defaults(self, found: Definition, outside: dict) -> str:
        """The text of a function, with the current values of its defaults, because their expressions may now give
        others.
        """
        node = next(one for one in ast.walk(ast.parse(found.text)) if isinstance(one, DEFS | ast.Lambda | ast.ClassDef))
        if isinstance(node, ast.ClassDef):
            return found.text
        (function,), args = found.functions, node.args
        names = [one.arg for one in args.posonlyargs + args.args]
        every = list(zip(args.defaults, names[len(names) - len(args.defaults) :], function.__defaults__ or ()))
        kinds = function.__kwdefaults__ or {}
        every += [(said, one.arg, kinds[one.arg]) for one, said in zip(args.kwonlyargs, args.kw_defaults) if said]
        pieces = []
        for said, word, its in every:
            if not any(isinstance(one, ast.Name) for one in ast.walk(said)):
                continue
            try:
                pieces.append((said, self._of(said.id if isinstance(said, ast.Name) else word, its, outside)))
            except Unwritable:
                continue  # made again, as it is said
        return replaced(found.text, pieces)

    # --- values ---------------------------------------------------------------------------------------------------

    def _expression(self, name: str, value, outside: dict) -> str:
        try:
            return self._of(name, value, outside)
        except Unwritable as error:
            inner = error.args[0]
            kind = type(value).__name__ + ("" if inner is value else f" with {a_kind(inner)} in it")
            instead = INSTEAD.get(type(inner), "make it inside")
            raise ValueError(f"it uses {name} ({kind}), which cannot be stored: {instead}") from None

    def _of(self, name: str, value, outside: dict) -> str:
        """An expression for a value; raises Unwritable."""
        kind, each = type(value), lambda values: ", ".join(self._of(name, one, outside) for one in values)
        if kind in PLAIN:
            return repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float('{value}')"
        if kind is list or kind is tuple:
            return f"[{each(value)}]" if kind is list else f"({each(value)}{',' * (len(value) == 1)})"
        if kind is set or kind is frozenset:
            return f"{kind.__name__}([{each(value)}])"
        if kind is dict:
            return "{" + ", ".join(f"{each([key])}: {each([its])}" for key, its in value.items()) + "}"
        if isinstance(value, types.ModuleType) or is_definition(value) or import_of(name, value):
            return self._named(getattr(value, "__name__", name), value, outside)
        if kind.__module__ == "torch":  # a dtype, a device, a size
            shown = repr(value).removeprefix("torch.")
            if kind.__name__ in ("dtype", "device", "Size"):
                return f"{self._named('torch', sys.modules['torch'], outside)}.{shown}"
        if kind.__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
            return each([value.item()])
        if isinstance(value, enum.Enum):
            return f"{self._named(kind.__name__, kind, outside)}({each([value.value])})"
        if isinstance(value, Fraction | Decimal):
            return f"{self._named(kind.__name__, kind, outside)}('{value}')"
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self._named(kind.__name__, kind, outside)}({each(value)})"
        if dataclasses.is_dataclass(value):
            given = [f"{one.name}={each([getattr(value, one.name)])}" for one in dataclasses.fields(value) if one.init]
            return f"{self._named(kind.__name__, kind, outside)}({', '.join(given)})"
        raise Unwritable(value)

    def _named(self, wish: str, value, outside: dict) -> str:
        """A name that stands for something defined or imported: the one that it has, else a free one."""
        known = next((name for name, its in self.values.items() if its is value), None)
        if known:
            return known
        wish = wish.rpartition(".")[2]
        wish = wish if wish.isidentifier() else "made"
        free = (name for name in (wish, *(f"{wish}_{number}" for number in range(2, 1000))))
        name = next(name for name in free if name not in self.values and not hasattr(builtins, name))
        self.bind(name, value, outside)
        return name


def _words(text: str, kept: set[str]) -> set[str]:
    """The names from outside that a definition reads: in its code, bases, decorators, annotations, default values."""
    whole = f"def around({', '.join(kept)}):\n{shifted(text, 4)}" if kept else text  # for its nonlocal names
    return {word for word in _read(compile(whole, "<words>", "exec", dont_inherit=True)) if not word.startswith("__")}


def _read(code: types.CodeType) -> set[str]:
    steps = list(dis.get_instructions(code))
    own = {one.argval for one in steps if one.opname in LOADS}
    own -= {one.argval for one in steps if one.opname == "STORE_NAME"}
    return own.union(*(_read(const) for const in code.co_consts if isinstance(const, types.CodeType)))


def _cells(function: types.FunctionType) -> dict[str, object]:
    """The names that a function takes from the function around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    return {name: cell.cell_contents for name, cell in cells if name != "__class__"}


def _kept(text: str) -> set[str]:
    """The names in which a definition keeps a value from call to call: nonlocal."""
    return {name for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Nonlocal) for name in one.names}


def _renamed(text: str, own: str, name: str) -> str:
    """A definition that binds another name."""
    if own == name:
        return text
    (node,) = ast.parse(text).body
    lines = text.split("\n")
    line = node.lineno - 1
    lines[line] = re.sub(rf"\b(def|class)(\s+){own}\b", rf"\1\g<2>{name}", lines[line], count=1)
    return "\n".join(lines)
