"""Amount: a number, or an array with one number for each of many plans. A formula is written once for both.

To a type checker it is `Any`: numpy's arithmetic on arrays is that on numbers, and no union of the two says so.
"""

from typing import Any

import numpy as np

Amount = Any


def where(condition: Amount, one: Amount, other: Amount) -> Amount:
    """One amount where a condition holds, the other elsewhere: `np.where` that keeps numbers numbers.

    >>> where(True, 3, 4) + 1, where(np.array([True, False]), 3, 4)
    (np.int64(4), array([3, 4]))
    """
    return np.where(condition, one, other)[()]
