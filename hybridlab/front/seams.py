"""The attributes of a layer that a mode may use or replace, declared as a base class: `class Mine(nn.Module,
hl.seams.Attends)`.
"""

from hybridlab.core.what.seams import (
    Attends,
    Branches,
    ByExpert,
    Dispatches,
    Draws,
    DrawsByPlace,
    Features,
    Normalises,
    Positions,
    Routes,
    Seam,
    Tallies,
    declared,
    draws_of,
)
from hybridlab.doors import door


def has_modules(name: str, value: object) -> None:
    """Raise ValueError unless this is an nn.Module; torch need not be loaded for that."""
    if not callable(getattr(value, "modules", None)):
        raise ValueError(f"{name}={value!r} is not a module: give an nn.Module")


__all__ = [
    "Attends",
    "Branches",
    "ByExpert",
    "Dispatches",
    "Draws",
    "DrawsByPlace",
    "Features",
    "Normalises",
    "Positions",
    "Routes",
    "Seam",
    "Tallies",
    "declared",
    "draws_of",
]

declared = door(declared)
draws_of = door(draws_of, module=has_modules)
