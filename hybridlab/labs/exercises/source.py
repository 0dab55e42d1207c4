"""The source of a student's function: a text that defines the same function in another process.

A notebook's function uses names of other cells. The text contains them (`parts`): modules as imports, functions and
classes of the notebook with their own source, plain values as they are. The text is run once when it is written, so
that a grader gets the same result.
"""

import inspect
import linecache
import types
from dataclasses import dataclass

from hybridlab.labs.exercises.definition import AGAIN, ANSWER, is_definition
from hybridlab.labs.exercises.imports import import_of
from hybridlab.labs.exercises.parts import Parts
from hybridlab.labs.exercises.words import a_kind


@dataclass(frozen=True)
class Source:
    """Source text that, run alone, defines the object called `name`: a function, or an attribute of a class such as
    "F.apply"."""

    text: str
    name: str

    def load(self):
        """The function; raises any error of the text."""
        return eval(self.name, self.names())

    def names(self) -> dict[str, object]:
        """All names that the text defines; raises any error of the text."""
        file = f"{ANSWER}{self.name}>"
        linecache.cache[file] = len(self.text), None, self.text.splitlines(keepends=True), file
        names: dict[str, object] = {"__name__": "__answer__"}
        exec(compile(self.text, file, "exec", dont_inherit=True), names)
        return names


def source_of(function) -> Source:
    """The source of a function, and of all that it uses.

    raises  ValueError that names what cannot be written down
    """
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.MethodType) and isinstance(owner, type):  # F.apply of an autograd function
        made, key, name = owner, owner.__name__, f"{owner.__name__}.{function.__name__}"
    else:
        made, key = function, getattr(function, "__name__", "answer")
        name = key = key if key.isidentifier() else "answer"  # a lambda has no name
    if not is_definition(made) and not import_of(key, made):
        raise ValueError(f"{a_kind(made)} cannot be stored: answer with a function, def …, that calls it")
    parts = Parts()
    parts.bind(key, made, vars(inspect.getmodule(made) or object))
    source = Source(parts.text, name)
    _try(source, parts)
    return source


def _try(source: Source, parts: Parts):
    """Run the text, and check that it defines the function from which it was written."""
    try:
        names = source.names()
    except Exception as error:
        told = str(error).split("\n")[0][:120]
        raise ValueError(f"run alone, as it is submitted, it fails: {type(error).__name__}: {told}") from None
    for name, value in parts.values.items():
        if is_definition(value) and not import_of(name, value) and not _same(names[name], value):
            raise ValueError(f"the function {name} in memory differs from its cell: {AGAIN}")


def _same(one, other) -> bool:
    """Whether two functions with the functions that they wrap, or two classes' functions, have the same code."""
    if isinstance(other, type):
        its = [{name: getattr(part, "__func__", part) for name, part in vars(each).items()} for each in (one, other)]
        functions = [name for name, part in its[1].items() if isinstance(part, types.FunctionType)]
        return all(name in its[0] and _same(its[0][name], its[1][name]) for name in functions)
    if isinstance(other, types.FunctionType) and _shape(one.__code__) != _shape(other.__code__):
        return False
    inner = [getattr(each, "__wrapped__", None) for each in (one, other)]
    return None in inner or _same(*inner)


def _shape(code: types.CodeType) -> tuple:
    takes = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    plain = [(type(one), one) for one in code.co_consts if not isinstance(one, types.CodeType)]
    inner = [_shape(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return *takes, {*code.co_names, *code.co_freevars, *code.co_varnames}, plain, inner
