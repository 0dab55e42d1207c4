"""Alpa's two levels: stages of layers on submeshes, by dynamic programming; inside a stage, by any planner.

A cluster has N nodes of M devices. A stage gets a submesh: 1, 2, 4, … devices of one node, or several full nodes. The
inner level says how long a microbatch takes on it, forward and backward, with the best plan inside the stage. The outer
level cuts the layers into stages and gives each a submesh, using all devices, so that for m microbatches

    T = t_1 + … + t_s + (m - 1) · max t_i

is smallest. If every stage must take less than a limit, the smallest sum is a shortest path, found by dynamic
programming from the last layer to the first. The first limit is infinite. Each further limit is the longest stage in
the previous answer, until no answer exists. (Alpa tries all possible limits, the shortest first.)

T is the length of GPipe without communication, if the ratio of backward to forward is the same in all stages.
For 1F1B, it is an upper bound (`tests/predict/test_two_levels.py`).

Source: Zheng et al. 2022, arXiv:2201.12023, section 5.2, equations 2 to 4. Relatives: `predict.plans.partition`, one
device for each stage; `predict.search`, plans inside a stage; notebook 43.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.where.mesh import Mesh
from hybridlab.doors import COUNT, guarded


@guarded(COUNT)
class Submesh(NamedTuple):
    """The devices of one stage.

    nodes     the number of nodes; if there are several, the stage has all devices of each
    per_node  devices in each node

    >>> Submesh(2, 8).devices
    16
    """

    nodes: int
    per_node: int

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.nodes * self.per_node


class Stage(NamedTuple):
    """A stage: its layers, its devices, and the time of a microbatch.

    layers   a range
    submesh  its devices
    seconds  of the forward and the backward of one microbatch
    axes     {axis: length} of the parallelism inside the stage, of the devices all together, the slowest axis first
    """

    layers: range
    submesh: Submesh
    seconds: float
    axes: dict[str, int]

    @property
    def kind(self) -> tuple[tuple[str, int], ...]:
        """The stage's axes longer than one, in order: stages of one kind can be in one mesh."""
        return tuple((axis, length) for axis, length in self.axes.items() if length > 1)


class OnSubmeshes(NamedTuple):
    """The stages of a pipeline on submeshes, and their predicted time.

    stages   in order
    seconds  of a step
    asked    number of sums that the dynamic program compared
    """

    stages: tuple[Stage, ...]
    seconds: float
    asked: int

    def job(self) -> dict:
        """The arguments of `hl.check` or `hl.train` that run these stages: stages along pp, and inside every stage the
        axes that all of them have.

        raises  ValueError if stages have different axes: a mesh has each axis in every stage, equally long

        >>> on_submeshes(lambda layers, submesh, later: len(layers) / submesh.devices, 4, Submesh(1, 2), 1).job()
        {'mesh': Mesh(pp=1, tp=2), 'cut': [4]}
        """
        first = self.stages[0].kind
        for number, stage in enumerate(self.stages):
            if stage.kind != first:
                raise ValueError(
                    f"stage 0 has {_told(first)} and stage {number} has {_told(stage.kind)}, and a job has one mesh, "
                    "with the same axes in all stages: give a model of equal layers, or fewer kinds of submeshes "
                    "or axes"
                )
        return {"mesh": Mesh(pp=len(self.stages), **dict(first)), "cut": [len(stage.layers) for stage in self.stages]}


def _told(kind: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{axis}={length}" for axis, length in kind) or "one device"


def submeshes(cluster: Submesh) -> list[Submesh]:
    """The submeshes that a stage may get: powers of two inside a node, and whole nodes. A selection of them fits if its
    devices add up to those of the cluster.

    cluster  all devices; a power of two in each node

    raises  ValueError if the number of devices in a node is not a power of two

    >>> [tuple(one) for one in submeshes(Submesh(3, 4))]
    [(1, 1), (1, 2), (1, 4), (2, 4), (3, 4)]
    """
    if cluster.per_node & (cluster.per_node - 1):
        raise ValueError(f"{cluster.per_node} devices in a node are not a power of two: give 1, 2, 4, 8 or more")
    inside = [Submesh(1, 2**power) for power in range(cluster.per_node.bit_length())]
    return inside + [Submesh(nodes, cluster.per_node) for nodes in range(2, cluster.nodes + 1)]


def pipeline_length(seconds: Sequence[float], microbatches: int) -> float:
    """The time of a step by the formula: all stages one after another, and the longest one for every other microbatch.

    seconds       of one microbatch in each stage
    microbatches  the number of microbatches, m

    >>> pipeline_length([1, 2, 1], microbatches=4)
    10
    """
    return added(seconds) + (microbatches - 1) * max(seconds)


def usual_axes(layers: range, submesh: Submesh) -> dict[str, int]:
    """The axes of a stage, by default: its nodes along dp, the devices of a node along tp."""
    return {"dp": submesh.nodes, "tp": submesh.per_node}


def on_submeshes(
    seconds: Callable[[range, Submesh, int], float],
    layers: int,
    cluster: Submesh,
    microbatches: int,
    axes: Callable[[range, Submesh], dict[str, int]] = usual_axes,
) -> OnSubmeshes:
    """The stages and submeshes that exactly minimize the time given by the formula.

    seconds       seconds(layers, submesh, later): the time of a microbatch in a stage, with its best plan inside; later
                  is the number of stages after it: in 1F1B the first stages hold more microbatches, and math.inf says
                  that they do not fit
    layers        the number of layers
    cluster       all devices, which are all used
    microbatches  in a step, m
    axes          axes(layers, submesh): the axes of the best plan inside a stage, {"dp": 2, "tp": 4}; for the job

    raises  ValueError if nothing fits, or if the number of ranks along a stage's axes is not its number of devices

    >>> wide = [1, 1, 6, 6]  # seconds of each layer on one device
    >>> price = lambda layers, submesh, later: sum(wide[layer] for layer in layers) / submesh.devices**0.7
    >>> found = on_submeshes(price, 4, Submesh(1, 4), microbatches=16)
    >>> [(len(one.layers), *one.submesh) for one in found.stages]
    [(3, 1, 2), (1, 1, 2)]
    """
    shapes, most = submeshes(cluster), min(layers, cluster.devices)
    spans = [range(a, b) for a in range(layers) for b in range(a + 1, layers + 1)]
    prices = {
        (span, shape, later): seconds(span, shape, later) for span in spans for shape in shapes for later in range(most)
    }
    best, limit, asked = OnSubmeshes((), math.inf, 0), math.inf, 0
    while True:
        stages, tried = _shortest(prices, shapes, layers, cluster.devices, most, limit)
        asked += tried
        if not stages:
            break
        times = [one.seconds for one in stages]
        if (total := pipeline_length(times, microbatches)) < best.seconds:
            best = OnSubmeshes(stages, total, 0)
        limit = max(times)  # for limits between this one and the last, these stages are the best
    if not best.stages:
        raise ValueError("no stages fit on these submeshes: give more devices, or fewer layers")
    return best._replace(asked=asked, stages=tuple(_with_axes(stage, axes) for stage in best.stages))


def _with_axes(stage: Stage, axes) -> Stage:
    """The stage with the axes of its plan."""
    its = axes(stage.layers, stage.submesh)
    if math.prod(its.values()) != stage.submesh.devices:
        raise ValueError(
            f"axes {_told(tuple(its.items()))} do not have the {stage.submesh.devices} devices of their submesh: give "
            "lengths whose product is this number"
        )
    return stage._replace(axes=dict(its))


def _shortest(prices, shapes, layers: int, devices: int, most: int, limit: float) -> tuple[tuple[Stage, ...], int]:
    """The stages with the smallest sum among those that all take less than `limit`, or none; and the sums compared."""
    tails: dict[tuple, tuple] = {
        (0, layers, 0): (0.0, None, None)
    }  # by stages, first layer, devices: the sum, its first stage, the rest
    asked = 0
    for later in range(most):
        for first in range(layers):
            for end in range(first + 1, layers + 1):
                for shape in shapes:
                    price = prices[range(first, end), shape, later]
                    for rest in range(devices - shape.devices + 1) if price < limit else ():
                        if (tail := tails.get((later, end, rest))) is None:
                            continue
                        asked += 1
                        key = later + 1, first, rest + shape.devices
                        if price + tail[0] < tails.get(key, (math.inf,))[0]:
                            tails[key] = price + tail[0], Stage(range(first, end), shape, price, {}), (later, end, rest)
    ends = [(number, 0, devices) for number in range(1, most + 1) if (number, 0, devices) in tails]
    if not ends:
        return (), asked
    key, stages = min(ends, key=lambda one: tails[one][0]), []
    while tails[key][1] is not None:
        _, stage, key = tails[key]
        stages.append(stage)
    return tuple(stages), asked
