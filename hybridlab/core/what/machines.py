"""A machine, named in the catalog or described in a file.

    like = "h200"        # a machine from the catalog; fields that the file leaves out have its values
    share = 0.63         # of the peak, measured
    inside = 380e9       # bytes/s

Relatives: `measuring.machine_suite`, which measures a machine and writes such a file.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hybridlab.core.what.catalog import MACHINES, Machine, machine

LIKE = "like"
POSITIVE = ("node", "peak", "memory", "bandwidth", "inside", "across")


def machine_of(machine_or_name: str | Path | Machine) -> Machine:
    """The machine with this name, or described in this file; a `Machine` is returned unchanged.

    machine_or_name  a `Machine`, its name in the catalog, or a TOML file

    raises  ValueError for a name that is not in the catalog, and for a file that does not describe a machine
    """
    if isinstance(machine_or_name, Machine):
        return machine_or_name
    name = str(machine_or_name)
    if name.lower().endswith(".toml"):
        return read(name)
    try:
        return machine(name)
    except ValueError as error:
        raise ValueError(f"{error}, or give a TOML file that describes one") from None


def recognised(device: str) -> str:
    """The catalog's name for a device, given the name that its driver reports; "" if the catalog lacks the device.

    >>> recognised("NVIDIA A100-SXM4-80GB"), recognised("AMD Instinct MI300X"), recognised("NVIDIA GeForce RTX 4090")
    ('a100', 'mi300x', '')
    """
    words = re.findall(r"[a-z0-9]+", device.lower())
    return next((name for name in MACHINES if name in words), "")


def read(file: str | Path) -> Machine:
    """The machine that a TOML file describes. Its keys are the fields of `Machine`, and `like`.

    file  a path, as `measure --suite machine` writes it

    Without `like`, the file needs node, peak, memory, bandwidth and inside; across is then as fast as inside.

    raises  ValueError if the file cannot be read, has an unknown key, lacks a number or has an impossible one
    """
    wrong = lambda why: ValueError(f"machine={str(file)!r} is invalid: {why}")
    try:
        given = tomllib.loads(Path(file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise wrong(f"{why}. Give a TOML file, as `measure --suite machine` writes it.") from None
    like = given.pop(LIKE, None)
    if like is not None and (not isinstance(like, str) or like not in MACHINES):
        raise wrong(f"there is no machine {like!r}. Choose like = one of {', '.join(MACHINES)}.")
    if unknown := [key for key in given if key not in _TYPES]:
        near = get_close_matches(unknown[0], (LIKE, *_TYPES), n=1) or (LIKE, *_TYPES)
        raise wrong(f"a machine has no {unknown[0]!r}. Choose {', '.join(near)}.")
    for key, value in given.items():
        if why := _refused(key, value):
            raise wrong(f"{key} = {value!r} {why}.")
    said = {key: str(file) for key in given if key != "sources"} | given.pop("sources", {})
    own: dict[str, Any] = {"name": Path(file).stem, "label": given.get("name", Path(file).stem)} | given
    if "latency" in own:
        own["latency"] = tuple(own["latency"])
    if like:
        return _fitting(replace(MACHINES[like], **own, sources=MACHINES[like].sources | said), wrong)
    own = {"across": own.get("inside"), "latency": (0.0, 0.0), "sources": said} | own
    if missing := [one.name for one in fields(Machine) if one.default is MISSING and own.get(one.name) is None]:
        raise wrong(f"it lacks {' and '.join(missing)}. Add them, or like = a machine from the catalog.")
    return _fitting(Machine(**own), wrong)


def _fitting(found: Machine, wrong: Callable[[str], ValueError]) -> Machine:
    """A machine whose numbers fit together."""
    if found.pod % found.node:
        raise wrong(
            f"a pod of {found.pod} devices does not hold whole nodes of {found.node}. Give pod = 0 or whole nodes."
        )
    if found.oversubscription < 1:
        raise wrong(f"oversubscription = {found.oversubscription} is less than 1. Give 1 or more.")
    return found


def written(fields: Mapping[str, Any], like: str = "", sources: Mapping[str, str] | None = None) -> str:
    """The text of a file that describes a machine.

    fields  the fields of `Machine`;  like  a machine from the catalog, or ""
    sources  {field: the source of its number}

    >>> print(written({"share": 0.6}, "h200", {"share": "measured, 2026"}))
    like = "h200"
    share = 0.6  # measured, 2026
    <BLANKLINE>
    """
    notes = {key: f"  # {source}" for key, source in (sources or {}).items()}
    every = ({LIKE: like} if like else {}) | dict(fields)
    return "".join(f"{key} = {_toml(value)}{notes.get(key, '')}\n" for key, value in every.items())


def _toml(value: str | float | tuple[float, ...]) -> str:
    return f'"{value}"' if isinstance(value, str) else str([*value]) if isinstance(value, tuple) else str(value)


_TYPES = {one.name: one.type for one in fields(Machine) if one.name != LIKE}
_TEXTS = ("name", "label")


def _refused(key: str, value: Any) -> str:
    """Why a value is invalid for this field; "" if it is valid."""
    number = lambda one: isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < float("inf")
    if key in _TEXTS:
        return "" if isinstance(value, str) else "is not a string"
    if key == "sources":
        return "" if isinstance(value, dict) else "is not a table"
    if key == "latency":
        fits = isinstance(value, list) and len(value) == 2 and all(map(number, value))
        return "" if fits else "is not two numbers of seconds, inside a node and across nodes"
    if not number(value) or (key in POSITIVE and value == 0):
        return "is not a number above 0" if key in POSITIVE else "is not a number of 0 or more"
    if key in ("node", "pod") and not isinstance(value, int):
        return "is not a whole number"
    return "is more than the whole" if key == "share" and value > 1 else ""
