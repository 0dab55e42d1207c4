"""Simulate a strategy as a schedule: one rank's step, whose stages are the operators.

A forward includes the collectives that it waits for; a backward includes those that its operands' gradients wait for.
The reductions of the gradients of given tensors, mainly weights, are REDUCE_GRAD: they overlap with the backward,
one after another, because only the update waits for them. So the simulator of pipelines shows which of them are hidden.

FlexFlow's simulator does the same with a task graph of all devices. Here all ranks do the same, so one rank is enough.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 5.2. Relatives: `predict.time.simulate`; notebook 21, which
introduces the overlap with a backward.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate


class Part(NamedTuple):
    """Seconds of one operator in a step.

    forward, backward  its work;  there, back  collectives of its operands, and of their gradients
    sums  collectives for the gradients of inputs such as weights: only the update waits for them
    """

    operator: str
    forward: float
    backward: float
    there: float
    back: float
    sums: float

    @property
    def seconds(self) -> float:
        """The sum of all parts, without overlap."""
        return added(self[1:])


def played(parts: Sequence[Part]) -> Timeline:
    """The step of one rank, with its reductions overlapped with the backward.

    parts  of the step, in order of the forward

    >>> played([Part("up", 1, 2, 0, 0, 5), Part("down", 1, 2, 0, 0, 3)]).length
    12.0
    """
    costs = Costs(
        F=tuple(part.there + part.forward for part in parts),
        B=tuple(part.backward + part.back for part in parts),
        reduce=tuple(part.sums for part in parts),
        unit="s",
    )
    return simulate(_schedule(tuple(part.sums > 0 for part in parts)), costs)


@cache
def _schedule(summed: tuple[bool, ...]) -> Schedule:
    """The list of one rank: forwards in order, backwards in reverse, each followed by its reduction."""
    stages = range(len(summed))
    back = (f"{stage}B0{f',{stage}REDUCE_GRAD' if summed[stage] else ''}" for stage in reversed(stages))
    return Schedule.from_csv(",".join([*(f"{stage}F0" for stage in stages), *back]))
