"""Rates: what a machine does in a second, and how long ranks in several nodes take for a collective."""

from typing import NamedTuple

import numpy as np

from hybridlab.core.catalog import Machine
from hybridlab.predict.bytes.collectives import Cost, Link, hierarchical
from hybridlab.predict.plans.software import MEGATRON_2021, PRECISIONS, Software


class Fit(NamedTuple):
    """The fitted numbers: shares of the peak and of the memory's bandwidth, and seconds for each block."""

    multiply: float = 0.7249
    memory: float = 0.8365
    launch: float = 3.307e-3


FITTED = Fit()


class Rates(NamedTuple):
    """What a machine does in a second: operations, bytes of memory, and its two kinds of links.

    products  operations by weights, which may be narrower than 16 bits;  flat  whether rings know nothing of nodes
    """

    multiply: float
    memory: float
    inside: Link
    across: Link
    products: float
    flat: bool = False

    @classmethod
    def of(cls, machine: Machine, fit: Fit, software: Software = MEGATRON_2021) -> "Rates":
        """The rates of a machine, at the fitted shares, as far as programs reach them."""
        return cls(*_reached(machine, fit, software))

    def sum(self, ways, near, size):
        """The seconds of a sum over so many ranks, `near` of them in one node."""
        if self.flat:
            here, away = (link.seconds("all_reduce", ways, size) for link in (self.inside, self.across))
            return np.where(ways > near, away, here)
        return hierarchical(-(-ways // near), near, size).seconds(self.inside, self.across)

    def seconds(self, op: str, ways, near, size, away=1.0):
        """The seconds of an all_gather, a reduce_scatter or an all_to_all; `size` as in `bytes.collectives`.

        To ranks of its node and to all others a rank sends at the same time: the slower one of the two links decides.

        away  the share that really crosses of what an all-to-all has for other nodes

        >>> from hybridlab.core.catalog import machine
        >>> one = Rates.of(machine("h100"), FITTED)
        >>> [round(1e3 * float(one.seconds("all_to_all", ways, 8, 64e6)), 2) for ways in (8, 16)]
        [0.15, 0.75]
        """
        if op != "all_to_all":
            return self.sum(ways, near, size) / 2
        here = self.inside.price(Cost(near - 1, size * (near - 1) / ways))
        return np.maximum(here, self.across.price(Cost(ways - near, away * size * (ways - near) / ways)))

    def hop(self, ways, near, size):
        """The seconds of one message of each rank to the next one, round a ring: some leave the node, and all wait."""
        here, away = (link.seconds("send", 2, size) for link in (self.inside, self.across))
        return np.where(ways > near, away, here)


def _reached(machine: Machine, fit: Fit, software: Software) -> tuple:
    links = machine.inside * software.inside, machine.across * software.network
    multiply = machine.peak * fit.multiply * software.library
    return (
        multiply,
        machine.bandwidth * fit.memory,
        *(Link(alpha, 1 / rate) for alpha, rate in zip(machine.latency, links)),
        multiply * _faster(machine, software),
        software.flat,
    )


def _faster(machine: Machine, software: Software) -> float:
    """How many times as fast narrow products are as those in 16 bits."""
    if not software.precision:
        return 1.0
    place = software.precision - 1
    peak = (machine.eight, machine.four)[place]
    if not peak:
        wanted = PRECISIONS[software.precision]
        raise ValueError(f"{machine.name} multiplies nothing in {wanted}: choose precision='bf16', or another machine")
    return software.narrow[place] * peak / machine.peak
