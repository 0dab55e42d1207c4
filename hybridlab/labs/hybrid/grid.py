"""Notebook 40: the grid of ranks with its sliders, a table of the messages, curves, a mutant."""

from functools import lru_cache
from itertools import permutations

import ipywidgets

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.hybrid.traffic import transfers
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.grid_of_ranks import grid_of_ranks, refusal
from hybridlab.show.live.chooser import beside
from hybridlab.show.paper.still import Still

MOST = 16  # ranks
WIDE = "272px"  # width of a control: three are side by side
SHAPE = Shape(heads=8, dropout=0.1)
PARAMETERS = (
    "blocks.0.mlp.up.weight",
    "blocks.0.mlp.down.weight",
    "blocks.3.mlp.up.weight",
    "blocks.0.mlp_norm.weight",
    "embed.token.weight",
    "embed.position.weight",
)
WHAT = {"tp": "inside a stage", "pp": "between stages", "dp": "gradients, weights"}


def mesh_of(order: str, **lengths: int) -> Mesh:
    """The mesh with these axes in this order, the slowest first.

    >>> mesh_of("pp dp tp", dp=3, tp=2, pp=1)
    Mesh(pp=1, dp=3, tp=2)
    """
    return Mesh(**{axis: lengths[axis] for axis in order.split()})


@lru_cache(maxsize=64)
def job(mesh: Mesh, **more):
    """The job of training this notebook's model on a mesh; more as in `training.make_job.job_of`."""
    from hybridlab.training.make_job import job_of  # here, because it loads torch

    return job_of(mesh, **{"shape": SHAPE} | more)


def picture(mesh: Mesh, per_node: int | None = None, parameter: str | None = None, rank: int = 0, **more) -> Still:
    """The grid of ranks of a job on this mesh, with a table of its messages; or the reason why there is no such job.

    more  as in `training.make_job.job_of`
    """
    try:
        one = job(mesh, **more)
        return grid_of_ranks(one.layout, parameter, min(rank, mesh.size - 1), per_node, table(one, per_node))
    except ValueError as error:
        return refusal(str(error))


def table(one, per_node: int | None = None) -> list[tuple[str, ...]]:
    """The messages of one step: rows of text, one for each axis and operation, and the total.

    Both columns are bytes on the wire: those that leave the ranks, and those that leave their nodes.
    """
    nodes, rows = per_node or one.mesh.size, {}
    for each in transfers(one):
        row = rows.setdefault((each.axis, each.op), [0.0, 0.0])
        row[0] += each.wire
        row[1] += each.between(nodes)
    heading = ("along", "what", "operation", "bytes sent in a step", "between nodes")
    body = [
        (axis, WHAT.get(axis, "gradients"), op.replace("isend", "send"), f"{every:,.0f}", f"{out:,.0f}")
        for (axis, op), (every, out) in sorted(rows.items())
        if every
    ]
    every, out = (sum(row[i] for row in rows.values()) for i in (0, 1))
    return [heading, *body, ("all", "", "", f"{every:,.0f}", f"{out:,.0f}")]


class RankGrid(ipywidgets.VBox):
    """Sliders for dp, pp and tp, the order of the axes, the size of a node, ZeRO, a parameter and a rank; the picture.

    There are sliders and buttons but no menus, because in JupyterLab the arrow keys do not reach ipywidgets' menus.
    Without a kernel the picture of the first choices is shown.
    """

    def __init__(self, **first):
        slider = lambda name, most: ipywidgets.IntSlider(
            first[name], 0 if name == "rank" else 1, most, description=name, layout={"width": WIDE}
        )
        menu = lambda name, told, options: ipywidgets.ToggleButtons(
            value=first[name], options=options, description=told, **beside("80px")
        )
        orders = [(" → ".join(order), " ".join(order)) for order in permutations(("pp", "dp", "tp"))]
        self.choices = {axis: slider(axis, MOST) for axis in ("dp", "pp", "tp")} | {
            "order": menu("order", "slow → fast", orders),
            "per_node": menu("per_node", "node of", [2, 4, 8, 16]),
            "zero": menu("zero", "ZeRO", [0, 1, 2]),
            "scatter": ipywidgets.Checkbox(first["scatter"], description="scatter/gather", layout={"width": WIDE}),
            "parameter": ipywidgets.SelectionSlider(
                value=first["parameter"],
                options=[(name.removesuffix(".weight"), name) for name in PARAMETERS],  # there is little space
                description="parameter",
                layout={"width": "420px"},
            ),
            "rank": slider("rank", MOST - 1),
        }
        self.choices["zero"].layout.margin = "2px 2px 2px 24px"
        self._picture = ipywidgets.HTML()
        for one in self.choices.values():
            one.observe(lambda _: self.draw(), "value")
        rows = [list(self.choices)[:3], ["order"], ["per_node", "zero"], ["parameter"], ["rank", "scatter"]]
        boxes = [ipywidgets.HBox([self.choices[name] for name in row]) for row in rows]
        super().__init__([*boxes, self._picture])
        self.draw()

    def draw(self):
        """Draw the current choices."""
        chosen = {name: one.value for name, one in self.choices.items()}
        self.still = chosen_picture(**chosen)
        self._picture.value = self.still.svg

    @property
    def summary(self) -> str:
        """The picture in words."""
        return self.still.summary

    def _repr_mimebundle_(self, **more):
        return super()._repr_mimebundle_(**more) | self.still._repr_mimebundle_()


def chosen_picture(dp, pp, tp, order, per_node, zero, scatter, parameter, rank) -> Still:
    """The picture of the explorer's choices."""
    if dp * pp * tp > MOST:
        return refusal(f"dp × pp × tp = {dp} × {pp} × {tp} = {dp * pp * tp} ranks: make it {MOST} or fewer")
    mesh = mesh_of(order, dp=dp, pp=pp, tp=tp)
    if rank >= mesh.size:
        return refusal(f"{mesh} has no rank {rank}: choose one up to {mesh.size - 1}")
    return picture(mesh, per_node, parameter, rank, zero=zero, scatter=scatter)


def explorer(dp=2, pp=2, tp=4, order="pp dp tp", per_node=4, zero=1, scatter=False, parameter=PARAMETERS[0], rank=1):
    """The grid of ranks, with controls."""
    return RankGrid(**locals())


def curves(losses: dict[str, list[float]], first: dict[str, int] | None = None):
    """Loss over steps, one curve for each layout; dash and marker distinguish curves that coincide.

    first  {name: the step before which a curve begins}, if that is not 0
    """
    first = first or {}
    every = [loss for its in losses.values() for loss in its]
    low, high, steps = min(every), max(every), max(len(its) + first.get(name, 0) for name, its in losses.items())
    looks = [(0, "solid", ""), (1, "dash", "circle-open"), (5, "dot", "square-open"), (3, "dashdot", "cross"),
             (2, "solid", "diamond")]  # fmt: skip
    drawn = [
        Curve(name, [first.get(name, 0) + step for step in range(len(its))], its, colour, dash, marker)
        for (name, its), (colour, dash, marker) in zip(losses.items(), looks)
    ]
    told = f"{len(losses)} runs: {', '.join(losses)}; the loss falls from {high:.3f} to {low:.3f} nats per token"
    axis = Axis("nats per token", low - 0.05 * (high - low), high + 0.05 * (high - low))
    return chart(drawn, Axis("step", -0.5, steps - 0.5), axis, "One loss curve, several layouts", told)


def proof(report) -> str:
    """A report of `hl.check` without the last digits of its gap, since other processors may round them differently."""
    gap = "below 1e-11" if report.largest_gap < 1e-11 else f"{report.largest_gap:.0e}"
    verdict = f"{'equal' if report.ok else 'not equal'} to {report.reference}"
    rows = [f"{what}: {one:,} bytes counted, {other:,} by the formula" for what, (one, other) in report.bytes.items()]
    return "\n  ".join([f"{report.layout}: {verdict}", f"{len(report.gaps)} comparisons, largest gap {gap}", *rows])


def forget_the_tensor_sum():
    """A sabotage: on every rank, a shard's gradient is not all-reduced over the tensor group."""
    from hybridlab.core.where.layout import Layout

    Layout.twins = lambda layout, name, rank: (rank,)
