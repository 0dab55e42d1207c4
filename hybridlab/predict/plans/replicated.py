"""Cut layers into stages, and replicate stages, so that the slowest stage is as fast as possible.

PipeDream's partitioner. While `predict.plans.partition` gives each stage one rank, this partitioner may give many ranks
to a stage with much compute and few weights, and one rank to a stage with many weights.

Source: Narayanan et al. 2019, arXiv:1806.03377, *Partitioning algorithm*; the levels of the network: their SOSP paper,
*PipeDream: Generalized Pipeline Parallelism for DNN Training*, 3.1. The time of the all-reduce counts bytes sent and
received, 4·(m - 1)/m of the weights' bytes, as in the first paper and the released optimizer. That optimizer adds this
time to the compute time and omits boundaries; the papers, and we, take the maximum and include boundaries.

Relatives: `scheduling.pipedream`, which runs the copies; `training.stages.profiled`, the profile of a model; notebook
15.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.plans.jobs import job_of_stages


class Layer(NamedTuple):
    """The profile of a layer: seconds of a mini-batch, forward and backward together; bytes of its output and
    weights."""

    seconds: float
    output: float
    weights: float


class Stage(NamedTuple):
    """A stage: its layers, the number of machines that hold these layers, and the smaller stages inside each of these
    machines."""

    layers: range
    replicas: int
    inside: tuple["Stage", ...] = ()


class Plan(NamedTuple):
    """Stages, and the seconds between two mini-batches that they finish: those of the slowest stage or boundary."""

    seconds: float
    stages: tuple[Stage, ...]

    def job(self, rounds: int = 2) -> dict:
        """The arguments of `check`, `train` and `dry_run` for it, with a model of these layers; see
        `predict.plans.jobs`.
        """
        return job_of_stages(self.stages, rounds)


def replicated(layers: Sequence[Layer], *levels: tuple[int, float]) -> Plan:
    """The fastest plan that uses all machines.

    layers  of the model, in order
    levels  of the network from the inside out: (number of parts of the level below in one, bytes per second between
            them); a single level, (machines, bandwidth), if all machines are equal

    The shortest time A(j, m) for the first j layers on m machines is that of one stage, T(0, j, m), or the minimum,
    over all cuts i and replicas r of the last stage, of

        max(A(i, m - r), 2·output of layer i - 1 / bandwidth, T(i, j, r))
        where T(i, j, r) = max(seconds of the layers i to j - 1, 2·sent / bandwidth) / r

    and sent are the bytes that a rank sends when r ranks all-reduce these layers' gradients. With levels, the time of
    layers is that of their best plan one level below. Ties prefer fewer stages, then early cuts.

    raises  ValueError if there are no layers, or a level without machines or bandwidth

    >>> convolution, linear = Layer(seconds=3.0, output=1e6, weights=1e6), Layer(seconds=1.0, output=1e3, weights=4e9)
    >>> replicated([convolution, linear], (4, 1e9))
    Plan(seconds=1.0, stages=(Stage(layers=range(0, 1), replicas=3, inside=()), \
Stage(layers=range(1, 2), replicas=1, inside=())))
    """
    if not layers or not levels or any(machines < 1 or bandwidth <= 0 for machines, bandwidth in levels):
        raise ValueError(
            "a plan needs layers and a network: give at least one layer and one level, each level with at least 1 "
            "machine and a bandwidth above 0"
        )
    until = [0, *accumulate(layer.seconds for layer in layers)]

    def best(first, last):
        return Plan(until[last] - until[first], ())

    for machines, bandwidth in levels:
        best = _level(best, layers, machines, bandwidth)
    return best(0, len(layers))


def _level(below, layers, machines, bandwidth):
    """(first, last) → the best plan for the layers first to last - 1 on all machines of one level."""
    weights = [0, *accumulate(layer.weights for layer in layers)]

    @cache
    def stage(first, last, replicas):
        seconds, inside = below(first, last)
        summed = 2 * cost("all_reduce", replicas, weights[last] - weights[first]).bytes / bandwidth
        return Plan(max(seconds, summed) / replicas, (Stage(range(first, last), replicas, inside),))

    @cache
    def best(first, last, count):
        found = stage(first, last, count)
        for cut in range(first + 1, last):
            boundary = 2 * layers[cut - 1].output / bandwidth  # the output forward, its gradient backward
            for replicas in range(1, count):
                head, tail = best(first, cut, count - replicas), stage(cut, last, replicas)
                seconds = max(head.seconds, boundary, tail.seconds)
                if seconds < found.seconds:
                    found = Plan(seconds, head.stages + tail.stages)
        return found

    return lambda first, last: best(first, last, machines)
