"""Names of a package that are loaded when they are first used."""

import importlib
import sys
from collections.abc import Callable


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
            module = importlib.import_module(f"{package}.{modules[name]}")
            setattr(sys.modules[package], name, module)
            return module
        if name not in home:
            raise AttributeError(f"{package} has no {name!r}: it has {', '.join(sorted([*home, *modules]))}")
        module = importlib.import_module(f"{package}.{home[name]}")
        for one in (one for one in home if home[one] == home[name]):  # one of them may be called as its module is
            setattr(sys.modules[package], one, getattr(module, one))
        return getattr(module, name)

    return __getattr__


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
