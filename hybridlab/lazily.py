"""Load the names of a package when they are first used, with an error if a dependency is not installed."""

import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType

WITH_TORCH = tuple(f"hybridlab.{floor}." for floor in ("world", "runtime", "modes", "training", "measuring", "labs"))


def lazily(package: str, home: dict[str, str], modules: dict[str, str] | None = None) -> Callable:
    """The `__getattr__` of a package whose names live in other modules: home is {name: module below the package}.

    modules  {name: module below the package} of names that stand for a whole module

    >>> lazily("hybridlab.core", {"Mesh": "where.mesh"})("Mesh").__module__
    'hybridlab.core.where.mesh'
    >>> lazily("hybridlab.core", {}, {"boxes": "where.mesh"})("boxes").__name__
    'hybridlab.core.where.mesh'
    """
    modules = modules or {}

    def __getattr__(name):
        if name in modules:
            module = needed(f"{package}.{modules[name]}")
            _show_public(module)
            setattr(sys.modules[package], name, module)
            return module
        if name not in home:
            raise AttributeError(f"{package} has no {name!r}: it has {', '.join(sorted([*home, *modules]))}")
        module = needed(f"{package}.{home[name]}")
        for one in (one for one in home if home[one] == home[name]):  # one of them may have the name of its module
            setattr(sys.modules[package], one, getattr(module, one))
        return getattr(module, name)

    return __getattr__


def _show_public(module) -> None:
    """Let `dir`, and so Tab, name only what is public in a module, and in the modules that it makes public."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, one in vars(module).items() if _is_ours(getattr(one, "__module__", None))]
    module.__dir__ = lambda: sorted(name for name in names if not name.startswith("_"))
    for one in map(vars(module).get, names):
        if isinstance(one, ModuleType):
            _show_public(one)


def _is_ours(module: str | None) -> bool:
    return isinstance(module, str) and module.startswith("hybridlab.") and module != "hybridlab.doors"


def room(package: str, names: dict[str, str], modules: str = "") -> tuple[Callable, list[str]]:
    """(the `__getattr__`, the `__all__`) of a package that says for each of its modules which names are there.

    names    {module below the package: its names, with spaces between}
    modules  those that are names themselves, with spaces between

    >>> load, every = room("hybridlab.core", {"where.mesh": "Mesh boxes", "where.layout": "Layout"})
    >>> load("Layout").__module__, every
    ('hybridlab.core.where.layout', ['Mesh', 'boxes', 'Layout'])
    """
    home = {name: module for module, its in names.items() for name in its.split()}
    whole = {module: module for module in modules.split()}
    return lazily(package, home, whole), [*home, *whole]


def needed(module: str):
    """The module of this name, imported.

    raises  a ModuleNotFoundError that says how to install a missing package that this module or its imports need

    >>> needed("math").pi
    3.141592653589793
    """
    if module.startswith(WITH_TORCH):
        refuse_lost_folder()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if sentence := how_to_install(error):
            raise ModuleNotFoundError(sentence, name=error.name) from None
        raise


def refuse_lost_folder():
    """Raise ValueError if the current folder was deleted: there, torch ends a process while it loads.

    >>> refuse_lost_folder()
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ValueError("the current folder was deleted, and torch cannot load there: start in another one") from None


def how_to_install(error: ModuleNotFoundError) -> str:
    """How to install the missing package, if it belongs to one of hybridlab's extras; otherwise "".

    >>> how_to_install(ModuleNotFoundError(name="safetensors"))
    "safetensors is not installed: pip install 'hybridlab[torch]' (in a checkout: make setup)"
    """
    missing = (error.name or "").partition(".")[0]
    try:
        lines = importlib.metadata.requires("hybridlab") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that was never installed
        return f"{missing} is not installed: run make setup" if missing != "hybridlab" else ""
    for line in lines:
        found = re.match(r"([\w-]+).*extra == ['\"](\w+)", line)
        if found and found[1].lower() == missing.lower():
            return f"{missing} is not installed: pip install 'hybridlab[{found[2]}]' (in a checkout: make setup)"
    return ""
