"""Write the stub of the package, hybridlab/__init__.pyi, for editors.

    python -m tools.stub

Editors know names that are loaded when first used only from a stub. Names are imported from their modules. Functions
with arguments from a table (`hybridlab.signatures`) are written with their signature and docstring, since editors do
not run the code that makes these.
"""

import inspect
import pathlib
import re
import textwrap

import hybridlab
from hybridlab.signatures import is_spelled

FILE = pathlib.Path(hybridlab.__file__).with_name("__init__.pyi")
HEAD = '"""The public names of hybridlab, for editors. Written by `python -m tools.stub`; a test compares."""\n'
FOREIGN = {  # names in types, and where they come from
    "Any": "typing",
    "Callable": "collections.abc",
    "Literal": "typing",
    "Path": "pathlib",
    "Sequence": "collections.abc",
    "nn": "torch",
}


def stub() -> str:
    """The text of the file."""
    verbs = {name: getattr(hybridlab, name) for name in hybridlab._HOME}
    written = [_written(name, one) for name, one in verbs.items() if is_spelled(one)]
    taken = [_taken(name, one) for name, one in verbs.items() if not is_spelled(one)]
    taken += [f"from hybridlab.front import {name} as {name}" for name in hybridlab._NAMESPACES]
    words = set(
        re.findall(r"[A-Za-z_]+", " ".join(line for one in written for line in one.split('"""')[0].splitlines()))
    )
    needed = [f"from {home} import {name}" for name, home in FOREIGN.items() if name in words]
    needed += [
        f"from {_home_of(name)} import {name}" for name in sorted(words - hybridlab._HOME.keys()) if _home_of(name)
    ]
    text = HEAD + "\n" + "\n".join(sorted({*needed, *taken})) + "\n\n__version__: str\n\n" + "\n\n".join(written) + "\n"
    return text


def _written(name: str, verb) -> str:
    """A function as a definition without a body."""
    signature = inspect.signature(verb)
    parts, star = [], False
    for one in signature.parameters.values():
        parts += ["*"] * (one.kind == one.KEYWORD_ONLY and not star)
        star = star or one.kind == one.KEYWORD_ONLY
        parts.append(
            f"{one.name}: {one.annotation}" + ("" if one.default is one.empty else f" = {_value(one.default)}")
        )
    told = textwrap.indent(inspect.getdoc(verb).replace("\\", "\\\\"), "    ").strip()
    return (
        f"def {name}(\n"
        + "".join(f"    {one},\n" for one in parts)
        + f') -> {signature.return_annotation}:\n    """{told}\n    """\n'
    )


def _taken(name: str, one) -> str:
    """The import of a name; for a wrapper, the wrapped function, which has the arguments."""
    home = getattr(inspect.unwrap(one), "__module__", "hybridlab")
    home = home if home.startswith("hybridlab.") else f"hybridlab.{hybridlab._HOME[name]}"
    return f"from {home} import {name} as {name}"


def _value(default) -> str:
    """A default in the stub: plain values as they are."""
    return repr(default) if isinstance(default, str | int | float | bool | None) else "..."


def _home_of(name: str) -> str:
    """The module of a class in a function's type that is not public."""
    for verb in map(hybridlab.__getattr__, hybridlab._HOME):
        found = getattr(inspect.getmodule(inspect.unwrap(verb)), name, None) if is_spelled(verb) else None
        if inspect.isclass(found) and found.__module__.startswith("hybridlab."):
            return found.__module__
    return ""


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")
