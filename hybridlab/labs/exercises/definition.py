"""A definition: the text of a function or a class, from its file or cell.

It is moved to the left and otherwise stays as it is: comments, strings of several lines, decorators. A class of a
notebook does not know its cell; it is the newest one that defines all that the class has.
"""

import ast
import enum
import functools
import inspect
import linecache
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

ANSWER = "<answer "  # the name of the file of a loaded source; it is not a cell
DEFS = ast.FunctionDef | ast.AsyncFunctionDef
AGAIN = "run its cell again, then answer again"


class Definition(NamedTuple):
    """The text of a function or a class; the name that it binds, "" for a lambda; the functions that it defines."""

    text: str
    name: str
    functions: list[types.FunctionType]


def is_definition(value) -> bool:
    """Whether a value comes from a def, a lambda or a class, decorated or not."""
    return isinstance(value, types.FunctionType | type) or isinstance(
        getattr(value, "__wrapped__", None), types.FunctionType
    )


def definition_of(value) -> Definition:
    """The definition of a function or a class.

    raises  ValueError if it is not known, or is not the code that runs
    """
    return _of_class(value) if isinstance(value, type) else _of_function(value)


# --- functions ----------------------------------------------------------------------------------------------------


def _of_function(value) -> Definition:
    inner = inspect.unwrap(value)
    whole = _whole(inner.__code__.co_filename)
    nodes = [node for node in _nodes(whole) if _defines(node, inner.__code__)]
    if not nodes:
        raise ValueError(f"the source of {inner.__name__} is not available: {AGAIN}")
    node = nodes[-1]  # the innermost of those around the code
    if isinstance(node, ast.Lambda):
        text = ast.get_source_segment(whole, node) or ""
        return Definition(f"({text})" if "\n" in text else text, "", [inner])
    decorated = bool(node.decorator_list)
    if inner is not value and not decorated and not _written_beside(value, inner):
        raise ValueError(
            f"{inner.__name__} was wrapped by another function: write the wrapper as a decorator, "
            f"@… in the line above def {inner.__name__}"
        )
    if inner is not value and not decorated:
        return _of_function(_bare(value))
    first = _first(node) if inner is not value else node.lineno  # a known wrapper needs its function without decorators
    return Definition(_to_the_left(whole, first, node.end_lineno), node.name, [inner])


def _written_beside(value, inner) -> bool:
    """Whether the wrapper around a function comes from the same notebook."""
    return isinstance(value, types.FunctionType) and value.__globals__ is inner.__globals__


def _bare(value: types.FunctionType) -> types.FunctionType:
    """The function without the attribute that says that it wraps another one."""
    bare = types.FunctionType(value.__code__, value.__globals__, value.__code__.co_name, None, value.__closure__)
    bare.__defaults__, bare.__kwdefaults__ = value.__defaults__, value.__kwdefaults__
    return bare


def _defines(node, code: types.CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno and _within(code, node.body)
    return isinstance(node, DEFS) and node.name == code.co_name and _first(node) == code.co_firstlineno


def _within(code: types.CodeType, node: ast.expr) -> bool:
    """Whether the node contains all of the code: there may be several lambdas on one line."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    places = [place for place in code.co_positions() if None not in place and place[2:] != (0, 0)]
    return all(begin <= (line, column) and (last, until) <= end for line, last, column, until in places)


def _first(node) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


# --- classes ------------------------------------------------------------------------------------------------------


def _of_class(value: type) -> Definition:
    functions = list(_functions(value))
    for file in _files(value, functions):
        whole = _whole(file)
        its = [one for one in functions if one.__code__.co_filename == file]
        for node in _nodes(whole):
            if isinstance(node, ast.ClassDef) and node.name == value.__name__ and _fits(node, value, its):
                own = [one for one in its if node.lineno <= one.__code__.co_firstlineno <= (node.end_lineno or 0)]
                return Definition(_to_the_left(whole, _first(node), node.end_lineno), node.name, own)
    raise ValueError(f"the source of {value.__name__} is not available: {AGAIN}")


def _functions(value: type) -> Iterator[types.FunctionType]:
    """The functions of a class, of its properties, and of the classes in it."""
    for one in vars(value).values():
        one = getattr(one, "__func__", one)
        held = (one.fget, one.fset, one.fdel) if isinstance(one, property) else (one,)
        held = (one.func,) if isinstance(one, functools.cached_property) else held
        yield from (inspect.unwrap(each) for each in held if isinstance(each, types.FunctionType))
        if isinstance(one, type) and one.__qualname__.startswith(f"{value.__qualname__}."):
            yield from _functions(one)


def _files(value: type, functions) -> list[str]:
    """Places where a class may be defined: those of its functions, its module, or a cell, the newest first."""
    module = getattr(sys.modules.get(value.__module__), "__file__", None)
    cells = [file for file in reversed(linecache.cache) if not file.startswith(ANSWER)]
    known = [*(one.__code__.co_filename for one in functions), *([module] if module else []), *cells]
    word = re.compile(rf"\bclass\s+{value.__name__}\b")
    return [file for file in dict.fromkeys(known) if word.search(_whole(file))]


def _fits(node: ast.ClassDef, value: type, functions) -> bool:
    """Whether this node could have made the class: it has these functions, or else these names with these constants."""
    if functions and not any(node.lineno <= one.__code__.co_firstlineno <= (node.end_lineno or 0) for one in functions):
        return False
    return all(_has(value, name, said) for name, said in _bound(node))


def _bound(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that the body of a class binds, with the expressions of their values."""
    for one in node.body:
        if isinstance(one, DEFS | ast.ClassDef):
            yield one.name, None
        elif isinstance(one, ast.Assign):
            yield from ((name.id, one.value) for name in one.targets if isinstance(name, ast.Name))
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id, one.value


def _has(value: type, name: str, said: ast.expr | None) -> bool:
    if name.startswith("__"):
        return True
    its = getattr(value, "_field_defaults", {}).get(name, getattr(value, name, None))
    its = its.value if isinstance(its, enum.Enum) else its
    if isinstance(said, ast.Constant) and type(said.value) is type(its):
        return said.value == its
    return hasattr(value, name) or name in getattr(value, "__annotations__", {})


# --- text ---------------------------------------------------------------------------------------------------------


def _whole(file: str) -> str:
    return "".join(linecache.getlines(file))


def _nodes(text: str) -> list[Any]:
    """All nodes of a text, the outer ones first; none if the text is not Python."""
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return []


def _to_the_left(text: str, first: int, last: int | None) -> str:
    """Some lines of a text, not indented."""
    text = "\n".join(text.split("\n")[first - 1 : last]).rstrip()
    margin = len(text) - len(text.lstrip())
    block = shifted(f"if True:\n{text}", -margin) if margin else text
    return block.removeprefix("if True:\n")


def shifted(text: str, by: int) -> str:
    """Python code, indented by more spaces, or by fewer if negative; the inside of strings does not change.

    >>> print(shifted("if True:\\n  x = '''a\\n  b'''", -2))
    if True:
    x = '''a
      b'''
    """
    inside = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
            inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    lines = text.split("\n")
    return "\n".join(line if number in inside else _moved(line, by) for number, line in enumerate(lines, 1))


def _moved(line: str, by: int) -> str:
    if by < 0:
        return re.sub(rf"^[ \t]{{0,{-by}}}", "", line)
    return " " * by + line if line.strip() else line


def replaced(text: str, pieces: list[tuple[ast.expr, str]]) -> str:
    """A text in which some expressions are replaced by other words; no expression is inside another one."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    place = lambda line, column: starts[line - 1] + len(lines[line - 1].encode()[:column].decode())
    for node, words in sorted(pieces, key=lambda piece: (-piece[0].lineno, -piece[0].col_offset)):
        begin, end = place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)
        text = text[:begin] + words + text[end:]
    return text
