"""A pipeline's bubble, live: each term of the formula lights its area in the schedule, for all numbers of ranks and
microbatches. The schedule is simulated as the registry makes it, and the last number is measured in its timeline.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule
from hybridlab.show.live.linked import Panel, area, grip, lights, linked_panel
from hybridlab.show.live.moving import Choice
from hybridlab.show.live.shown import Shown
from hybridlab.show.paper.sheet import words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.drawn import LEFT, Boxes
from hybridlab.show.timelines.spans import BUBBLE
from hybridlab.show.timelines.svg import page

FORWARD, BACKWARD = 1, 2  # units of time, of all chunks of a rank together
WIDTH, MARGIN, BESIDE, PX = 960, 18, 22, STYLE["pixels"]  # p's grip is in the margin, m's beside the end of the step
SIZES = {  # ranks, microbatches and chunks that a reader may choose
    "gpipe": (range(2, 7), range(1, 11), (1,)),
    "1f1b": (range(2, 7), range(1, 11), (1,)),
    "interleaved": ((2, 4), (4, 8), (1, 2, 4)),
}
LABELS = "ranks p", "microbatches m", "chunks v"


class Sizes(NamedTuple):
    """Ranks, microbatches, and the chunks of each rank. A slot has a forward and a backward of one chunk.

    >>> Sizes(4, 8).slots, Sizes(4, 8, v=2).slots, Sizes(4, 8, v=2).length
    (11, 19, 28.5)
    """

    p: int
    m: int
    v: int = 1

    @property
    def slots(self) -> int:
        """Slots of a step."""
        return self.v * self.m + self.p - 1

    @property
    def length(self) -> float:
        """The length of a step, in units."""
        return self.slots * (FORWARD + BACKWARD) / self.v

    @property
    def many(self) -> bool:
        """Whether a rank has more than one chunk, so that the formula has a v."""
        return self.v > 1


def bubble_formula(name: str = "gpipe", ranks: int = 4, microbatches: int = 8) -> Shown:
    """The idle fraction of a pipeline's step as a formula, of which each term lights its area in the schedule.

    name   "gpipe", "1f1b" or "interleaved"; in the last one chunks can be chosen too
    ranks, microbatches  the initial numbers; sliders, and grips in the picture, change them

    raises  ValueError for another schedule, and for sizes that are not among the choices

    Source: Huang et al. 2019, arXiv:1811.06965, section 2.3; Narayanan et al. 2021, arXiv:2104.04473, section 2.2.

    >>> import hybridlab as hl
    >>> print(hl.pictures.bubble_formula("gpipe", ranks=4, microbatches=8).summary)
    gpipe, p = 4, m = 8: idle / total = (p−1)/(m+p−1) = 3/11 = 27.3 %, idle / ideal = (p−1)/m = 3/8 = 37.5 %
    """
    if name not in SIZES:
        raise ValueError(f"name={name!r} is invalid: its bubble is not drawn. Choose one of {', '.join(SIZES)}")
    first = Sizes(ranks, microbatches, SIZES[name][2][len(SIZES[name][2]) // 2])
    choices = []
    for label, values, value in zip(LABELS, SIZES[name], first):
        if value not in values:
            raise ValueError(f"{label[:-2]}={value} is invalid: it is not drawn. Choose one of {list(values)}")
        choices.append(Choice(label, values, list(values).index(value)))
    return linked_panel(lambda *sizes: _panel(name, Sizes(*sizes)), choices, _still(name, first))


def _panel(name: str, sizes: Sizes) -> Panel:
    played = _played(name, sizes)
    drawn = _drawn(played, name)
    more = lambda *place: _areas_and_grips(drawn, name, sizes, *place)
    return Panel(page(drawn, WIDTH, more=more), _formula(sizes, played), _told(name, sizes, played))


def _still(name: str, sizes: Sizes) -> Still:
    """The same picture without JavaScript: the formula is a line below the schedule."""
    played = _played(name, sizes)
    told = _in_words(name, sizes, played)

    def below(top, bottom, lane, scale):
        lines = told.replace(": idle", ":\nidle").split("\n")
        drawn = [words(LEFT, bottom + PX["line"] * (i + 1), line, PX["caption"]) for i, line in enumerate(lines)]
        return drawn, bottom + PX["line"] * len(lines)

    return Still(page(_drawn(played, name), WIDTH, _title(name, sizes), more=below), told)


def _played(name: str, sizes: Sizes) -> Timeline:
    many = {"chunks": sizes.v} if sizes.many else {}
    plan = schedule("1f1b" if name == "interleaved" and not sizes.many else name, sizes.p, sizes.m, **many)
    return simulate(plan, Costs(F=FORWARD / sizes.v, B=BACKWARD / sizes.v))


def _drawn(played: Timeline, name: str) -> Boxes:
    """The boxes, with flat lanes, on a time axis of one length for all choices, so a longer step looks longer."""
    ranks, microbatches, _ = SIZES[name]
    return replace(boxes(played), length=Sizes(max(ranks), max(microbatches)).length, small=True, told=())


def _title(name: str, sizes: Sizes) -> str:
    return f"{name}, p = {sizes.p}, m = {sizes.m}" + f", v = {sizes.v}" * sizes.many


def _areas_and_grips(drawn, name, sizes, top, bottom, lane, scale):
    """The areas that terms light, idle slots and work, which are together the total; a grip for p, and one for m."""
    tops, out, idle = [one.top for one in drawn.lanes], [], drawn.kind == BUBBLE
    for term, mine in (("idle total", idle), ("work total", ~idle)):
        for number, y in enumerate(tops):
            for begin, end in _joined(drawn, np.flatnonzero(mine & (drawn.lane == number))):
                out.append(area(term, LEFT + begin * scale, top + y * lane, (end - begin) * scale, lane))
    ranks, microbatches, _ = SIZES[name]
    pitch = (tops[-1] - tops[0]) / (len(tops) - 1) * lane
    down = [(MARGIN, top + (p - 1) * pitch + lane / 2) for p in ranks]
    row = list(ranks).index(sizes.p)
    along = [(LEFT + sizes._replace(m=m).length * scale + BESIDE, down[row][1]) for m in microbatches]
    out.append(grip(0, row, down, "p↕"))
    out.append(grip(1, list(microbatches).index(sizes.m), along, "m↔"))
    return out, bottom


def _joined(drawn, which):
    """The boxes as periods; those that follow one another without a gap are one period.

    >>> _joined(type("Drawn", (), {"x0": np.array([0, 3, 1]), "x1": np.array([1, 4, 2])}), np.arange(3))
    [[0, 2], [3, 4]]
    """
    found = []
    for begin, end in sorted(zip(drawn.x0[which].tolist(), drawn.x1[which].tolist())):
        if found and begin - found[-1][1] < 1e-9:
            found[-1][1] = end
        else:
            found.append([begin, end])
    return found


def _formula(sizes: Sizes, played: Timeline) -> str:
    """Both fractions in MathML, in letters and in numbers."""
    text, number = (lambda name: f"<mi>{name}</mi>"), (lambda value: f"<mn>{value}</mn>")
    sign, percent = (lambda one: f"<mo>{one}</mo>"), (lambda share: f"<mn>{100 * share:.1f}</mn><mtext> %</mtext>")
    product = (lambda v, m: v + sign("·") + m) if sizes.many else (lambda v, m: m)
    idle = lights("idle", text("p") + sign("−") + number(1)), lights("idle", number(sizes.p - 1))
    work = (
        lights("work", product(text("v"), text("m"))),
        lights("work", product(number(sizes.v), number(sizes.m))),
    )
    total = [lights("total", a + sign("+") + b) for a, b in zip(work, idle)]
    named = lambda name: f"<mtext>{name}</mtext>" + sign("=")
    fraction = lambda over, under: f"<mfrac>{over}{under}</mfrac>" + sign("=")
    both = [
        named(name) + fraction(idle[0], under[0]) + fraction(idle[1], under[1]) + percent(share)
        for name, under, share in (
            ("idle / total", total, played.bubble_fraction),
            ("idle / ideal", work, played.bubble_overhead),
        )
    ]
    return "".join(f'<math displaystyle="true">{one}</math>' for one in both)


def _in_words(name, sizes, played):
    letters, work = ("v·m", sizes.v * sizes.m) if sizes.many else ("m", sizes.m)
    idle, under = sizes.p - 1, f"({letters})" if sizes.many else letters
    return (
        f"{_title(name, sizes)}: idle / total = (p−1)/({letters}+p−1) = {idle}/{sizes.slots} = "
        f"{100 * played.bubble_fraction:.1f} %, idle / ideal = (p−1)/{under} = {idle}/{work} = "
        f"{100 * played.bubble_overhead:.1f} %"
    )


def _told(name, sizes, played):
    slot = "a forward and a backward of a microbatch" + " in one chunk" * sizes.many
    letters, work = ("v·m", sizes.v * sizes.m) if sizes.many else ("m", sizes.m)
    idle = f"p − 1 = {sizes.p - 1} slot{'s' * (sizes.p > 2)}"
    return {
        "": f"Of {sizes.slots} slots, every rank works in {work} and is idle in {sizes.p - 1}. A slot is {slot}. "
        "Point at a term of the formula, or drag p and m in the picture.",
        "idle": f"{idle}: every rank is idle for so long, because the first microbatch must reach the last rank, and "
        "its gradient must come back.",
        "work": f"{letters} = {work} slot{'s' * (work > 1)}: every rank works for so long, with any number of ranks.",
        "total": f"{letters} + p − 1 = {sizes.slots} slots: the step of every rank, work and idle time together.",
    }
