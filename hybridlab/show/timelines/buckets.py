"""The picture of buckets: a backward, layer by layer, and below it the all-reduces of its gradients, predicted or
measured.

Green bars are all-reduces, numbered in the order in which they start. A thin line leads to each from the moment when
its bucket was full; if the line is slanted, the all-reduce waited for the link. Grey, after the backward, is the
exposed time, in which the rank only waits.
"""

from typing import NamedTuple

from hybridlab.predict.time.buckets import Overlap
from hybridlab.show.paper.sheet import prose_width, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, look
from hybridlab.show.timelines.drawn import text_width
from hybridlab.show.timelines.lanes import PX, WIDTH, Lanes, box, labelled, on_lanes, on_paper

LEFT, TOP = 96, 54
HEADING, BACKWARD, SUM, BETWEEN, AFTER = 34, 34, 20, 20, 16  # heights in pixels
LINES = 40  # with more all-reduces, no lines lead to them, and those without a pause between them are one bar
LEGEND = (
    ("B", "backward; a number is a block"),
    ("message", "all-reduce of a bucket"),
    ("bubble", "exposed: the rank only waits"),
)


class Row(NamedTuple):
    """One backward with its all-reduces: its name, and the prediction, the measurement, or both.

    made  {parameter: time at which its gradient is ready}, on the clock of the drawn backward: the measured one, if any
    """

    name: str
    made: dict[str, float]
    predicted: Overlap | None = None
    measured: Overlap | None = None

    @property
    def lanes(self) -> list[tuple[str, Overlap]]:
        """The prediction, the measurement, or both, each with its name, the prediction first."""
        both = ("predicted", self.predicted), ("measured", self.measured)
        return [(name, one) for name, one in both if one]

    @property
    def length(self) -> float:
        """Seconds from the start of the backward to the end of the last all-reduce or of the backward."""
        return max(max([one.end, *(sum.end for sum in one.buckets)]) - one.start for _, one in self.lanes)

    @property
    def height(self) -> int:
        """Height of the row in pixels."""
        return HEADING + BACKWARD + BETWEEN + len(self.lanes) * (SUM + 6) + AFTER


def buckets(*rows: Row, title: str = "All-reduces during a backward", least: float = 0.0) -> Still:
    """The picture of some rows, one below the other, on one time axis in milliseconds that begins with their backwards.

    least  the least length of the axis in seconds, so that it stays fixed while the bars change

    >>> from hybridlab.predict.time.buckets import Bucket
    >>> one = Overlap(0.0, 0.004, (Bucket(("a",), 8, 0.002, 0.002, 0.003), Bucket(("b",), 8, 0.004, 0.004, 0.006)))
    >>> buckets(Row("each", {"a": 0.002, "b": 0.004}, predicted=one))
    <picture each: backward 4.0 ms; predicted: all-reduces: 2, together 3.0 ms, exposed 2.0 ms>
    """
    total = 1e3 * max(least, *(row.length for row in rows))
    on, drawn, y = Lanes(LEFT, TOP, TOP + sum(row.height for row in rows), total), [], TOP
    for row in rows:
        drawn += _row(row, y, on)
        y += row.height
    return on_lanes(on, title, LEGEND, [in_words(row) for row in rows], drawn)


def in_words(row: Row) -> str:
    """A row in words: the length of the backward, the number of all-reduces, and their exposed time."""
    backward = row.lanes[-1][1]
    told = [f"{row.name}: backward {1e3 * (backward.end - backward.start):.1f} ms"]
    for name, one in row.lanes:
        sums = f"all-reduces: {len(one.buckets)}, together {1e3 * one.sending:.1f} ms"
        told.append(f"{name}: {sums}, exposed {1e3 * one.exposed:.1f} ms")
    return "; ".join(told)


def layers(made: dict[str, float], start: float) -> list[tuple[str, float, float]]:
    """(layer, begin, end) in the order of the backward; consecutive parameters of one layer are one entry.

    >>> layers({"embed.token.weight": 3.0, "blocks.0.out.bias": 2.0, "blocks.0.out.weight": 1.5}, start=0.0)
    [('block 0', 0.0, 2.0), ('embed', 2.0, 3.0)]
    """
    pieces = []
    for name, end in sorted(made.items(), key=lambda one: one[1]):
        first, *rest = name.split(".")
        layer = f"block {rest[0]}" if first == "blocks" else first
        if pieces and pieces[-1][0] == layer:
            pieces[-1] = layer, pieces[-1][1], end
        else:
            pieces.append((layer, pieces[-1][2] if pieces else start, end))
    return pieces


def _row(row, top, on):
    """The heading, the backward, and a lane of all-reduces for each of prediction and measurement."""
    backward, y = row.lanes[-1][1], top + HEADING
    at = lambda seconds: on.at(seconds - backward.start)
    yield on_paper(LEFT, y - 10, row.name, weight="600")
    yield words(LEFT - 10, y + 23, "backward", PX["axis"], "end")
    its, last = look("B", measured=bool(row.measured)), max(row.made.values())
    if backward.end > last:  # a real backward still posts all-reduces
        yield box(at(last), y, at(backward.end) - at(last), BACKWARD, its)
    for layer, begin, end in layers(row.made, backward.start):
        yield from labelled(at(begin), y, at(end), BACKWARD, its, layer)
    yield from _waits(backward, at, y)
    below = y + BACKWARD + BETWEEN
    yield from _leads(row.lanes[0][1], at, y + BACKWARD, below)
    for number, (name, one) in enumerate(row.lanes):
        lane = below + number * (SUM + 6)
        yield words(LEFT - 10, lane + 15, name, PX["axis"], "end", fill=STYLE["muted"])
        yield from _sums(one, at, lane, look("message", measured=name == "measured"))


def _leads(one, at, y0, y1):
    """Lines from the time when each bucket is full to the beginning of its all-reduce."""
    for sum in one.buckets if len(one.buckets) <= LINES else ():
        ends = f"M{at(sum.full):.1f} {y0}L{at(sum.begin):.1f} {y1}"
        yield f'<path d="{ends}" stroke="{STYLE["muted"]}" stroke-width="1.2"/>'


def _sums(one, at, y, its):
    if len(one.buckets) <= LINES:
        for number, sum in enumerate(one.buckets):
            yield from labelled(at(sum.begin), y, at(sum.end), SUM, its, f"{number}")
        return
    bars = runs([(at(sum.begin), at(sum.end)) for sum in one.buckets])
    for begin, end in bars:
        yield box(begin, y, end - begin, SUM, its)
    begin, end = max(bars, key=lambda bar: bar[1] - bar[0])
    told = f"{len(one.buckets)} all-reduces, {1e3 * one.sending / len(one.buckets):.2g} ms each on average"
    if 1.15 * prose_width(told, PX["smallest"]) < end - begin:
        yield words((begin + end) / 2, y + SUM / 2 + 4, told, PX["smallest"], "middle", fill=its.text)


def runs(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in pixels that follow each other within a pixel, as one; they are in the order of their beginnings.

    >>> runs([(0, 4), (4.5, 9), (20, 21)])
    [(0, 9), (20, 21)]
    """
    joined = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] < 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _waits(one, at, y):
    """The exposed time: grey after the backward, with its length inside it, to the right or above."""
    if not one.exposed:
        return
    x, end, text = at(one.end), at(one.end + one.exposed), f"exposed {1e3 * one.exposed:.1f} ms"
    wide = text_width(text, PX["axis"])
    yield box(x, y, end - x, BACKWARD, look("bubble"))
    if end - x > wide:
        yield words((x + end) / 2, y + 23, text, PX["axis"], "middle")
    elif end + wide + 8 < WIDTH:
        yield on_paper(end + 8, y + 23, text)
    else:
        yield on_paper(end, y - 10, text, "end")
