"""Notebook 34, pictures: the rows that a strip has and lacks; a step of a strip on tracks; the gain of one more strip.

In the picture of strips a square is a row of pixels. Blue rows are here, green ones come from a neighbour: the halo.
A broken outline is padding, beyond the true border of the picture. The outputs that a strip computes are below.
"""

from hybridlab.core.what.catalog import MACHINES, machine
from hybridlab.core.where.layout import even
from hybridlab.core.where.spans import Sight, wanted
from hybridlab.labs.convolution.on_ranks import Timed
from hybridlab.predict.bytes.convolution import Conv
from hybridlab.predict.time.strips import gains, steps
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.sheet import sheet, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, dashed, ink_on, mix
from hybridlab.show.plans.shares import BACK, Part, box, patterns
from hybridlab.show.timelines.tracks import Row, Telling, tracks

PX, PAPER, GRID, MUTED = STYLE["pixels"], STYLE["paper"], STYLE["grid"], STYLE["muted"]
HERE, COMES = STYLE["kinds"]["F"]["fill"], STYLE["kinds"]["message"]["fill"]
HALO = Part("lacks: the halo", COMES, BACK)  # striped, because some readers see blue and green as one colour
MADE = mix(HERE, PAPER, 0.62)
WIDE, LEFT, TOP, CELL, TALL, LANE = 960, 118, 96, 38, 26, 84
STRIP = Telling(
    {"interior": "F", "border": "F", "all": "F", "back:": "B"},
    (("F", "forward"), ("B", "backward"), ("message", "halo, and its fold"), ("bubble", "the rank waits")),
    lane="rows",
    bare="waiting",
)
NETS = {
    "early: 64 channels, 2048 × 2048 pixels": Conv(1, 64, 64, 2048, 2048),
    "late: 512 channels, 64 × 64 pixels": Conv(1, 512, 512, 64, 64),
}
STRIPS = 16


# --- who lacks what -----------------------------------------------------------------------------------------------


def spans(kernel: int = 5, stride: int = 1) -> Chooser:
    """The rows that each of four strips has and lacks, and its outputs, for some kernels and strides."""
    choices = {"kernel": ("kernel", [3, 5, 7], kernel), "stride": ("stride", [1, 2, 3], stride)}
    return Chooser(spans_still, choices, [{}, {"stride": 3}])


def spans_still(kernel: int, stride: int, rows: int = 16, strips: int = 4) -> Still:
    """The picture of one choice.

    >>> spans_still(5, 2).summary
    'kernel 5, stride 2: above and below, strips 0 to 3 lack 0+1, 2+1, 2+1, 2+0 rows'
    """
    sight = Sight(kernel, stride, kernel // 2, kernel // 2)
    have = even(rows, strips)
    made, want = wanted(have, sight)
    lacks = [(max(has[0] - wants[0], 0), max(wants[1] - has[1], 0)) for has, wants in zip(have, want)]
    told = f"kernel {kernel}, stride {stride}: above and below, strips 0 to {strips - 1} lack " + (
        ", ".join(f"{above}+{below}" for above, below in lacks) + " rows"
    )
    out, on = [patterns({"halo": HALO}), *_legend()], LEFT + CELL * (kernel // 2)
    name = f"kernel {kernel}, stride {stride}"
    out.append(words(WIDE - 24, 32, name, PX["axis"], "end", **{"font-weight": "600"}))
    for row in range(rows):
        out.append(words(on + CELL * (row + 0.5), TOP - 12, str(row), PX["axis"], "middle", fill=MUTED))
    out.append(words(LEFT - 24, TOP - 12, "row", PX["axis"], "end", fill=MUTED))
    for strip in range(strips):
        y = TOP + strip * LANE
        out.append(words(24, y + 19, f"strip {strip}", PX["axis"], **{"font-weight": "600"}))
        out += _inputs(on, y, have[strip], want[strip], sight.seen(made[strip]))
        out += _outputs(on, y + TALL + 6, made[strip], sight)
    bottom = TOP + strips * LANE + 14
    out.append(words(24, bottom, told, PX["caption"], fill=MUTED))
    return Still(sheet(WIDE, bottom + 14, "Which rows a strip has and lacks", told, out), told)


def _legend():
    x = 24.0
    for fill, name in ((HERE, "has"), (COMES, HALO.name), ("", "padding"), (MADE, "outputs that it makes")):
        yield _cell(x, 18, 26, fill, 18)
        yield words(x + 34, 32, name, PX["caption"])
        x += 34 + 8 * len(name) + 34


def _inputs(on, y, has, wants, sees):
    for row in range(min(has[0], sees[0]), max(has[1], sees[1])):
        here, comes = has[0] <= row < has[1], wants[0] <= row < wants[1]
        yield _cell(on + CELL * row, y, CELL, HERE if here else COMES if comes else "")


def _outputs(on, y, made, sight):
    """Each output under the middle of the rows that it sees."""
    for one in range(*made):
        first, last = sight.seen((one, one + 1))
        middle = on + CELL * (first + last) / 2
        yield _cell(middle - CELL / 2, y, CELL, MADE)
        yield words(middle, y + 18, str(one), PX["axis"], "middle", fill=ink_on(MADE))


def _cell(x, y, wide, fill, tall=TALL):
    where = f'x="{x + 1:g}" y="{y:g}" width="{wide - 2:g}" height="{tall}" rx="2"'
    if fill == COMES:
        return "".join(box("halo", HALO, x + 1, y, wide - 2, tall))
    if fill:
        return f'<rect {where} fill="{fill}"/>'
    return f'<rect {where} fill="none" stroke="{MUTED}" {dashed("absent")}/>'


# --- a step -------------------------------------------------------------------------------------------------------


def step(timed: Timed) -> Still:
    """A step of one strip, plain and overlapped: the prediction, and below it the measurement."""
    rows = []
    for form in timed.predicted:
        rows.append(Row(f"{form}, predicted", timed.predicted[form]))
        rows.append(Row(f"{form}, measured", timed.measured[form], measured=True))
    return tracks(*rows, title="A step of one strip", telling=STRIP)


# --- one more strip -----------------------------------------------------------------------------------------------


def more() -> Chooser:
    """The speed-up of a layer on 1 to 16 strips, for a layer and a card."""
    choices = {"layer": ("layer", list(NETS), next(iter(NETS))), "card": ("card", list(MACHINES), "h100")}
    return Chooser(more_still, choices, [{"layer": layer} for layer in NETS])


def more_still(layer: str, card: str) -> Still:
    """The curves for one choice; a node has eight cards, so from the ninth strip on, a halo crosses the network.

    >>> more_still("late: 512 channels, 64 × 64 pixels", "h100").summary.split(":")[0]
    'late'
    """
    conv = NETS[layer]
    found = {form: steps(conv, machine(card), STRIPS, form == "overlapped") for form in ("overlapped", "plain")}
    speeds = {form: [its[0].layer / one.layer for one in its] for form, its in found.items()}
    counts = list(range(1, STRIPS + 1))
    curves = [
        Curve("every strip gives a device", counts, counts, 3, "dot"),
        Curve("overlapped: interior first", counts, speeds["overlapped"], 5, "solid", "circle"),
        Curve("plain: the halo, then all rows", counts, speeds["plain"], 1, "dash", "square"),
    ]
    last = gains(found["overlapped"])
    told = (
        f"{layer}, {card}: on 8 strips {speeds['overlapped'][7]:.1f} times as fast overlapped, "
        f"{speeds['plain'][7]:.1f} times plain; a ninth strip, in another node, changes the first by {last[7]:+.1f}"
    )
    up = Axis("times as fast as one device", 0, STRIPS + 0.5)
    across = Axis("strips", 0.5, STRIPS + 0.5, marks={count: str(count) for count in counts})
    return Still(chart(curves, across, up, f"A layer in strips: {layer.replace(':', ',')}", told).twin, told)
