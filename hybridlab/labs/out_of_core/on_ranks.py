"""Notebook 23 on real ranks: a chain whose copies take a given time; a GPT with half its activation memory."""

from hybridlab.core.what.shape import Shape
from hybridlab.core.when.room import Room
from hybridlab.core.when.timeline import Timeline
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.out_of_core.chains import ROOM, costs, mixture
from hybridlab.predict.bytes.live import on_device
from hybridlab.predict.time.simulate import simulate
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure

UNIT = 0.03  # seconds of a forward in `emulated`
SMALL = Shape(layers=4, width=16, heads=2, context=8)
JOB = {"schedule": "gpipe", "microbatches": 8, "shape": SMALL, "zero": 1}
SLOW = 0.5  # seconds that each copy to the host takes longer in `without_arrows`


def emulated(plan: list[str], swap: float, room: float = ROOM, steps: int = 3) -> tuple[Timeline, Timeline]:
    """(predicted, measured): a chain that follows a plan; a rank and its two copy engines wait instead of working."""
    from hybridlab.training.run import run

    schedule, takes = mixture(plan, room, swap).schedule, costs(swap, UNIT)
    real = run(schedule, costs=takes, room=Room(room), steps=steps)
    return simulate(schedule, takes, room=Room(room)), real


def capped(share: float | None = 0.5) -> Timeline:
    """A measured step of a small GPT on pp=2 × dp=2 with ZeRO 1, with a fraction of its usual activation memory."""
    from hybridlab.training.run import train

    return train(Mesh(dp=2, pp=2), device_memory=share, steps=2, progress=False, **JOB)["timeline"]


def held(timeline: Timeline, rank: int = 0) -> Figure:
    """The bytes that a rank holds during a real step: predicted from its schedule, and counted by its arena."""
    line = timeline.room.capacity / 1e3
    times, sizes = on_device(timeline)[rank]
    seen = [(time, size) for time, size in timeline.origin["held"][rank] if 0 <= time <= timeline.length]
    both = [_stairs(times, sizes / 1e3), _stairs(*zip(*((time, size / 1e3) for time, size in seen)))]
    curves = [
        Curve("by the schedule", *both[0], colour=0, dash="solid"),
        Curve("counted by the arena", *both[1], colour=1, dash="dot", wide=6),  # wider than the line on which it lies
        Curve("capacity of the device", [0, timeline.length], [line, line], colour=3, dash="dash"),
    ]
    axes = Axis("time, s", 0, timeline.length), Axis("kB", 0, 1.15 * line)
    told = f"rank {rank} of {timeline.schedule.name}: it never holds more than its limit of {line:,.0f} kB"
    return chart(curves, *axes, f"Bytes held by rank {rank}", told)


def _stairs(times, sizes):
    """The corners of a curve that stays level between two changes."""
    x = [time for time in times for _ in (0, 1)][1:]
    y = [size for size in sizes for _ in (0, 1)][:-1]
    return x, y


def without_arrows() -> str:
    """The result of the same job when no forward waits for a copy to the host, and copies are slow."""
    from hybridlab.training.check import check
    from hybridlab.world.explain.faults import RankError

    try:
        check(Mesh(dp=1), sabotage=forget_to_wait, device_memory=0.3, **JOB | {"zero": 0})
    except RankError as error:
        return str(error).split(" (")[0]
    return "Nothing happened: the copies were fast enough."


def forget_to_wait():
    """A sabotage: on every rank, no action waits for a copy, and a copy to the host takes longer."""
    import time

    from hybridlab.runtime.copies import Leaving
    from hybridlab.runtime.player import Player

    carry = Leaving.carry
    Player._copies_before = lambda player, index: []
    Leaving.carry = lambda load: (time.sleep(SLOW), carry(load))
