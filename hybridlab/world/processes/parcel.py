"""The parcel: a function with its arguments and dependencies, packed for the ranks, or the reason why this is
impossible.

Source: cloudpickle, which also packs functions that were defined in a notebook.
"""

import inspect
import sys

from hybridlab.lazily import needed

LARGE = 100e6  # bytes; every rank gets a separate copy of the parcel


def pack(function, args, kwargs, ranks: int) -> bytes:
    """The bytes of one call; warns on stderr if there are many.

    raises  TypeError naming the variable that cannot be sent
    """
    cloudpickle = needed("cloudpickle")  # imported here, because importing hybridlab should stay quick

    name = getattr(function, "__name__", repr(function))
    try:
        parcel = cloudpickle.dumps((function, args, kwargs))
    except Exception as error:
        reason = _reason(_parts(function, args, kwargs)) or error
        raise TypeError(f"{name} cannot be sent to the ranks: {reason}") from error
    if len(parcel) > LARGE:
        sizes = {what: len(cloudpickle.dumps(value)) for what, value in _parts(function, args, kwargs).items()}
        what = max(sizes, key=sizes.get)
        print(
            f"{name} travels with {len(parcel) / 1e6:.0f} MB to each of {ranks} ranks, of which {what} has "
            f"{sizes[what] / 1e6:.0f} MB: let the ranks make or load it themselves",
            file=sys.stderr,
        )
    return parcel


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
    """The first variable that cannot be sent, if one alone is the reason."""
    cloudpickle = needed("cloudpickle")

    for what, value in parts.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            return f"{what} is a {kind} ({error}); make it inside the function"
    return ""
