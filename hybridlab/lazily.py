"""Names of a package that are loaded when they are first used."""

import importlib
import sys
from collections.abc import Callable


def lazily(package: str, home: dict[str, str]) -> Callable:
    """The `__getattr__` of a package whose names live in other modules: home is {name: module below the package}.

    >>> lazily("hybridlab.core", {"Mesh": "mesh"})("Mesh").__module__
    'hybridlab.core.mesh'
    """

    def __getattr__(name):
        if name not in home:
            raise AttributeError(f"{package} has no {name!r}: it has {', '.join(sorted(home))}")
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
