"""Compute when copies that train alone exchange their changes, how many bytes they send, and the link that this needs.

Copies train alone for H steps; then the mean of their changes is all-reduced. With P fragments, a part of the layers is
exchanged every H/P steps, and its all-reduce may take τ further steps, during which the copies train on.

Source: Douillard et al. 2023, arXiv:2311.08105 (DiLoCo), and 2025, arXiv:2501.18512 (streaming DiLoCo). Relatives:
`modes.local_steps`, notebook 21.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount
from hybridlab.doors import AMOUNT, COUNT, guarded
from hybridlab.predict.bytes.collectives import cost

EVERY = 2  # steps between two exchanges, if no other number is given
BESIDES = 2  # numbers that a copy keeps for each weight: the weight after the last outer step, and its momentum


@guarded(COUNT, delay=AMOUNT)
class Rounds(NamedTuple):
    """The steps after which each fragment is exchanged; steps count from 0.

    every      H, the number of steps between two exchanges of a fragment
    fragments  P, the number of fragments: layer l is in fragment l mod P
    delay      τ, the number of steps that an all-reduce may take

    >>> rounds = Rounds(every=4, fragments=2, delay=1)
    >>> [rounds.begun(step) for step in range(8)]
    [[], [0], [], [1], [], [0], [], [1]]
    >>> [rounds.used(step) for step in range(8)]
    [[], [], [0], [], [1], [], [0], []]
    """

    every: int
    fragments: int = 1
    delay: int = 0

    def __str__(self) -> str:
        """The numbers in words.

        >>> print(Rounds(every=8), Rounds(every=8, fragments=2, delay=1), sep=" | ")
        8 | 8 in 2 fragments, hidden by 1
        """
        parts = f" in {self.fragments} fragments" * (self.fragments > 1)
        return f"{self.every}{parts}" + f", hidden by {self.delay}" * (self.delay > 0)

    def begun(self, step: int) -> list[int]:
        """The fragments whose all-reduce begins after a step."""
        ends = [(number + 1) * self.every // self.fragments for number in range(self.fragments)]
        return [number for number, end in enumerate(ends) if step >= 0 and (step + 1 - end) % self.every == 0]

    def used(self, step: int) -> list[int]:
        """The fragments whose mean is used after a step."""
        return self.begun(step - self.delay)

    def number(self, fragment: int, steps: int) -> int:
        """The number of all-reduces of a fragment that begin in this number of steps."""
        return added(fragment in self.begun(step) for step in range(steps))

    @property
    def hiding(self) -> Amount:
        """The number of steps that hide one all-reduce: τ, but only H/P if the next one begins before it must end.

        >>> print(Rounds(every=8, fragments=2, delay=1).hiding, Rounds(every=8, fragments=2, delay=6).hiding)
        1.0 4.0
        """
        return np.minimum(self.delay, self.every / self.fragments)

    @property
    def under_way(self) -> Amount:
        """The largest number of all-reduces that are under way at the same time: ⌈τP/H⌉.

        >>> Rounds(every=8, fragments=2).under_way, Rounds(every=8, fragments=2, delay=6).under_way
        (0, 2)
        """
        return -(-self.delay * self.fragments // self.every)

    def refuse(self, layers: int) -> None:
        """Raise ValueError unless each fragment has a layer and a separate step, and its exchange ends before the
        next one begins."""
        if self.delay >= self.every:
            raise ValueError(f"sync_delay={self.delay} is too long: give less than sync_every")
        if self.fragments > min(self.every, layers):
            raise ValueError(
                f"fragments={self.fragments} is too many: give at most sync_every={self.every} and the {layers} layers"
            )


def sent_per_step(parameters: float, copies: int, every: int, width: int = 4) -> float:
    """Bytes that each copy sends per step, on average: 2Ψg(d-1)/(d·H).

    parameters  Ψ, in one copy
    copies      d
    every       H, the number of steps between two exchanges; 1: as often as plain data parallelism
    width       g, bytes of a number on the wire

    >>> sent_per_step(1e9, copies=4, every=1) / 1e9, sent_per_step(1e9, copies=4, every=100) / 1e9
    (6.0, 0.06)
    """
    return cost("all_reduce", copies, parameters * width).bytes / every


def link_needed(
    parameters: float,
    copies: int,
    every: int,
    seconds: float,
    fragments: int = 1,
    delay: int | None = None,
    width: int = 4,
) -> float:
    """The bandwidth of a link, in bytes per second, at which the steps hide the exchanges.

    parameters  Ψ, in one copy
    copies      d
    every       H, the number of steps between two exchanges of a fragment
    seconds     of one step
    fragments   P: each exchange sends Ψ/P numbers
    delay       τ, the number of steps that may hide an exchange; None: as long as possible, H/P
    width       g, bytes of a number on the wire

    raises  ValueError if no step may hide an exchange

    With the longest delay it is the average, 2Ψg(d-1)/(d·H·seconds); with a shorter delay it is the peak,
    2Ψg(d-1)/(d·P·τ·seconds).

    >>> link_needed(1e9, copies=2, every=100, seconds=1.0), link_needed(1e9, copies=2, every=100, seconds=1.0, delay=5)
    (40000000.0, 800000000.0)
    >>> link_needed(1e9, copies=2, every=100, seconds=1.0, fragments=10, delay=5)
    80000000.0
    """
    if delay is not None and delay < 1:
        raise ValueError(f"delay={delay} hides no part of an exchange: give 1 or more, or leave it out")
    steps = every / fragments if delay is None else float(Rounds(every, fragments, delay).hiding)
    return sent_per_step(parameters, copies, every, width) * every / fragments / (steps * seconds)
