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
