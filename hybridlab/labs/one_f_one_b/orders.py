"""Notebook 12: the counted memory of ranks; slow messages; a written order, and ranks driven by messages."""

import hybridlab as hl
from hybridlab.labs.one_f_one_b.letters import from_letters
from hybridlab.predict.bytes.live import Bytes, peak_bytes
from hybridlab.scheduling.lower import posted_ahead
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure

RANKS, MICROBATCHES = 4, (4, 8, 16)
SHORT = hl.Costs(F=0.004, B=0.008)  # seconds; the memory held depends on the order, not on the times
SECONDS = hl.Costs(F=0.02, B=0.04)
JITTERS = (0.2, 0.5, 0.8)  # standard deviations of a duration, as fractions of it
PENS = {"gpipe": (1, "dash", "square"), "1f1b": (5, "solid", "circle")}


def counted(name: str, microbatches: int) -> list[int]:
    """The most activations that each rank held at once in a real run, counted by the ranks themselves."""
    schedule = hl.schedule(name, ranks=RANKS, microbatches=microbatches)
    return hl.run(schedule, costs=SHORT, steps=1).origin["peak_live"]


def memory(microbatches=MICROBATCHES) -> dict[str, dict[int, list[int]]]:
    """{schedule: {microbatches: the peak on each rank, counted}}."""
    return {name: {m: counted(name, m) for m in microbatches} for name in PENS}


def growth(held: dict[str, dict[int, list[int]]]) -> Figure:
    """Activations on rank 0, by the number of microbatches: lines are predicted, marks are counted by `memory`."""
    curves, told = [], []
    for name, peaks in held.items():
        colour, dash, marker = PENS[name]
        predicted = [_predicted(name, m).peak_live[0] for m in peaks]
        curves.append(Curve(f"{name}, predicted", list(peaks), predicted, colour, dash))
        curves.append(Curve(f"{name}, counted", list(peaks), [peak[0] for peak in peaks.values()], colour, "", marker))
        told.append(f"{name} {curves[-1].y[0]} to {curves[-1].y[-1]}")
    most = max(max(peaks) for peaks in held.values())
    x = Axis("microbatches", 0, most + 1, marks={m: str(m) for m in held["1f1b"]})
    y = Axis("activations", 0, 1.08 * most)
    title = f"Most activations held at once on rank 0 of {RANKS}"
    return chart(curves, x, y, title, f"Activations on rank 0, first to last: {'; '.join(told)}")


def _predicted(name, microbatches):
    return hl.simulate(hl.schedule(name, ranks=RANKS, microbatches=microbatches), SHORT)


def both(jitter: float, microbatches: int = 12, **more) -> tuple[hl.Timeline, hl.Timeline]:
    """(1F1B as written, the same work driven by messages), run with the same varying durations."""
    schedule = hl.schedule("1f1b", ranks=RANKS, microbatches=microbatches)
    more = {"costs": SECONDS, "jitter": jitter, "steps": 1} | more
    return hl.run(schedule, **more), hl.run(schedule, driven=True, **more)


def with_messages(name: str, latency: float) -> hl.Timeline:
    """The predicted step of four ranks and eight microbatches, with messages that take some time.

    >>> with_messages("gpipe", 0.5).length, with_messages("1f1b", 0.5).length
    (36.0, 41.0)
    """
    schedule = hl.lower(hl.schedule(name, ranks=RANKS, microbatches=8))
    return hl.simulate(schedule, hl.Costs(F=1, B=2, latency=latency))


def in_flight(held: list[int], latency: float = 0, microbatches: int = 8) -> hl.Timeline:
    """The predicted step if rank r does held[r] forwards before its first backward, then a backward and a forward in
    turn. With held[r] = ranks - r this is 1F1B.

    >>> in_flight([2, 1]).length == hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=8), hl.Costs(F=1, B=2)).length
    True
    """
    orders = ["F" * most + "BF" * (microbatches - most) + "B" * most for most in held]
    schedule = hl.validate(hl.Schedule.from_csv(from_letters(orders), name="in flight"))
    return hl.simulate(hl.lower(schedule), hl.Costs(F=1, B=2, latency=latency))


def ahead(name: str, depth: int, latency: float = 0.5) -> hl.Timeline:
    """The predicted step if receives are posted `depth` earlier and a message leaves when both sides have posted it.

    >>> ahead("gpipe", 0).length, ahead("gpipe", 1).length
    (43.0, 36.0)
    """
    schedule = hl.lower(hl.schedule(name, ranks=RANKS, microbatches=8))
    return hl.simulate(posted_ahead(schedule, depth), hl.Costs(F=1, B=2, latency=latency), rendezvous=True)


def buffers(timeline: hl.Timeline) -> list[int]:
    """The most receive buffers that each rank holds at once."""
    return [int(most) for most in peak_bytes(timeline, Bytes(input=0, buffer=1))]
