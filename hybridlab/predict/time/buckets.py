"""Predict the times of gradient reductions during a backward, and their exposed part.

The three forms of data parallelism (see `modes.data_parallel`) are three inputs of one function, `overlap`. `after`
waits until the backward has ended and sends every gradient alone. `each` sends every gradient alone as soon as it is
ready. `buckets` sends the packs of the layout, each as one buffer. The layout's records, which the ranks use too,
define these packs and their order.

Assumptions: reductions run one after another on the same links. α and β determine the time of each. Computing and
sending do not slow each other down. On one machine they do, and a measurement shows by how much.

Source: Li et al. 2020, arXiv:2006.15704. See also `predict.bytes.collectives` (the cost of one reduction),
`show.timelines.buckets` (the picture) and notebook 21.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.where.layout import Layout
from hybridlab.predict.bytes.collectives import Link

PASSES = 4  # floating-point operations per weight and token in a backward: two matmuls, each a multiply and an add


class Bucket(NamedTuple):
    """One reduction: the parameters whose gradients are sent together, and its times in seconds.

    full   when its last gradient is ready;  begin  when its reduction starts: in order, and when the link is free
    """

    names: tuple[str, ...]
    bytes: int
    full: float
    begin: float
    end: float


class Overlap(NamedTuple):
    """A backward and the reductions during it: `start` and `end` of the backward, and the buckets in the order of
    sending.
    """

    start: float
    end: float
    buckets: tuple[Bucket, ...]

    @property
    def exposed(self) -> float:
        """Seconds that a rank waits for reductions after its backward."""
        return max(0.0, self.buckets[-1].end - self.end) if self.buckets else 0.0

    @property
    def sending(self) -> float:
        """Total seconds of all reductions."""
        return added(bucket.end - bucket.begin for bucket in self.buckets)

    @property
    def bytes(self) -> int:
        """Bytes of all reduced gradients."""
        return added(bucket.bytes for bucket in self.buckets)


def overlap(
    layout: Layout,
    made: dict,
    link: Link,
    *,
    early: bool = True,
    start: float = 0.0,
    end: float | None = None,
    width: int = 4,
) -> Overlap:
    """The reductions of a backward in which the gradient of parameter `name` is ready at `made[name]` seconds.

    layout  its packs are the buckets; the runtime sends them in the order of their numbers
    early   a bucket may start as soon as it is full; else all wait until the backward has ended
    start, end  of the backward; by default it ends with the last gradient
    width   bytes of one element

    >>> from hybridlab.core.where.layout import Mesh, Param
    >>> two = Layout(Mesh(dp=2), (Param("a", (1000,), partial=("dp",), pack=1), Param("b", (500,), partial=("dp",))))
    >>> found = overlap(two, {"b": 2.0, "a": 4.0}, Link(alpha=0.5, beta=1e-3))
    >>> [(bucket.names, bucket.full, bucket.begin, bucket.end) for bucket in found.buckets]
    [(('b',), 2.0, 2.0, 5.0), (('a',), 4.0, 5.0, 10.0)]
    >>> found.exposed, overlap(two, {"b": 2.0, "a": 4.0}, Link(0.5, 1e-3), early=False).exposed
    (6.0, 8.0)
    """
    end = max(made.values()) if end is None else end
    free, buckets = 0.0, []
    for _, names in sorted(layout.packs.items()):
        ranks, size = len(layout.summed(names[0], 0)), width * added(layout.size(name, 0) for name in names)
        full = max(made[name] for name in names)
        begin = max(free, full if early else end)
        free = begin + link.seconds("all_reduce", ranks, size)
        buckets.append(Bucket(tuple(names), size, full, begin, free))
    return Overlap(start, end, tuple(buckets))


def made_by_work(layout: Layout, tokens: int, flops: float, free: Sequence[str] = ("embed",)) -> dict[str, float]:
    """The time of each gradient in a backward, in seconds, if only matmuls take time.

    tokens  the number of tokens of a rank;  flops  floating-point operations per second
    free    parts of names of parameters without matmuls, such as embeddings

    Gradients come from the last parameter to the first. Biases and norms take no time.

    >>> from hybridlab.core.where.layout import Mesh, Param
    >>> three = Layout(Mesh(dp=2), (Param("embed", (9, 9)), Param("first", (5, 5)), Param("last", (5, 10))))
    >>> made_by_work(three, tokens=10, flops=1000.0)
    {'last': 2.0, 'first': 3.0, 'embed': 3.0}
    """
    now, made = 0.0, {}
    for param in reversed(layout.params):
        if len(param.shape) == 2 and not any(piece in param.name for piece in free):
            now += PASSES * tokens * layout.size(param.name, 0) / flops
        made[param.name] = now
    return made
