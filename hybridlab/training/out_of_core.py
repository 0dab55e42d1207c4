"""A job on devices with too little memory for its activations: their size is measured first, and some are swapped out
or recomputed, so that the rest fits.

The measure is the memory that torch's kernels save on the ranks' device: attention in float64 saves more on a GPU than
on a CPU. Fused kernels are assumed to save the same. If a GPU's kernels save different tensors from the CPU's, the
arena refuses tensors that do not fit, and a check finds a different number of copied bytes from the formula.

Relatives: `modes.out_of_core`, which executes it; `core.when.room` and `predict.time.out_of_core`, which plan it.
"""

import math
from dataclasses import replace

from hybridlab.core.when.action import SWAPS
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.room import Room, during
from hybridlab.core.when.schedule import Schedule
from hybridlab.modes.out_of_core import MEANS, KeepingWork, refuse_moves
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.out_of_core import AGAIN, AWAY, forwards, habits, mixed, planned
from hybridlab.runtime.arena import Arena
from hybridlab.training import loop
from hybridlab.training.costs import DIGITS, by_weights
from hybridlab.training.fused_attention import attention_on
from hybridlab.training.job import Job
from hybridlab.world.devices.placement import placement
from hybridlab.world.talk.dry import DryComm


def within(job: Job) -> Job:
    """The job with a schedule that fits into the given capacity.

    raises  ValueError with the minimum capacity
    """
    room, schedule, means = weighed(job), job.schedule, job["make_room"]
    asked, in_core = job["device_memory"], most_held(schedule, room)
    room = replace(room, capacity=int(asked * in_core if asked <= 1 else asked))
    if room.capacity < (least := least_room(schedule, room, means)):
        raise ValueError(
            f"the saved activations do not fit into {room.capacity:,} bytes by {MEANS[means]}: give "
            f"device_memory={least} or more (without swapping a device needs {in_core:,.0f})"
        )
    return job.with_(schedule=fitted(schedule, room, costs_of(job, room), means), room=room)


def moving(job: Job) -> Job:
    """The job with the memory that its schedule needs if it moves activations, assuming that moves take no time. So on
    real ranks an action waits for the earlier move that frees its memory.

    raises  ValueError if another option manages them too
    """
    if not job.schedule.moves:
        return job
    refuse_moves(job)
    room = weighed(job)
    return job.with_(room=replace(room, capacity=most_held(job.schedule, room)))


def weighed(job: Job) -> Room:
    """The bytes that one forward of each stage saves, and that each edge sends; with unlimited capacity. If several
    ranks shard a stage, the rank that saves most counts.
    """
    kept = job.once(kept_on_ranks).values()
    keeps = [max(one.get(stage, 0) for one in kept) for stage in range(job.schedule.stages)]
    return Room(math.inf, keeps, boundary=[sum(x.nbytes for x in tensors) for tensors in job.rooms(0).values()])


def kept_on_ranks(job: Job) -> dict[int, dict[int, int]]:
    """{rank: {stage: bytes that one forward saves}}, for the ranks of the first replica: one microbatch goes through
    every stage on torch's meta device."""
    found, job = {}, job.with_(chosen=job.chosen | {"offload": False})  # the meta device has no host memory
    kind = placement(job.mesh.size).kind
    for rank in range(job.mesh.size):
        if job.mesh.coordinates(rank).get("dp", 0) == 0:
            with attention_on(kind, job.dtype):
                found[rank] = _Weighing(DryComm(job.mesh, rank), job).weighed()
    return found


def copied(job: Job) -> int:
    """Bytes that one step copies to the host and back, on all ranks."""
    mesh, kept, size = job.mesh, job.once(kept_on_ranks), 0
    for rank in range(mesh.size):
        alike = kept[mesh.rank(**mesh.coordinates(rank) | ({"dp": 0} if "dp" in mesh.axes else {}))]
        program = job.schedule.program[mesh.line(rank).index(rank)]
        size += sum(alike[action.stage] for action in program if action.kind in SWAPS and not action.lent)
    return job.accumulate * size


class _Weighing(loop.Trainer):
    """A trainer without compute: each of its stages runs one forward."""

    def works(self, *about) -> KeepingWork:
        return KeepingWork(Arena(), *about)

    def weighed(self) -> dict[int, int]:
        """{stage: bytes that one forward saves}."""
        work, edges, found = self.work, self.job.schedule.edges, {}
        work.draws.step = 0
        work.load(*self._batch(0), self.job.tokens)
        for stage in self.weights.stages:
            into = [
                number for number, (_, end) in enumerate(edges) if end == stage and number != len(self.job.bounds) - 1
            ]
            work.forward(stage, 0, 0, [tuple(work.room(number, "activation")) for number in into])
            found[stage] = sum(one.size for one in work.stored[stage, 0].saved)
        return found


def most_held(schedule: Schedule, room: Room) -> float:
    """The maximum bytes on a rank, if copies took no time."""
    return float(during(flow_of(schedule), room).max())


def costs_of(job: Job, room: Room) -> Costs:
    """The costs of actions in units of the mean forward of a stage, from the stages' weights and the copies' bytes."""
    mean = sum(room.keeps) / len(room.keeps)
    return replace(by_weights(job), swap=tuple(round(job["copy_time"] * one / mean, DIGITS) for one in room.keeps))


def fitted(schedule: Schedule, room: Room, costs: Costs, means: str) -> Schedule:
    """The shortest schedule within the capacity, among some candidates."""
    if means == "mixture":
        return planned(schedule, room, costs).schedule
    others = AGAIN if means == "swap" else AWAY
    tried = (mixed(schedule, choice, room, costs) for choice in habits(schedule) if others not in choice)
    return min(tried, key=lambda one: one.length).schedule


def least_room(schedule: Schedule, room: Room, means: str) -> int:
    """The smallest capacity for a schedule with these means: its deficit at capacity 0."""
    none, every = replace(room, capacity=0), len(forwards(schedule))
    ways = {"swap": (AWAY,), "recompute": (AGAIN,), "mixture": (AWAY, AGAIN)}[means]
    made = (mixed(schedule, (way,) * every, none, Costs()).schedule for way in ways)
    return math.ceil(min(flow_of(one, none).lacks.max() for one in made))
