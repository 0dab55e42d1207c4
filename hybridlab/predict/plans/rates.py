"""Rates: what a machine does in a second, and how long ranks in several nodes take for a collective."""

from typing import NamedTuple

import numpy as np

from hybridlab.core.catalog import Machine
from hybridlab.predict.bytes.collectives import Cost, Link, hierarchical


class Fit(NamedTuple):
    """The fitted numbers: shares of the peak and of the memory's bandwidth, and seconds for each block."""

    multiply: float = 0.7249
    memory: float = 0.8365
    launch: float = 3.307e-3


FITTED = Fit()


class Rates(NamedTuple):
    """What a machine does in a second: operations, bytes of memory, and its two kinds of links."""

    multiply: float
    memory: float
    inside: Link
    across: Link

    @classmethod
    def of(cls, machine: Machine, fit: Fit) -> "Rates":
        """The rates of a machine, at the fitted shares."""
        links = (Link(alpha, 1 / rate) for alpha, rate in zip(machine.latency, (machine.inside, machine.across)))
        return cls(machine.peak * fit.multiply, machine.bandwidth * fit.memory, *links)

    def sum(self, ways, near, size):
        """The seconds of a sum over so many ranks, `near` of them in one node."""
        return hierarchical(-(-ways // near), near, size).seconds(self.inside, self.across)

    def seconds(self, op: str, ways, near, size):
        """The seconds of an all_gather, a reduce_scatter or an all_to_all; `size` as in `bytes.collectives`.

        To ranks of its node and to all others a rank sends at the same time: the slower one of the two links decides.

        >>> from hybridlab.core.catalog import machine
        >>> one = Rates.of(machine("h100"), FITTED)
        >>> [round(1e3 * float(one.seconds("all_to_all", ways, 8, 64e6)), 2) for ways in (8, 16)]
        [0.15, 0.75]
        """
        if op != "all_to_all":
            return self.sum(ways, near, size) / 2
        here, away = (link.price(Cost(ranks, size * ranks / ways)) for link, ranks in self._reached(ways, near))
        return np.maximum(here, away)

    def _reached(self, ways, near):
        return (self.inside, near - 1), (self.across, ways - near)

    def hop(self, ways, near, size):
        """The seconds of one message of each rank to the next one, round a ring: some leave the node, and all wait."""
        here, away = (link.seconds("send", 2, size) for link in (self.inside, self.across))
        return np.where(ways > near, away, here)
