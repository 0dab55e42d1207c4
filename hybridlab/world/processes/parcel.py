"""The parcel: a function with its arguments and dependencies, packed for the ranks, or the reason why this is
impossible.

Source: cloudpickle, which also packs functions that were defined in a notebook.
"""

import inspect
import io
import random
import sys
from functools import cached_property, lru_cache
from types import FunctionType, MappingProxyType, ModuleType
from weakref import WeakKeyDictionary

from hybridlab.lazily import needed

LARGE = 100e6  # bytes; every rank gets a separate copy of the parcel


def pack(function, args, kwargs, ranks: int) -> bytes:
    """The bytes of one call; warns on stderr if there are many.

    raises  TypeError naming the variable that cannot be sent
    """
    name = getattr(function, "__name__", repr(function))
    try:
        parcel = _packed((function, args, kwargs))
    except Exception as error:
        reason = _reason(_parts(function, args, kwargs)) or error
        what = "the job" if module_of(function).startswith("hybridlab.") else name
        raise TypeError(f"{what} cannot be sent to the ranks: {reason}") from error
    if len(parcel) > LARGE:
        sizes = {what: len(_packed(value)) for what, value in _parts(function, args, kwargs).items()}
        what = max(sizes, key=sizes.get)
        print(
            f"{name} travels with {len(parcel) / 1e6:.0f} MB to each of {ranks} ranks, of which {what} has "
            f"{sizes[what] / 1e6:.0f} MB: let the ranks make or load it themselves",
            file=sys.stderr,
        )
    return parcel


def _packed(value) -> bytes:
    """A value as bytes. Modules that ranks cannot import are sent with their code; shared generators stay shared."""
    cloudpickle = needed("cloudpickle")  # imported here, because importing hybridlab should stay quick
    shared = {id(one): place for place, one in enumerate(shared_generators())}

    class Packer(cloudpickle.Pickler):
        def reducer_override(self, one):
            if id(one) in shared:
                return _shared, (shared[id(one)],)
            return _sent(one) or super().reducer_override(one)

    for module in [one for one in sys.modules.values() if isinstance(one, ModuleType) and _homeless(one)]:
        cloudpickle.register_pickle_by_value(module)
    with io.BytesIO() as file:
        Packer(file).dump(value)
        return file.getvalue()


def _sent(one):
    """The reduction of a thing that cloudpickle cannot send, or would send under a name that ranks do not know.

    Such things are functions of the user's program that functools or torch.compile has wrapped, and modules that exist
    only inside torch's binary, to which wrappers such as once_differentiable refer.
    """
    if isinstance(one, type(lru_cache(len))) and _has_no_file(one.__wrapped__):
        return _caching, (one.__wrapped__, one.cache_parameters())
    if isinstance(one, FunctionType) and hasattr(one, "_torchdynamo_orig_callable") and _has_no_file(one):
        return _itself, (one._torchdynamo_orig_callable,)  # each rank computes it uncompiled
    if isinstance(one, cached_property):
        return _property, (one.func, one.attrname)
    if isinstance(one, ModuleType) and one.__name__ not in sys.modules:
        outer, _, name = one.__name__.rpartition(".")
        return (getattr, (sys.modules[outer], name)) if hasattr(sys.modules.get(outer), name) else None
    if isinstance(one, MappingProxyType | WeakKeyDictionary):
        return type(one), (dict(one),)
    return None


def _has_no_file(function) -> bool:
    """Whether ranks cannot import a function, so that it is sent with its code."""
    with_code = {"__main__", *needed("cloudpickle").list_registry_pickle_by_value()}
    return not module_of(function) or function.__module__ in with_code


def _caching(function, how: dict):
    return lru_cache(**how)(function)


def _itself(one):
    return one


def _property(function, name: str) -> cached_property:
    made = cached_property(function)
    made.__set_name__(None, name)
    return made


def _homeless(module: ModuleType) -> bool:
    """Whether a rank cannot import a module: it has no file, or is the main program of a process that another one has
    started through multiprocessing.
    """
    if module.__name__ == "__mp_main__":
        return True
    known = sys.modules.get(module.__name__) is module and module.__name__ != "__main__"
    return known and module.__spec__ is None and not hasattr(module, "__file__") and "." not in module.__name__


def shared_generators() -> tuple:
    """The global generators of Python and numpy, to which functions such as random.random are bound; the copy of a
    generator in a parcel would draw its own numbers.
    """
    numpy = sys.modules.get("numpy.random")
    return (random.getstate.__self__, *([numpy.get_state.__self__] if numpy else []))


def _shared(place: int):
    needed("numpy.random")
    return shared_generators()[place]


def module_of(function) -> str:
    """The module that ranks import for a function that is sent by name; "" for one that is sent with its code."""
    by_name = "<" not in getattr(function, "__qualname__", "<")  # as in <lambda> and <locals>
    return (by_name and function.__module__) or ""  # a function defined by exec has no module


def _parts(function, args, kwargs) -> dict[str, object]:
    """The variables to send, by name: arguments, and the variables that the function uses from outside."""
    parts = {f"argument {place}": value for place, value in enumerate(args, start=1)}
    parts |= {f"argument {name}": value for name, value in kwargs.items()}
    if inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        parts |= {f"its variable {name}": value for name, value in (used.globals | used.nonlocals).items()}
    return parts


def _reason(parts: dict[str, object]) -> str:
    """The first variable that cannot be sent, if a single variable is the reason: of this package's own values, the
    field that is a user's.
    """
    for what, value in parts.items():
        try:
            _packed(value)
        except Exception as error:
            if _is_ours(value) and (inside := _reason({f"its {name}": one for name, one in vars(value).items()})):
                return inside
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            return f"{what} is a {kind} ({error}); make it inside the function, or import it from a file"
    return ""


def _is_ours(value) -> bool:
    return type(value).__module__.startswith("hybridlab.") and hasattr(value, "__dict__")
