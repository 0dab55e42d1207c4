"""The numbers of an answer as plain Python numbers: exercises ask for numbers, not for a type that holds them."""

from typing import Any

EXACT = 2**53  # above this, a float does not hold every whole number


def submitted(answer):
    """A student's answer in plain form; an array of one number is that number.

    >>> import numpy as np
    >>> submitted(np.array([4.0])), submitted([4.0])
    (4, [4])
    """
    read = plain(answer)
    return read[0] if isinstance(read, list) and len(read) == 1 and not isinstance(answer, list) else read


def plain(value):
    """A value with its arrays and tensors as lists, their scalars as numbers, and whole floats as integers.

    Lists, tuples and dicts are read to the end; all other values stay as they are.

    >>> import numpy as np
    >>> plain(np.array([[1.0, 2.5]])), plain((np.int64(3), 4.0, True)), plain({np.int64(0): "keep"})
    ([[1, 2.5]], (3, 4, True), {0: 'keep'})
    """
    if hasattr(value, "tolist") and not isinstance(value, type):  # numpy's and torch's, without loading them
        value = value.tolist()
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if type(value) is dict:
        return {plain(key): plain(one) for key, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value


def single(value: Any) -> Any:
    """The item of a list or tuple that has only one; all other values stay as they are.

    >>> single(["B"]), single((1, 2)), single("B")
    ('B', (1, 2), 'B')
    """
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def integer(value) -> int:
    """A whole number as an int; its digits as text count too.

    raises  ValueError or TypeError for anything else

    >>> integer("3"), integer(2.0)
    (3, 2)
    """
    if isinstance(value, float) and not value.is_integer():  # nor are inf and nan
        raise ValueError(f"{value} cannot be a rank or a count: give an integer")
    return int(value)
