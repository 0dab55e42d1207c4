"""Halos of operators: the elements that a convolution or pooling fetches from neighbours, once its operand has the
right layout.

A convolution that is cut along rows makes a strip of outputs, and has the strip of inputs that lies alike. What it
sees beyond is a *window*: every rank has a span, and wants a longer one (`core.where.spans`). Dims follow one another,
so what lies across a corner comes by way of a neighbour. Gradients go home: the same messages the other way round.

    x  V:Y ──moves──▶ V:Y ──window──▶ rows 3 to 9 of 4 to 8        there: one message to each neighbour, or more
                                                                   back:  the same, and sums where they arrive

How many messages, and how long each is, follows from intersections of spans. So a strip that is shorter than a kernel
reaches fetches from ranks further off, and a stride that keeps to its own rows fetches nothing.

Source: Dryden et al. 2019, arXiv:1903.06681, section 3. Relatives: `spatial`, which counts pixels; `arrows`, whose ends
these are; `modes.products.layouts`, which fetches them.
"""

import math
from collections import Counter
from functools import cache
from typing import NamedTuple

from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Look, Span, wanted
from hybridlab.core.where.states import State, cutters
from hybridlab.predict.bytes.spatial import moved


class Window(NamedTuple):
    """The elements fetched along one dim.

    axes  those that cut the dim;  have, want  the span of each place along them
    messages  (sender, receiver, elements), in the forward; gradients go from receivers to senders
    """

    dim: str
    axes: tuple[str, ...]
    have: tuple[Span, ...]
    want: tuple[Span, ...]
    messages: tuple[tuple[int, int, int], ...]

    def busiest(self, backward: bool = False) -> int:
        """Elements that the busiest rank sends."""
        sent: Counter[int] = Counter()
        for sender, receiver, elements in self.messages:
            sent[receiver if backward else sender] += elements
        return max(sent.values(), default=0)


@cache
def halo(dims: str, lengths: tuple[int, ...], state: State, looks: tuple[Look, ...], mesh: Mesh) -> tuple[Window, ...]:
    """The windows that bring what is seen of a tensor in this state, one dim after the other; `looks` are along dims
    that are cut.

    >>> from hybridlab.core.where.spans import Sight
    >>> rows = Look("Y", "Y", Sight(3, before=1, after=1))
    >>> (window,) = halo("BCYX", (2, 4, 8, 8), ("V:Y",), (rows,), Mesh(h=2))
    >>> window.want, window.messages
    (((0, 5), (3, 8)), ((1, 0, 64), (0, 1, 64)))
    """
    cut, sizes = cutters(state, mesh), dict(zip(dims, lengths))
    seen = [look.of for look in looks]
    spans = [even(sizes[dim], mesh.length(cut[dim])) for dim in seen]
    beside = math.prod(sizes[dim] // mesh.length(cut.get(dim, "")) for dim in dims if dim not in seen)
    pixels = moved(spans, [look.sight for look in looks])
    messages: dict[str, list] = {dim: [] for dim in seen}
    for group in mesh.groups(tuple(axis for dim in seen for axis in cut[dim].split("+"))) if pixels else ():
        rank = {tuple(mesh.place(one, cut[dim]) for dim in seen): one for one in group}
        for (sender, receiver), count in pixels.items():
            along = next(dim for dim, one, other in zip(seen, sender, receiver) if one != other)
            messages[along].append((rank[sender], rank[receiver], count * beside))
    every = (
        Window(look.of, tuple(cut[look.of].split("+")), have, wanted(have, look.sight)[1], tuple(messages[look.of]))
        for look, have in zip(looks, spans)
    )
    return tuple(window for window in every if window.have != window.want)
