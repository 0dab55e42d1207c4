"""Notebook 35, pictures: two layers under a table of rules, with each rank's parts and the messages; words over tokens.

A tensor of sequences and positions is drawn as a matrix with a row for each token. Between two states of a tensor is
the sign of its move, green if words are sent; below it are the messages forward (→) and backward (←).
"""

import itertools
import math
from collections.abc import Sequence

from hybridlab.core.what.operators import Graph, shared
from hybridlab.core.what.programs import mlp
from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules
from hybridlab.core.where.states import State, conjugate, cutters, spoken
from hybridlab.labs.layouts.tables import NAMES, written
from hybridlab.predict.bytes.arrows import Arrow, arrows, sent
from hybridlab.predict.time.operators import times, work
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.cuts import Matrix, Sign, Slice, cuts
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.still import Still

MESH = Mesh(i=2, j=2)
PROGRAM = mlp(batch=4, positions=4, width=8, hidden=16)
WHOLE = "–"  # no rule
MOVES = {"I->R": "enter", "P->I": "sum", "P->R": "sum", "V->I": "gather", "V->R": "gather", "P->V": "scatter",
         "I->V": "slice", "V->V": "exchange"}  # fmt: skip
SHOWN = ({"B": "i"}, {"F": "j"}, {"B": "i", "F": "j"})


# --- who holds what -----------------------------------------------------------------------------------------------


def layouts(numbers: bool = True) -> Chooser:
    """Two layers on 2 × 2 ranks, with a row of buttons for the rule of each dim."""
    axes = [WHOLE, "i", "j", "i+j"]
    choices = {dim: (f"{dim} along", axes, SHOWN[0].get(dim, WHOLE)) for dim in PROGRAM.dims}
    blank = dict.fromkeys(PROGRAM.dims, WHOLE)
    draw = lambda **axes: layout_still({dim: one for dim, one in axes.items() if one != WHOLE}, numbers=numbers)
    return Chooser(draw, choices, [blank | rules for rules in SHOWN])


def layout_still(rules: Rules, graph: Graph = PROGRAM, mesh: Mesh = MESH, numbers: bool = True) -> Still:
    """The two layers under a table of rules.

    raises  ValueError for an illegal table

    >>> layout_still({"F": "j"}).summary.split("; ")[1]
    'x: back all-reduce j'
    """
    strategy = shared(graph, rules, mesh)
    found = {(arrow.value, arrow.users): arrow for arrow in arrows(graph, strategy, mesh)}
    of = lambda value: next(arrow for (name, _), arrow in found.items() if name == value)
    lines = []
    for flows, weight, makes in (("x", "A", "up"), ("gelu", "W", "down")):
        parts = [*_ends(of(flows), graph, mesh, "forward"), Sign("·"), *_ends(of(weight), graph, mesh, "weight")]
        lines.append([*parts, Sign("="), *_ends(of(makes), graph, mesh, "forward")])
    lines[0].append(Sign("GELU"))
    told = _in_words(rules, list(found.values()), mesh)
    if numbers:
        repeated = times(work(graph, strategy, mesh))
        words = sent(list(found.values()), mesh)
        told += f"; a rank sends {words:,.0f} words, and does {repeated:.2f} times its share of the work"
    return cuts(lines, mesh.size, f"Two layers, rules {written(rules)}, on {_shown(mesh)} ranks", told)


def _ends(arrow: Arrow, graph, mesh, kind) -> list:
    """A tensor in its layout, the signs of its moves, and the layout for its users, if it is different."""
    before = _matrix(arrow, arrow.before, graph, mesh, kind)
    if not arrow.moves:
        return [before]
    after = _matrix(arrow, arrow.after, graph, mesh, kind)
    looks_alike = before._replace(name="") == after._replace(name="") and before.name == after.name
    return [before, *(_sign(move, arrow.learns, mesh) for move in arrow.moves), *([] if looks_alike else [after])]


def _matrix(arrow, state: State, graph, mesh, kind) -> Matrix:
    """A tensor in a state: its slices, and the ranks that hold each; for a partial sum, the axes are named."""
    *down, across = [(dim, graph.sizes[dim]) for dim in arrow.dims]
    if kind == "weight":  # as in formulas: inputs down, outputs across
        down, across = [across], down[0]
    boxes: dict[tuple, list[int]] = {}
    for rank in range(mesh.size):
        rows = list(itertools.product(*(range(*_span(dim, size, state, mesh, rank)) for dim, size in down)))
        lengths = [size for _, size in down]
        for span in _runs([_number(row, lengths) for row in rows]):
            boxes.setdefault((span, _span(*across, state, mesh, rank)), []).append(rank)
    slices = tuple(Slice(rows, columns, tuple(ranks)) for (rows, columns), ranks in sorted(boxes.items()))
    partial = [axis for axis, one in zip(mesh.axes, state) if one == "P"]
    name = arrow.value + (f" · partial, {' '.join(partial)}" if partial else "")
    return Matrix(name, math.prod(size for _, size in down), across[1], slices, kind)


def _span(dim, size, state, mesh, rank) -> tuple[int, int]:
    """The span of a dim that a rank holds."""
    axes = cutters(state, mesh).get(dim)
    return even(size, mesh.length(axes))[mesh.place(rank, axes)] if axes else (0, size)


def _number(row, lengths) -> int:
    """A token's number: sequences one after the other."""
    number = 0
    for place, length in zip(row, lengths):
        number = number * length + place
    return number


def _runs(numbers) -> list[tuple[int, int]]:
    """Runs of consecutive numbers, drawn together.

    >>> _runs([0, 1, 4, 5, 6])
    [(0, 2), (4, 7)]
    """
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs


def _sign(move, learns, mesh) -> Sign:
    there, back = (spoken(arrow) if mesh.length(move.axis) > 1 else "" for arrow in (move.arrow, conjugate(move.arrow)))
    note = f"→{NAMES.get(there, 'nothing')}" + (f"\n←{NAMES.get(back, 'nothing')}" if learns else "")
    return Sign(f"{MOVES[move.arrow]} {move.axis}", note, lit=bool(there or (back and learns)))


def _in_words(rules, found, mesh) -> str:
    """The picture in words: every tensor that is sent."""
    told = []
    for arrow in found:
        sends = [f"{'back ' * one.backward}{NAMES[one.op]} {one.axis}" for one in arrow.sends(mesh)]
        if sends:
            told.append(f"{arrow.value}: {', '.join(sends)}")
    return f"Rules {written(rules)} on {_shown(mesh)} ranks; " + ("; ".join(told) or "nothing is sent")


def _shown(mesh) -> str:
    return " × ".join(map(str, mesh.axes.values()))


# --- words over tokens --------------------------------------------------------------------------------------------

NAMED = {  # the tables that the notebook compares, and their looks
    "data: {B: i+j}": ({"B": "i+j"}, (1, "solid", "square")),
    "Megatron: {F: i+j}": ({"F": "i+j"}, (5, "dash", "circle")),
    "both: {B: i, F: j}": ({"B": "i", "F": "j"}, (2, "dot", "diamond")),
}


def crossing(batches: Sequence[int] = (16, 64, 256, 1024, 4096), width: int = 1024, mesh: Mesh | None = None) -> Figure:
    """Words that a rank sends over the tokens of a batch, under three tables of rules, on 4 × 4 ranks."""
    mesh, curves, told = mesh or Mesh(i=4, j=4), [], []
    for name, (rules, looks) in NAMED.items():
        points = []
        for batch in batches:
            graph = mlp(batch, 16, width, 4 * width)
            points.append((16 * batch, sent(arrows(graph, shared(graph, rules, mesh), mesh), mesh)))
        at = [math.log2(tokens) for tokens, _ in points]
        curves.append(Curve(name, at, [math.log10(words) for _, words in points], *looks))
        told.append(f"{name} {points[0][1] / 1e6:.3g} to {points[-1][1] / 1e6:.3g}")
    x = Axis("tokens in a batch", min(at) - 0.4, max(at) + 0.4, marks={one: f"{2**one:,.0f}" for one in at})
    y = Axis(
        "million words a rank sends in a step",
        5.3,
        8.5,
        marks={power: f"{10.0 ** (power - 6):g}" for power in (6, 7, 8)},
    )
    title = f"Two layers of {width} × {4 * width} on {mesh.size} ranks: words that a rank sends"
    return chart(curves, x, y, title, f"{title}, in millions, from {16 * batches[0]} to {16 * batches[-1]:,} tokens: "
                 + "; ".join(told) + ".")  # fmt: skip
