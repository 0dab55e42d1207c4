"""Notebook 23, pictures: the computation of a device, the copies of its two engines, and below them the memory held."""

from hybridlab.core.when.room import Room
from hybridlab.core.when.timeline import Timeline
from hybridlab.labs.out_of_core.chains import BLOCKS, KEEP, RECOMPUTE, SWAP, step
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.out_of_core import AWAY, forwards, mixed
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule
from hybridlab.show.charts.room_over_time import room_over_time
from hybridlab.show.live.chooser import Chooser, below_each_other
from hybridlab.show.paper.still import Still
from hybridlab.show.timelines.draw import draw

ROOMS, COPIES = (12, 8, 5, 3, 2), (0.5, 1, 2, 3, 6)
RANKS, MICROBATCHES, TWO = 4, 8, 2  # of `pipelines`


def picture(timeline: Timeline, title: str | None = None) -> Still:
    """A step, and below it the memory that its device holds, on one time axis."""
    above, below = draw(timeline, title=title, numbers=False), room_over_time(timeline)
    told = f"{timeline.length:g} {timeline.unit}; {below.summary}"
    return Still(below_each_other([Still(above.twin, above.summary), Still(below.twin, below.summary)]), told)


def plans(room: int) -> dict[str, list[str]]:
    """Some plans by name; none of them depends on the time of a copy."""
    rest = BLOCKS - room
    return {
        "all kept": [KEEP] * BLOCKS,
        "all swapped": [SWAP] * BLOCKS,
        "all recomputed": [RECOMPUTE] * BLOCKS,
        "last kept, rest swapped": [SWAP] * rest + [KEEP] * room,
        "last kept, rest recomputed": [RECOMPUTE] * rest + [KEEP] * room,
    }


def ways() -> Chooser:
    """A chain of 12 blocks with a choice of plan, memory and time of a copy."""
    choices = {
        "what": ("plan", list(plans(BLOCKS)), "all swapped"),
        "room": ("memory", list(ROOMS), 5),
        "copy": ("a copy", list(COPIES), 2),
    }
    return Chooser(lambda what, room, copy: picture(step(plans(room)[what], room, copy)), choices, [{}])


def pipelines(room: float = TWO, copy: float = 1) -> dict[str, Timeline]:
    """GPipe with all its activations, and the same step with memory for a few of them, in which all are swapped."""
    gpipe, costs = schedule("gpipe", ranks=RANKS, microbatches=MICROBATCHES), Costs(F=1, B=2, swap=copy)
    away = mixed(gpipe, (AWAY,) * len(forwards(gpipe)), Room(room), costs).schedule
    return {"in core": simulate(gpipe, costs), f"memory for {room:g}": simulate(away, costs, room=Room(room))}
