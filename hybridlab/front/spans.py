"""Intervals of a dim: equal parts, the inputs of a convolution, chunks of a sequence; the groups of ranks along axes of
a mesh; and windows, which fetch the intervals that a rank needs.
"""

from hybridlab.core.where.chunks import Chunks
from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import _group as group_along
from hybridlab.core.where.spans import Sight, overlap, wanted
from hybridlab.doors import AMOUNT, COUNT, FEW, door, doors, interval, intervals
from hybridlab.world.talk.windows import Windows, fetch, fold, turned, widened

__all__ = [
    "Chunks",
    "Sight",
    "Windows",
    "even",
    "fetch",
    "fold",
    "group_along",
    "overlap",
    "turned",
    "wanted",
    "widened",
]

even = door(even, length=AMOUNT, parts=FEW, whole=COUNT)
overlap = door(overlap, one=interval, other=interval)
turned, wanted, widened = doors(turned, wanted, widened, spans=intervals, before=AMOUNT, after=AMOUNT)
group_along = door(group_along)
