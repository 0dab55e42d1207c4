"""The source of what a student has written: a text that makes the same function in another process.

A notebook's function uses names of other cells. They come along: modules as imports, functions and classes of the
notebook with their own source, plain values as they are.
"""

import ast
import builtins
import dis
import inspect
import json
import linecache
import re
import sys
import textwrap
import types
from dataclasses import dataclass

PUBLIC = re.compile(r"hybridlab(\.front\.\w+|\.labs\.\w+)?")  # where public names are


@dataclass(frozen=True)
class Source:
    """Text that, run on its own, defines what `name` says: a function, or an attribute of a class, as in "F.apply"."""

    text: str
    name: str

    def load(self):
        """The function; raises whatever the text raises."""
        file = f"<answer {self.name}>"
        linecache.cache[file] = len(self.text), None, self.text.splitlines(keepends=True), file
        names = {"__name__": "__answer__"}
        exec(compile(self.text, file, "exec"), names)
        return eval(self.name, names)


def source_of(function) -> Source:
    """The source of a function, and of all that it uses.

    raises  ValueError that names what cannot be written down
    """
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.MethodType) and isinstance(owner, type):  # F.apply of an autograd function
        made, key, name = owner, owner.__name__, f"{owner.__name__}.{function.__name__}"
    else:
        made, key = function, getattr(function, "__name__", "answer")
        name = key = key if key.isidentifier() else "answer"  # a lambda has no name of its own
    parts: dict[str, str] = {}
    _collect(key, made, parts)
    return Source("\n\n".join(parts.values()) + "\n", name)


def _collect(name: str, value, parts: dict[str, str]):
    """Add to `parts` the text that binds a name to a value, after those that it needs."""
    if name in parts:
        return
    if isinstance(value, types.ModuleType) or _imported(value):
        parts[name] = _import(name, value)
    elif isinstance(value, types.FunctionType | type):
        parts[name] = ""  # a function may use itself
        text = _text(value)
        for used, its in _used(value).items():
            _collect(used, its, parts)
        if text.startswith("lambda"):
            text = f"{name} = {text}"
        elif name != value.__name__:
            text += f"\n{name} = {value.__name__}"
        parts.pop(name)
        parts[name] = text
    else:
        parts[name] = f"{name} = {_literal(name, value)}"


def _imported(value) -> bool:
    """Whether it is a function or class of a module that another process can import."""
    module = inspect.getmodule(value) if callable(value) else None
    return module is not None and module.__name__ != "__main__" and hasattr(module, getattr(value, "__name__", ""))


def _import(name: str, value) -> str:
    """The line that imports a module, a function or a class; from where it is public, so that it may move behind.

    >>> import hybridlab as hl
    >>> _import("mesh", hl.Mesh)
    'from hybridlab import Mesh as mesh'
    """
    own = value.__name__.rpartition(".")[2]
    for home in (sys.modules[module] for module in sorted(sys.modules) if PUBLIC.fullmatch(module)):
        if own in getattr(home, "__all__", ()) and vars(home).get(own) is value:
            return f"from {home.__name__} import {own} as {name}"
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    return f"from {value.__module__} import {own} as {name}"


def _text(value) -> str:
    """The text of a definition, from the file or the cell in which it stands."""
    methods = [value] if isinstance(value, types.FunctionType) else _methods(value)
    lines = linecache.getlines(methods[0].__code__.co_filename) if methods else []
    try:
        nodes = [node for node in ast.walk(ast.parse("".join(lines))) if _defines(node, value, methods)]
    except SyntaxError:
        nodes = []
    if not nodes:
        raise ValueError(f"the source of {getattr(value, '__name__', value)} is not known here")
    if isinstance(nodes[-1], ast.Lambda):  # the innermost of those around the code
        return ast.get_source_segment("".join(lines), nodes[-1])
    return textwrap.dedent("".join(lines[_first(nodes[0]) - 1 : nodes[0].end_lineno])).rstrip()


def _defines(node, value, methods) -> bool:
    line = methods[0].__code__.co_firstlineno
    if isinstance(value, type):
        return isinstance(node, ast.ClassDef) and node.name == value.__name__ and node.lineno <= line <= node.end_lineno
    if isinstance(node, ast.Lambda):
        return value.__name__ == "<lambda>" and node.lineno == line and _within(value.__code__, node.body)
    return isinstance(node, ast.FunctionDef) and node.name == value.__name__ and _first(node) == line


def _within(code: types.CodeType, node) -> bool:
    """Whether all of the code comes from inside a node: there may be several lambdas on one line."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    places = [place for place in code.co_positions() if None not in place and place[2:] != (0, 0)]
    return all(begin <= (line, column) and (last, until) <= end for line, last, column, until in places)


def _first(node) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _used(value) -> dict[str, object]:
    """The names from outside that a function, or a class, uses; with what they stand for."""
    functions = [value] if isinstance(value, types.FunctionType) else _methods(value)
    used = {}
    for function in functions:
        outside = function.__globals__
        words = _globals(function.__code__) | (_bases(value) if isinstance(value, type) else set())
        used |= {word: outside[word] for word in sorted(words) if word in outside and not hasattr(builtins, word)}
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        used |= {name: cell.cell_contents for name, cell in cells if name != "__class__"}
    return used


def _methods(value: type) -> list[types.FunctionType]:
    plain = (getattr(one, "__func__", one) for one in vars(value).values())
    return [one for one in plain if isinstance(one, types.FunctionType)]


def _globals(code: types.CodeType) -> set[str]:
    """The global names that code reads, in inner functions too."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(_globals(const) for const in code.co_consts if isinstance(const, types.CodeType)))


def _bases(value: type) -> set[str]:
    """The names from which the bases of a class are said: torch, in torch.autograd.Function."""
    (definition,) = ast.parse(_text(value)).body
    return {node.id for base in definition.bases for node in ast.walk(base) if isinstance(node, ast.Name)}


def _literal(name: str, value) -> str:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ValueError(f"it uses {name} ({kind}), which cannot be written down: make it inside") from None
    return repr(value)
