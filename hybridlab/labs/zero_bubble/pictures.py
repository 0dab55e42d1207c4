"""The picture of notebook 14: memory against bubble, schedule by schedule, predicted and measured."""

import hybridlab as hl
from hybridlab.labs.zero_bubble.halves import held
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure

TO_THE_LEFT = ("v_half", "zb_h1")  # on the plane, where names would meet
ABOVE = ("dualpipe_v",)  # and above: else names stand under their points, since crosses lie above


def plane(predicted: dict[str, hl.Timeline], real: dict[str, hl.Timeline] | None = None) -> Figure:
    """Memory against bubble, schedule by schedule: two bubbles predicted, and one of them measured."""
    memory = [held(t) for t in predicted.values()]
    span, fraction = ([getattr(t, name) for t in predicted.values()] for name in ("bubble_span", "bubble_fraction"))
    curves = [Curve("", [x, x], ends, 2, "dot") for x, *ends in zip(memory, span, fraction)]
    curves.append(Curve("bubble_span", memory, span, 5, "", "circle"))
    if real:
        measured = [t.bubble_fraction for t in real.values()]
        curves.append(Curve("bubble_fraction, measured", [held(t) for t in real.values()], measured, 1, "", "cross"))
    below = [name for name in predicted if name not in ABOVE]
    curves.append(Curve("bubble_fraction", memory, fraction, 5, "", "circle-open", list(predicted), TO_THE_LEFT, below))
    first = next(iter(predicted.values())).schedule
    size = f"{first.ranks} ranks, {len(first.replica_of)} microbatches"
    seen = f", {len(real)} of them measured" if real else ""
    told = f"{len(predicted)} schedules{seen}: down is less idle, left is less memory; numbers in the table above"
    x = Axis("peak, in rank shares until W", 1.5, 9)
    y = Axis("idle", -0.02, 1.1 * max(max(curve.y) for curve in curves), "{:.0%}")
    return chart(curves, x, y, f"Memory against bubble, {size}", told)
