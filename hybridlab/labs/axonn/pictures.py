"""Notebook 36, pictures: each rank's parts of a layer; a step of a chain of layers, predicted and measured."""

from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.axonn.on_ranks import Timed
from hybridlab.show.layouts.cuts import Matrix, Sign, Slice, cuts
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.sheet import first_to_last
from hybridlab.show.paper.still import Still
from hybridlab.show.timelines.tracks import Row, tracks

SIZES = (24, 16, 16)  # rows, inputs, outputs
GRIDS = ("2×2×2", "1×2×4", "4×2×1", "1×8×1", "8×1×1", "1×1×8")
WAYS = {"inputs along x": ("x", "y"), "inputs along y": ("y", "x")}


def homes() -> Chooser:
    """X, Wᵀ and Y of a layer on eight ranks, for some grids, and for both ways to choose inner and outer."""
    choices = {"grid": ("x × y × z", list(GRIDS), GRIDS[0]), "way": ("layer", list(WAYS), "inputs along x")}
    shown = [{"grid": GRIDS[0], "way": way} for way in WAYS]
    return Chooser(home_still, choices, shown)


def home_still(grid: str, way: str, sizes: tuple[int, int, int] = SIZES) -> Still:
    """X, Wᵀ and Y of a layer on a grid, each part labelled with all ranks that hold it.

    >>> home_still("2×2×2", "inputs along x").summary
    'rank 5 multiplies rows 12–23 and inputs 8–15 of X with outputs 0–7 of W; it stores outputs 4–7 of them'
    """
    mesh, (m, k, n) = Mesh(**dict(zip("xyz", map(int, grid.split("×"))))), sizes
    inner, outer = WAYS[way]
    held = [_spans(mesh, mesh.coordinates(rank), inner, outer, sizes) for rank in range(mesh.size)]
    parts = [
        _matrix("X", (m, k), [(one["rows"], one["inputs"]) for one in held], "forward"),
        Sign("·"),
        _matrix("Wᵀ, stored", (k, n), [(one["inputs"], one["share"]) for one in held], "weight"),
        Sign("="),
        _matrix("Y", (m, n), [(one["rows"], one["outputs"]) for one in held], "forward"),
    ]
    its = {name: first_to_last(*span) for name, span in held[5].items()}
    told = (
        f"rank 5 multiplies rows {its['rows']} and inputs {its['inputs']} of X with outputs {its['outputs']} of W; it "
        f"stores outputs {its['share']} of them"
    )
    return cuts([parts], mesh.size, f"x × y × z = {grid}, {way}", told)


def _spans(mesh, place, inner, outer, sizes):
    """The parts of one rank: its rows of the batch, its inputs and outputs, and the outputs that it stores."""
    along = lambda axis, length: even(length, mesh[axis])[place[axis]]
    rows, inputs, outputs = along("z", sizes[0]), along(inner, sizes[1]), along(outer, sizes[2])
    begin, end = along("z", outputs[1] - outputs[0])
    return {"rows": rows, "inputs": inputs, "outputs": outputs, "share": (outputs[0] + begin, outputs[0] + end)}


def _matrix(name, shape, boxes, kind) -> Matrix:
    """A matrix with its slices; ranks that hold the same slice share it."""
    held = {}
    for rank, box in enumerate(boxes):
        held.setdefault(box, []).append(rank)
    return Matrix(name, *shape, tuple(Slice(*box, tuple(ranks)) for box, ranks in held.items()), kind)


def step(timed: Timed) -> Still:
    """A step of a chain of layers, plain and overlapped: the prediction, and below it the measurement."""
    rows = []
    for form in timed.predicted:
        rows.append(Row(f"{form}, predicted", timed.predicted[form]))
        rows.append(Row(f"{form}, measured", timed.measured[form], measured=True))
    return tracks(*rows, title="A step of a chain of layers")
