"""Predict the time of a convolution with rows sharded among devices, and the gain of one more strip.

A strip needs rows of its neighbours for its first and last outputs: its halo. The outputs that need none of these rows,
and no padding, are its *interior*, the others its *border*:

  plain       the halo, then all outputs                          backward: all outputs, then the halo's gradients
  overlapped  the halo during the interior, then the border:      backward: the border, then the halo's gradients during
              max(interior, halo) + border                        the interior: the same formula

A strip of fewer rows has less work, but its halo is as large as before. So more strips shorten one term and not the
other, until the interior is too small to hide the halo exchange.

An output row takes the time of its FLOPs or of its memory traffic, the longer of the two. The slowest strip counts.

Source: Dryden et al. 2019, IPDPS, arXiv:1903.06681. See also `predict.bytes.spatial` (the halo), `predict.time.overlap`
(the two tracks), `modes.parts.halos` (the same overlap on ranks), notebook 34 and `bench/halos.py`.
"""

from typing import Any, NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.catalog import Machine
from hybridlab.core.where.layout import even
from hybridlab.core.where.spans import Span, overlap, wanted
from hybridlab.predict.bytes.collectives import Cost, Link
from hybridlab.predict.bytes.convolution import Conv
from hybridlab.predict.bytes.spatial import moved
from hybridlab.predict.time.overlap import Piece, Tracks, length


class Speed(NamedTuple):
    """The speed of a device, and its link to others.

    rate    FLOP/s that a convolution reaches;  memory  bytes/s of the device's memory
    width   bytes of a number;  begin  seconds before a convolution starts to compute
    """

    rate: float
    link: Link
    memory: float = float("inf")
    width: int = 2
    begin: float = 0.0


class Strip(NamedTuple):
    """Seconds of one strip in one direction: its interior, its border, both as one piece, and its halo's messages."""

    interior: float
    border: float
    whole: float
    halo: float


def speed(machine: Machine, strips: int, share: float = 1.0, begin: float = 0.0) -> Speed:
    """The speed of a machine from the catalog. If the strips do not fit into one node, the link is the network.

    share  the fraction of the peak that a convolution reaches
    """
    across = strips > machine.node
    link = Link(machine.latency[across], 1 / (machine.across if across else machine.inside))
    return Speed(machine.peak * share, link, machine.bandwidth, begin=begin)


# --- one layer ----------------------------------------------------------------------------------------------------


def strip(conv: Conv, strips: int, here: int, its: Speed, products: int = 1) -> Strip:
    """The seconds of strip number `here`.

    products  1: the forward; 2: the backward, which makes dX and dW

    >>> its = Speed(rate=1e9, link=Link(1e-5, 1e-9))
    >>> print(*(f"{1e6 * seconds:.0f}" for seconds in strip(Conv(1, 8, 8, 32, 32), 4, 1, its)))
    221 74 295 21
    """
    have = even(conv.rows, strips)
    (first, last), (low, high) = wanted(have, conv.sight)[0][here], interior(conv, strips, here)
    each = products * row_seconds(conv, its)
    work = lambda *spans: added(products * its.begin + each * (end - begin) for begin, end in spans if end > begin)
    taken = [rows for (_, receiver), rows in moved([have], [conv.sight]).items() if receiver == (here,)]
    numbers = conv.samples * conv.channels * conv.columns * added(taken)
    halo = its.link.price(Cost(len(taken), numbers * its.width))
    return Strip(work((low, high)), work((first, low), (high, last)), work((first, last)), halo)


def interior(conv: Conv, strips: int, here: int) -> Span:
    """The outputs of a strip that need no row of another strip and no padding; all outputs if no strip needs a halo.

    >>> [interior(Conv(1, 1, 1, 12, 12), 3, here) for here in range(3)]
    [(1, 3), (5, 7), (9, 11)]
    """
    have = even(conv.rows, strips)
    made, want = wanted(have, conv.sight)
    return made[here] if strips == 1 or want == have else overlap(conv.sight.within(have[here]), made[here])


def row_seconds(conv: Conv, its: Speed) -> float:
    """Seconds of one output row in the forward."""
    rows = conv.sight.outputs(conv.rows)
    moved = (conv.numbers("X") + conv.numbers("Y")) / rows * its.width
    return max(conv.flops / rows / its.rate, moved / its.memory)


def played(forward: Strip, backward: Strip, overlapped: bool) -> list[Piece]:
    """The work of one strip, forward and backward, as pieces on two tracks.

    >>> one = Strip(interior=4, border=2, whole=6, halo=3)
    >>> length(played(one, one, overlapped=False)), length(played(one, one, overlapped=True))
    (18.0, 12.0)
    """
    does = Tracks()
    coming = does.send("halo", "halo", forward.halo)
    if overlapped:
        does.work("interior", forward.interior)
        does.wait(coming)
        does.work("border", forward.border)
        does.work("back: border", backward.border)
        does.send("halo", "fold", backward.halo)
        does.work("back: interior", backward.interior)
    else:
        does.wait(coming)
        does.work("all", forward.whole)
        does.work("back: all", backward.whole)
        does.send("halo", "fold", backward.halo)
    return does.pieces


# --- how many strips ----------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Seconds of a layer on this number of strips: forward, backward, and the all-reduce of dW, which may be later."""

    strips: int
    layer: float
    sums: float


def steps(conv: Conv, machine: Machine, most: int, overlapped: bool = True, **more: Any) -> list[Step]:
    """A layer on 1, 2, … strips of a machine, as long as every strip has an output.

    most  the largest number of strips;  more  as for `speed`

    >>> from hybridlab.core.what.catalog import machine
    >>> large = Conv(1, 64, 64, 2048, 2048)
    >>> for overlapped in (False, True):
    ...     every = steps(large, machine("h100"), 16, overlapped)
    ...     print(*(f"{every[0].layer / every[strips - 1].layer:.2f}" for strips in (4, 8, 9, 16)))
    3.75 7.06 5.23 7.02
    4.00 8.00 8.73 12.19
    """
    every = range(1, min(most, conv.sight.outputs(conv.rows)) + 1)
    return [step(conv, strips, speed(machine, strips, **more), overlapped) for strips in every]


def step(conv: Conv, strips: int, its: Speed, overlapped: bool = True) -> Step:
    """A layer on this number of strips, with the time of the slowest one."""
    both = lambda here: (strip(conv, strips, here, its, 1), strip(conv, strips, here, its, 2))
    layer = max(length(played(*both(here), overlapped)) for here in range(strips))
    size = conv.numbers("W") * its.width
    sums = min(its.link.seconds("all_reduce", strips, size, algorithm) for algorithm in ("ring", "tree"))
    return Step(strips, layer, sums)


def gains(every: list[Step]) -> list[float]:
    """The speed that each further strip adds, in devices: 1 is a full device, 0 is nothing.

    >>> from hybridlab.core.what.catalog import machine
    >>> late = steps(Conv(64, 512, 512, 7, 7), machine("h100"), 7)
    >>> print(*(f"{gain:.2f}" for gain in gains(late)))  # of 7 rows the longest strip has 4, 3, 2, 2, 2, 1
    0.74 -0.27 0.00 0.00 0.39 0.00
    """
    speeds = [every[0].layer / one.layer for one in every]
    return [after - before for before, after in zip(speeds, speeds[1:])]


def least_rows(conv: Conv, its: Speed) -> float:
    """The smallest number of rows for which the interior's computation hides the halo exchange, for stride 1 and a
    strip between two neighbours.

    With fewer rows, more strips save almost nothing. Without latency neither samples nor columns matter, and if the
    FLOPs determine the time, channels do not matter either: K - 1 + w·(K-1)·rate / (2·F·K²·bytes per second), for
    numbers of w bytes.

    >>> its = Speed(rate=500e12, link=Link(0, 1 / 50e9))
    >>> [least_rows(Conv(1, filters, filters, 512, 512), its) for filters in (64, 512)]
    [36.72222222222222, 6.340277777777778]
    """
    seen = conv.sight.reach - 1
    halo = its.link.price(Cost(2, seen * conv.samples * conv.channels * conv.columns * its.width))
    return seen + max(0.0, halo - its.begin) / row_seconds(conv, its)
