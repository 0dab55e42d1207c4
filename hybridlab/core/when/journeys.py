"""Count the journeys of saved activations: each is a copy to the host or back, before an action of a program.

    0F0 0SWAP_OUT0 1F0 1B0 0SWAP_IN0 0B0
     0       0                  1     2

After an even number of journeys the activation is on the device, after an odd number on the host. F and R make it,
before all journeys. A loan has four journeys; the second and the third are in the list of the other rank:

    rank 0: 0F0 0SWAP_OUT0>3 … 0SWAP_IN0>3 0B0      rank 3: … 0SWAP_IN0>3 … 0SWAP_OUT0>3
             0       0              3       4                      1              2
"""

import numpy as np

from hybridlab.core.when.action import CODE, SWAPS
from hybridlab.core.when.law import makers

THERE = {"SWAP_IN": 1, "SWAP_OUT": 2}  # the journeys before those of the rank that lends its memory


def journeys(
    kind: np.ndarray,
    stage: np.ndarray,
    microbatch: np.ndarray,
    version: np.ndarray,
    lent: np.ndarray,
    there: np.ndarray,
) -> np.ndarray:
    """For every row of a schedule, the number of earlier swaps of the same (stage, microbatch, version).

    A forward and its backward are on one rank, and rows are ordered rank after rank, each in its program's order.

    lent   flags of the swaps to or from another rank;  there  flags of those in the list of that other rank

    >>> kinds = np.array([CODE[kind] for kind in ("F", "SWAP_OUT", "SWAP_IN", "B")])
    >>> journeys(kinds, *np.zeros((5, 4), dtype=int)).tolist()
    [0, 0, 1, 2]
    """
    swaps = _among(kind, SWAPS) & ~(lent & there)
    if not swaps.any():
        return np.zeros(len(kind), dtype=np.int32)
    back = len(THERE) * (lent & ~there & _among(kind, ["SWAP_IN"]))  # the other rank's journeys precede it
    swaps = swaps + back
    columns = np.stack([stage, microbatch, version])
    order = np.lexsort(columns)  # the rows of one forward together, in their order
    first = np.append(True, np.any(np.diff(columns[:, order]), axis=0))
    before = np.cumsum(swaps[order]) - swaps[order]
    made = np.empty_like(before)
    made[order] = before - np.maximum.accumulate(np.where(first, before, 0))
    made += back
    for name, number in THERE.items():
        made[lent & there & _among(kind, [name])] = number
    made[_among(kind, makers("saved"))] = 0
    return made


def _among(kind, names):
    return np.isin(kind, [CODE[name] for name in names])
