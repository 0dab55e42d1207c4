"""A strategy played: one rank's step as a schedule whose stages are the operators.

A forward, with what it waits for before it; a backward, with what its operands' gradients wait for behind it. The sums
of the gradients of all that is given, weights above all, are REDUCE_GRAD: they go on beside the backward, one after the
other, because nothing but the update waits for them. So the simulator of pipelines shows what they hide, and what not.

FlexFlow's simulator does the same with a task graph of all devices. Here all ranks do alike, and one of them will do.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 5.2. Relatives: `predict.time.simulate`; notebook 21, where
the sums hide behind a backward for the first time.
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
    sums  collectives for the gradients of what is given: only the update waits for them
    """

    operator: str
    forward: float
    backward: float
    there: float
    back: float
    sums: float

    @property
    def seconds(self) -> float:
        """All of it, one after the other."""
        return added(self[1:])


def played(parts: Sequence[Part]) -> Timeline:
    """The step of one rank, with its sums beside the backward.

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
    """One rank: forwards in order, backwards in reverse, each with its sum behind it."""
    stages = range(len(summed))
    back = (f"{stage}B0{f',{stage}REDUCE_GRAD' if summed[stage] else ''}" for stage in reversed(stages))
    return Schedule.from_csv(",".join([*(f"{stage}F0" for stage in stages), *back]))
