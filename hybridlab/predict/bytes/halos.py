"""Compute the elements that a convolution or pooling fetches from neighbours, after its operand is in the right layout.

If a convolution is sharded along rows, a rank computes a strip of outputs and has the same strip of inputs. It also
needs some rows around this strip. The fetch is a *window*: every rank has a span, and needs a longer one
(`core.where.spans`). Dims are fetched one after another, so corners come through a neighbour. Gradients use the same
messages in the opposite direction.

    x  V:Y ──moves──▶ V:Y ──window──▶ rows 3 to 9 of 4 to 8        forward: one message to each neighbour, or more
                                                                   backward: the same, and the receivers add

Intersections of spans give the number and the length of the messages. So if a strip is shorter than the reach of the
kernel, its rank also fetches from ranks that are not neighbours. If the outputs need only the rank's own rows, because
of the stride, it fetches nothing.

Source: Dryden et al. 2019, arXiv:1903.06681, section 3. See also `spatial` (counts pixels), `arrows` (the moves before
a halo) and `modes.products.layouts` (fetches halos).
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

    axes  those that shard the dim;  have, want  the span of each rank along them
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
    """The windows for a tensor in this state, one dim after another; `looks` are along sharded dims.

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
