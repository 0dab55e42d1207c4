"""Amount: a number, or an array with one number for each of many plans. A formula is written once for both.

For a type checker it is `Any`: arithmetic on numpy arrays looks like that on numbers, and no union type expresses this.
"""

from typing import Any

import numpy as np

Amount = Any


def where(condition: Amount, one: Amount, other: Amount) -> Amount:
    """One amount where a condition holds, the other elsewhere, like `np.where`; for two numbers it returns a number.

    >>> where(True, 3, 4) + 1, where(np.array([True, False]), 3, 4)
    (np.int64(4), array([3, 4]))
    """
    return np.where(condition, one, other)[()]
