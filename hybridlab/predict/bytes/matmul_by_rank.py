"""Compute the elements that each rank of a parallel matmul sends, for sizes that need not divide evenly.

The algorithms and grids are those of `matmul`, which has equal blocks and counts the busiest rank. Here blocks are as
even as possible. Each rank sends the parts of its blocks that others need; shifts and panels are not padded. Gathers
and scatters use a ring, with all parts padded to the longest (`world.talk.parts`).

In the backward, a rank sends back the gradient of each block that it has received.
"""

from typing import NamedTuple

from hybridlab.core.where.layout import even


class Sent(NamedTuple):
    """Elements that one rank sends: for the matmul, and for the gradients of A and B."""

    forward: int
    backward: int


def sent(algorithm: str, sizes: tuple[int, int, int], grid: tuple[int, int, int], place: tuple[int, int, int]) -> Sent:
    """The elements that the rank at (i, j, l) = place of a grid of (r, c, d) sends to multiply (m, k, n) = sizes.

    >>> sent("summa", (24, 36, 48), (2, 2, 1), (0, 0, 0))
    Sent(forward=648, backward=648)
    >>> [sent("cannon", (5, 5, 5), (2, 2, 1), (i, j, 0)).forward for i in (0, 1) for j in (0, 1)]
    [18, 16, 16, 20]
    """
    return RULES[algorithm](*sizes, *grid, *place)


def _rows(m, k, n, r, c, d, i, j, layer):
    around = (r - 1) * _longest(k, r) * n
    return Sent(around, around)


def _summa(m, k, n, r, c, d, i, j, layer):
    of_m, of_n = _part(m, r, i), _part(n, c, j)
    columns, lines = _part(k, c, j), _part(k, r, i)
    forward = (c - 1) * of_m * columns + (r - 1) * lines * of_n
    return Sent(forward, of_m * (k - columns) + (k - lines) * of_n)


def _cannon(m, k, n, q, c, d, i, j, layer):
    return _walk(k, q, range(q), i, j, _part(m, q, i), _part(n, q, j))


def _layers(m, k, n, q, c, d, i, j, layer):
    of_m, of_k, of_n = _part(m, q, i), _part(k, q, i), _part(n, q, j)
    around = (d - 1) * (_longest(of_m, d) * _part(k, q, j) + _longest(of_k, d) * of_n + _longest(of_m, d) * of_n)
    walked = _walk(k, q, range(layer * q // d, (layer + 1) * q // d), i, j, of_m, of_n)
    return Sent(around + walked.forward, around + walked.backward)


def _cube(m, k, n, r, c, d, i, j, layer):
    of_m, of_k, of_n = _part(m, r, i), _part(k, d, layer), _part(n, c, j)
    a, b = (c - 1) * _longest(of_m, c) * of_k, (r - 1) * _longest(of_k, r) * of_n
    around = a + b + (d - 1) * _longest(of_m, d) * of_n
    return Sent(around, around)


def _walk(k, q, steps, i, j, of_m, of_n):
    """Each move passes on a block of A and one of B. The first move aligns them, and may send nothing."""
    block = lambda number: _part(k, q, number % q)
    forward = backward = 0
    at_a, at_b = j, i  # index of the current block
    for step in steps:
        to_a = to_b = (i + j + step) % q
        forward += of_m * block(at_a) * (to_a != at_a) + of_n * block(at_b) * (to_b != at_b)
        backward += of_m * block(to_a) * (to_a != at_a) + of_n * block(to_b) * (to_b != at_b)
        at_a, at_b = to_a, to_b
    return Sent(forward, backward)


def _part(length, parts, number) -> int:
    begin, end = even(length, parts)[number]
    return end - begin


def _longest(length, parts) -> int:
    return -(-length // parts)


RULES = {"1d": _rows, "summa": _summa, "cannon": _cannon, "2.5d": _layers, "3d": _cube}
