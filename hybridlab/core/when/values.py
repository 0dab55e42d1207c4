"""The values of a schedule, numbered: every value of the law is an integer.

The values of one kind are in one block, addressed by mixed radix. What F saves on stage s for microbatch m with version
v of the weights, for example, is number

    block["saved"] + (s · microbatches + m) · versions + v

So no dictionary of values is built, and the values of a whole column of actions are computed at once.
"""

from collections.abc import Sequence

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.when.schedule import Schedule

BEGIN, WIRE, END = range(3)  # where on its edge a travelling value is
VERSIONED = {"saved": "saved tensors", "input": "input", "kept": "kept tensors"}  # and what they are called
TOLD = {"squares": "squares of ranks 0 to {}", "norm": "norm on rank {}"}
AWAY = {"^saved": "saved tensors", "^input": "input"}  # the same on the host


class Values:
    """Numbers for all values that a schedule can have.

    block    block[name]: the first number of the values of a name;  shape  shape[name]: the ranges of their coordinates
    edges    (edges, 2): the chain's, the skips; an edge has a value of each name at its start, on the wire, at its end
    size     how many numbers there are

    versions, copies, swaps  numbers of versions of the weights, of their gathered copies, and of copies to the host
    journeys                 the largest number of journeys of a forward's saved activations
    norms                    numbers of norms of each rank, that of the step before included; 0: none are summed
    """

    def __init__(
        self, schedule: Schedule, versions: int, copies: int, swaps: int = 0, journeys: int = 0, norms: int = 0
    ):
        self.schedule, self.edges = schedule, np.array(schedule.edges)
        stages, replicas, microbatches = schedule.stages, schedule.replicas, len(schedule.replica_of)
        travelling, at_rest = (len(self.edges), 3, microbatches), (stages, replicas, versions)
        self.shape = {
            "activation": travelling,
            "gradient": travelling,
            **dict.fromkeys(VERSIONED, (stages, microbatches, versions, 1 + journeys)),
            **dict.fromkeys(AWAY, (stages, microbatches, versions, 1 + journeys) if journeys else (0,)),
            "room": (swaps + 1,),  # no action makes the last one
            "weight_gradient": (stages, microbatches),
            "summed": at_rest,
            "weights": at_rest,
            "whole": (stages, replicas, copies),
            "squares": (schedule.ranks, norms) if norms else (0,),
            "norm": (schedule.ranks, norms) if norms else (0,),
        }
        sizes = [int(np.prod(shape)) for shape in self.shape.values()]
        ends = np.cumsum(sizes)
        self.block = dict(zip(self.shape, (ends - sizes).tolist()))
        self.size = int(ends[-1])
        self.dtype = np.int32 if self.size < 2**31 else np.int64  # half the memory is nearly twice the speed

    def number(self, name: str, *where: int | np.ndarray) -> np.ndarray:
        """The number of a value, or of many, from its place in the block of its name."""
        number = np.asarray(where[0], self.dtype)
        for size, at in zip(self.shape[name][1:], where[1:]):
            number = number * size + np.asarray(at, self.dtype)
        return number + self.block[name]

    def where(self, name: str, value: Amount) -> list[int]:
        """The place of a value in the block of its name."""
        return [int(i) for i in np.unravel_index(value - self.block[name], self.shape[name])]

    def named(self, name: str) -> slice:
        """The value numbers of one name."""
        return slice(self.block[name], self.block[name] + int(np.prod(self.shape[name])))

    def edge_of(self, value: Amount) -> Amount:
        """The edge on which a travelling value (an activation or a gradient) lives; also for arrays of values."""
        edges, sides, microbatches = self.shape["activation"]
        return value // (sides * microbatches) % edges

    def unsent(self, value: Amount) -> Amount:
        """The number that a travelling value has where the same program's messages are not written out."""
        _, sides, microbatches = self.shape["activation"]
        return value - value // microbatches % sides * microbatches

    def on_every_edge(self, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Expand one number per edge to one number for each travelling value of this name, in order."""
        _, sides, microbatches = self.shape["activation"]
        return np.repeat(numbers, sides * microbatches)

    def name_of(self, value: int) -> str:
        """The name that a value has in the law."""
        return next(name for name in reversed(self.block) if self.block[name] <= value)

    def describe(self, value: int) -> str:
        """One value in words."""
        name = self.name_of(value)
        where = self.where(name, value)
        if name in ("activation", "gradient"):
            edge, side, microbatch = where
            begin, end = self.edges[edge]
            arrived = side == END and name == "activation"  # a gradient ends where one that never travels is
            on = " (on the wire)" if side == WIRE else " (arrived)" if arrived else ""
            source = begin if name == "activation" else end
            return f"{name} of stage {source} for microbatch {microbatch}{on}"
        if name in VERSIONED or name in AWAY:
            stage, microbatch, version, journeys = where
            host = " on the host" if name in AWAY else " back on the device" if journeys and journeys % 2 == 0 else ""
            return f"{(VERSIONED | AWAY)[name]} of {stage}F{microbatch}" + (f"#{version}" if version else "") + host
        if name == "room":
            return "room on the device"
        if name in TOLD:
            return TOLD[name].format(where[0]) + (f", norm {where[1]}" if where[1] > 1 else "")
        if name == "weight_gradient":
            return f"weight gradient of stage {where[0]} for microbatch {where[1]}"
        stage, replica, version = where
        copy = f" (replica {replica})" if replica else ""
        return f"{name} of stage {stage}{copy}" + (f", version {version}" if version else "")
