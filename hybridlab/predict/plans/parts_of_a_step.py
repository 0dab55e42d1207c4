"""The predicted time of a step by cause, and the parts that add up to it.

Relative: `predict.plans.performance`, which computes them.
"""

from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.amount import Amount


class Step(NamedTuple):
    """Seconds of one step on the busiest rank, by cause; numbers, or arrays for many plans.

    multiply   matmuls with weights
    pointwise  all other operations of a device
    tensor     all-reduces along tp
    launch     starting kernels
    context    messages along cp
    experts    messages along ep
    head       the head and the loss
    messages   between stages
    bubble     filling and emptying the pipeline
    data       all-reduces along dp
    optimizer  the optimizer's update
    """

    multiply: float
    pointwise: float
    tensor: float
    launch: float
    context: float
    experts: float
    head: float
    messages: float
    bubble: float
    data: float
    optimizer: float

    @property
    def total(self) -> Amount:
        """The time of the step, the sum of all terms."""
        return added(self)

    @property
    def communication(self) -> Amount:
        """The fraction of the time in which devices wait for any message."""
        return (self.tensor + self.context + self.experts + self.messages + self.data) / self.total

    @property
    def idle(self) -> Amount:
        """The fraction of the time in which the pipeline fills and empties: bubble_fraction."""
        return self.bubble / self.total


class Work(NamedTuple):
    """Seconds of a block for one microbatch on one rank of its stage, by term."""

    multiply: float
    pointwise: float
    tensor: float
    launch: float
    context: float
    experts: float


class Pieces(NamedTuple):
    """The seconds of the parts of a step; numbers, or arrays for many plans.

    forward, backward  of one block and microbatch; the backward includes recomputation
    plain  both of a block in `Shape.plain`; of a usual block if there is none
    head  of one microbatch, forward and backward;  hop  of one tensor from a stage to the next
    data, optimizer  once in a step
    """

    forward: Work
    backward: Work
    head: float
    hop: float
    data: float
    optimizer: float
    plain: tuple[Work, Work]
