"""The explorer of notebook 41: the map of all plans, its sliders, and the timeline of the plan under the pointer.

Python answers every choice with a full map (`show.plans.plan_map`) and every cell with the real schedule of its plan
(`predict.plans.by_schedule`). `show/live/plan_map.js` has the controls. Without a kernel the map of the first choices
is shown.
"""

import anywidget
import traitlets

from hybridlab.core.what import catalog
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.plans.by_schedule import by_schedule
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.planner import Planned, plan
from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.plans.plan_map import cells, plan_map
from hybridlab.show.timelines.svg import svg

ANY = "any"
GPUS = [8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]
BATCHES = [16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096]
MOST_BOXES = 6000  # the most in a timeline, which else has fewer microbatches, but at least as many as stages
CHOICES = (  # trait, label, values, whether a slider moves over them
    ("gpus", "devices n", GPUS, True),
    ("batch", "batch B, sequences", BATCHES, True),
    ("model", "model", list(catalog.MODELS), False),
    ("machine", "machine", list(catalog.MACHINES), False),
    ("zero", "ZeRO stage", [ANY, "0", "1", "2", "3"], False),
    ("recompute", "recomputation", [ANY, *RECOMPUTE], False),
    ("sequence", "sequence parallelism", [ANY, "no"], False),
)
NAMES = [trait for trait, *_ in CHOICES]


class PlanExplorer(anywidget.AnyWidget):
    """The map of all p and t for the chosen model, machine and batch; `planned` has every plan of the map.

    cell     [p, t] of the cell under the pointer;  told, timeline  facts and timeline of its best plan
    problem  a sentence that says why nothing can be planned, and then the last map stays; or ""
    """

    _esm = module("plan_map.js")
    _css = stylesheet("plan_map.css")

    gpus = traitlets.Int().tag(sync=True)
    batch = traitlets.Int().tag(sync=True)
    model = traitlets.Unicode().tag(sync=True)
    machine = traitlets.Unicode().tag(sync=True)
    zero = traitlets.Unicode().tag(sync=True)
    recompute = traitlets.Unicode().tag(sync=True)
    sequence = traitlets.Unicode().tag(sync=True)
    controls = traitlets.List().tag(sync=True)
    cell = traitlets.List().tag(sync=True)
    map = traitlets.Unicode().tag(sync=True)
    told = traitlets.Unicode().tag(sync=True)
    timeline = traitlets.Unicode().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **chosen):
        controls = [dict(zip(("trait", "label", "values", "slides"), one)) for one in CHOICES]
        super().__init__(**chosen, controls=controls)
        self.observe(lambda _: self._show(), NAMES)
        self.observe(lambda _: self._point(), "cell")
        self._show()

    def _show(self):
        """Draw the map of the current choices, and the timeline of its best plan."""
        try:
            self.planned = self._plan()
        except ValueError as error:
            self.problem = str(error)
            return
        self.still = plan_map(self.planned, self.title)
        best = self.planned.best.plan
        with self.hold_sync():  # the map at once, so that it follows a slider; the timeline takes a little longer
            self.problem, self.map = "", self.still.svg
        if self.cell == [best.p, best.t]:
            self._point()
        else:
            self.cell = [best.p, best.t]

    def _plan(self) -> Planned:
        given = {"zero": int(self.zero)} if self.zero != ANY else {}
        given |= {"recompute": self.recompute} if self.recompute != ANY else {}
        given |= {"sequence": False} if self.sequence != ANY else {}
        return plan(self.model, self.machine, self.gpus, self.batch, **given)

    def _point(self):
        """The facts of the cell under the pointer."""
        p, t = self.cell
        one = next(one for one in cells(self.planned) if (one.p, one.t) == (p, t))
        timeline, note = "", ""
        if one.share:
            chosen = self.planned.one(one.place)
            played, note = played_plan(self.planned, chosen)
            timeline = svg(played, title=str(chosen))
        with self.hold_sync():
            self.told = self.planned.why(p=p, t=t) + note
            self.timeline = timeline

    @property
    def title(self) -> str:
        """The choices in one line."""
        words = [f"{self.model} on {self.gpus} × {self.machine}", f"batch {self.batch}"]
        words += [f"ZeRO {self.zero}"] * (self.zero != ANY)
        words += [f"{self.recompute} recomputation"] * (self.recompute != ANY)
        return ", ".join(words + ["no sequence parallelism"] * (self.sequence != ANY))

    @property
    def summary(self) -> str:
        """The map in one line of words, or why there is none."""
        return self.problem or self.still.summary

    @property
    def twin(self) -> str:
        """The static twin, as SVG text."""
        return self.still.svg

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self.twin, "text/plain": self.summary}, metadata


def played_plan(planned: Planned, one: Plan) -> tuple[Timeline, str]:
    """The real schedule of one copy of a plan, by `by_schedule`, with as many microbatches as can be distinguished.

    Returns the timeline, and a note if not all microbatches are drawn.
    """
    m, boxes = one.microbatches(planned.batch), 2 * one.p * one.v
    if m * boxes <= MOST_BOXES:
        return by_schedule(planned.shape, one, planned.batch, planned.machine, planned.fit), ""
    few = min(m, one.p * max(1, MOST_BOXES // (boxes * one.p)))
    played = by_schedule(planned.shape, one, few * one.b * one.d, planned.machine, planned.fit)
    return played, f". Below, {few} of {m} microbatches; all of them have a smaller share of idle time"


def explorer(
    gpus: int = 64,
    batch: int = 128,
    model: str = "gpt-161b",
    machine: str = "a100",
    zero: str = "0",
    recompute: str = "full",
    sequence: str = "no",
) -> PlanExplorer:
    """The map of all plans, with controls; the first choices are those of SC'21's figure 13."""
    return PlanExplorer(**locals())
