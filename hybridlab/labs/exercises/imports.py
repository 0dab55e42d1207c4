"""The line that imports a module, a function or a class, from its public name, because its module may move."""

import builtins
import inspect
import re
import sys
import sysconfig
import types
from pathlib import Path

import hybridlab

PUBLIC = re.compile(r"hybridlab(\.front\.\w+|\.labs\.\w+)?")  # where public names are
PACKAGES = {Path(sysconfig.get_path(one)) for one in ("stdlib", "platstdlib", "purelib", "platlib")}
PACKAGES |= {Path(hybridlab.__file__).parent}
SITES = {"site-packages", "dist-packages"}


def import_of(name: str, value) -> str:
    """The line that binds a name to an object of a package; "" if the object is from no package.

    raises  ValueError for a module that is a file of the student's

    >>> import hybridlab as hl
    >>> import_of("mesh", hl.Mesh)
    'from hybridlab import Mesh as mesh'
    """
    if isinstance(value, types.ModuleType) and not _installed(value):
        raise ValueError(
            f"it uses the module {value.__name__}, your own file, which is not submitted: copy the parts that you "
            "need into a cell"
        )
    if not isinstance(own := getattr(value, "__name__", None), str):
        return ""
    own = own.rpartition(".")[2]
    for public in (sys.modules[module] for module in sorted(sys.modules) if PUBLIC.fullmatch(module)):
        if own in getattr(public, "__all__", ()) and vars(public).get(own) is value:
            return f"from {public.__name__} import {own} as {name}"
    if not (home := value if isinstance(value, types.ModuleType) else _home(value)):
        return ""
    if home is value:
        return f"import {value.__name__} as {name}"
    return f"from {home.__name__} import {own} as {name}"


def _home(value) -> types.ModuleType | None:
    """The module of a package from which a function or class can be imported."""
    own = getattr(value, "__name__", None)
    if not callable(value) or not isinstance(own, str):
        return None
    module = inspect.getmodule(value)
    if module is None and isinstance(value, types.BuiltinFunctionType | types.BuiltinMethodType):
        module = _holder(own, value)  # for example torch.zeros, which does not know its module
    if module and _installed(module) and getattr(module, own, None) is value:
        return module
    return None


def _holder(own: str, value) -> types.ModuleType | None:
    """The module with the shortest public name that has it."""
    public = [name for name in sys.modules if not any(part.startswith("_") for part in name.split("."))]
    homes = (sys.modules[name] for name in sorted(public, key=lambda name: (name.count("."), name)))
    return next((one for one in homes if isinstance(one, types.ModuleType) and vars(one).get(own) is value), None)


def _installed(module: types.ModuleType) -> bool:
    """Whether a module is also on other machines with this package: it is neither a notebook nor a file next to one."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return module is builtins or module.__name__ in sys.builtin_module_names or hasattr(module, "__path__")
    path = Path(file)
    return bool(SITES & set(path.parts)) or any(path.is_relative_to(one) for one in PACKAGES)
