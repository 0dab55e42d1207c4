"""The pictures of notebook 14: schedules one at a time; memory against bubble, schedule by schedule, predicted and
measured.
"""

import math

import hybridlab as hl
from hybridlab.labs.zero_bubble.halves import held
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.still import Still

ASIDE = 0.12  # rank shares: how far to the right of its prediction a measured cross is drawn
SPAN, WHOLE = "idle within a rank's own span", "idle during the step"  # bubble_span and bubble_fraction


def one_at_a_time(timelines: dict[str, hl.Timeline]) -> Chooser:
    """One of the timelines, which buttons choose by their headings; without a kernel, all are below each other."""

    def drawn(schedule):
        figure = hl.draw(timelines[schedule], title=schedule)
        return Still(figure.twin, figure.summary)

    names = list(timelines)
    return Chooser(drawn, {"schedule": ("schedule", names, names[0])}, [{"schedule": name} for name in names])


def plane(predicted: dict[str, hl.Timeline], real: dict[str, hl.Timeline] | None = None) -> Figure:
    """Memory against bubble, schedule by schedule: two bubbles predicted, and one of them measured. A cross is next to
    its prediction, to which a line leads: marks of several schedules would coincide."""
    memory = [held(t) for t in predicted.values()]
    span, fraction = ([getattr(t, name) for t in predicted.values()] for name in ("bubble_span", "bubble_fraction"))
    apart = [point for point in zip(memory, span, fraction) if not math.isclose(*point[1:])]
    curves = [Curve("", [x, x], ends, 2, "dot") for x, *ends in apart]
    curves.append(Curve(SPAN, memory, span, 5, "", "circle"))
    curves.append(Curve(f"{WHOLE}, if different", [x for x, *_ in apart], [y for *_, y in apart], 5, "", "circle-open"))
    if real:
        at, measured = zip(*((held(real[name]) + ASIDE, real[name].bubble_fraction) for name in predicted))
        joins = zip(memory, at, fraction, measured)
        curves += [Curve("", ends, (low, high), 1, "solid", wide=1.5) for *ends, low, high in joins]
        curves.append(Curve(f"{WHOLE}, measured; drawn to the right of its schedule", at, measured, 1, "", "cross"))
    curves.append(Curve("", memory, fraction, 5, labels=list(predicted)))
    first = next(iter(predicted.values())).schedule
    size = f"{first.ranks} ranks, {len(first.replica_of)} microbatches"
    seen = f", {len(real)} of them measured" if real else ""
    told = f"{len(predicted)} schedules{seen}: down is less idle, left is less memory; numbers in the table above"
    x = Axis("activations held at most, in shares of a rank", 1.5, 9)
    y = Axis("idle", -0.02, 1.1 * max(max(curve.y) for curve in curves), "{:.0%}")
    return chart(curves, x, y, f"Memory against bubble, {size}", told)
