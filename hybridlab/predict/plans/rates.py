"""Compute the speed of a machine for a plan, and the time of collectives over several nodes."""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount, where
from hybridlab.core.what.catalog import Machine
from hybridlab.doors import MOST
from hybridlab.predict.bytes.collectives import Cost, Link, hierarchical
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import MEGATRON_2021, PRECISIONS, Software


class Fit(NamedTuple):
    """The fitted numbers: the fractions of the peak and of the memory bandwidth, and seconds for each block."""

    multiply: float = 0.7249
    memory: float = 0.8365
    launch: float = 3.307e-3


FITTED = Fit()


class Near(NamedTuple):
    """The number of ranks of a group in one node, and in one pod; numbers, or arrays for many groups."""

    node: int
    pod: int

    def first(self, count: Amount) -> "Near":
        """The numbers for the first `count` ranks of the group."""
        return Near(*(np.minimum(one, count) for one in self))

    def every(self, stride: Amount, count: Amount) -> "Near":
        """The numbers for a group of every n-th rank, n = `stride`."""
        return Near(*(np.clip(one // stride, 1, count) for one in self))


class Rates(NamedTuple):
    """The speed of a machine: FLOP/s, memory bandwidth, and its two kinds of links.

    products  FLOP/s of matmuls with weights, which may use fewer than 16 bits;  flat  whether rings ignore nodes
    node, pod, oversubscription  as in `Machine`
    """

    multiply: float
    memory: float
    inside: Link
    across: Link
    products: float
    flat: bool
    node: int
    pod: int
    oversubscription: float

    @classmethod
    def of(cls, machine: Machine, fit: Fit, software: Software = MEGATRON_2021) -> "Rates":
        """The rates that programs reach on a machine, from the fitted fractions."""
        return cls(*_reached(machine, fit, software))

    def near(self, plan: Plan, axes: str) -> Near:
        """The spread of a group along an axis of a plan, or along several joined by "+"."""
        return Near(*(plan.near(axes, size) for size in (self.node, self.pod)))

    def of_experts(self, plan: Plan, folded: str, usual: str) -> Near:
        """The spread of a group of ranks for experts: along other axes of a plan if experts are folded."""
        return Near(*(where(plan.fold, *both) for both in zip(self.near(plan, folded), self.near(plan, usual))))

    def ring(self, ways: Amount, near: Near, rings: Amount = 1) -> Link:
        """The link to other nodes, for this number of rings through all nodes of a group.

        Each ring leaves a pod once, for any number of nodes in the pod. All groups send at the same time, and share the
        pod's uplinks.

        >>> from hybridlab.core.what.catalog import machine
        >>> one = Rates.of(machine("h100"), FITTED)._replace(pod=3072, oversubscription=7.0)
        >>> [round(float(one.ring(64, Near(1, pod)).beta / one.across.beta), 2) for pod in (64, 24, 2, 1)]
        [1.0, 1.0, 3.5, 7.0]
        """
        leaves = ways > near.pod
        if not np.any(leaves):
            return self.across
        longer = np.where(leaves, np.maximum(self.oversubscription * rings / near.pod, 1.0), 1.0)
        return self.across._replace(beta=self.across.beta * longer)

    def sum(self, ways: Amount, near: Near, size: Amount) -> Amount:
        """The seconds of an all-reduce over this number of ranks."""
        if self.flat:
            here, away = (link.seconds("all_reduce", ways, size) for link in (self.inside, self.ring(ways, near)))
            return np.where(ways > near.node, away, here)
        across = self.ring(ways, near, near.node)
        return hierarchical(-(-ways // near.node), near.node, size).seconds(self.inside, across)

    def seconds(self, op: str, ways: Amount, near: Near, size: Amount, away: Amount = 1.0) -> Amount:
        """The seconds of an all_gather, a reduce_scatter or an all_to_all; `size` as in `bytes.collectives`.

        A rank sends at the same time to ranks of its node, to others of its pod and to all others. The slowest of these
        determines the time.

        away  the fraction of an all-to-all's bytes for other nodes that is really sent between nodes

        >>> from hybridlab.core.what.catalog import machine
        >>> one = Rates.of(machine("h100"), FITTED)
        >>> [round(1e3 * float(one.seconds("all_to_all", ways, Near(8, ways), 64e6)), 2) for ways in (8, 16)]
        [0.15, 0.75]
        """
        if op != "all_to_all":
            return self.sum(ways, near, size) / 2
        here = self.inside.price(Cost(near.node - 1, size * (near.node - 1) / ways))
        there = self.across.price(Cost(ways - near.node, away * size * (ways - near.node) / ways))
        beyond = self.oversubscription * self.across.beta * away * size * (ways - near.pod) / ways
        return np.maximum(np.maximum(here, there), beyond)

    def hop(self, ways: Amount, near: Near, size: Amount) -> Amount:
        """The seconds that one message from each rank to the next in a ring takes: all ranks wait for those that leave
        the node.
        """
        here, away = (link.seconds("send", 2, size) for link in (self.inside, self.ring(ways, near)))
        return np.where(ways > near.node, away, here)


def _reached(machine: Machine, fit: Fit, software: Software) -> tuple:
    links = machine.inside * software.inside, machine.across * software.network
    multiply = machine.peak * fit.multiply * software.library
    return (
        multiply,
        machine.bandwidth * fit.memory,
        *(Link(alpha, 1 / rate) for alpha, rate in zip(machine.latency, links)),
        multiply * _faster(machine, software),
        software.flat,
        machine.node,
        machine.pod or MOST,
        machine.oversubscription,
    )


def _faster(machine: Machine, software: Software) -> float:
    """The speed of narrow matmuls relative to those in 16 bits."""
    if not software.precision:
        return 1.0
    place = software.precision - 1
    peak = (machine.eight, machine.four)[place]
    if not peak:
        wanted = PRECISIONS[software.precision]
        raise ValueError(f"{machine.name} has no peak rate for {wanted}: choose precision='bf16', or another machine")
    return software.narrow[place] * peak / machine.peak
