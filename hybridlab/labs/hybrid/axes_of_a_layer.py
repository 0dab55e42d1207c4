"""The axes of a job in a table, from the messages of one layer."""

from typing import NamedTuple

from hybridlab.core.layer import ONCE, Layer, Travel
from hybridlab.labs.rows import Table, table
from hybridlab.show.layouts.memory_bars import size


class Said(NamedTuple):
    """The description of an axis: the dimension that it cuts, the memory that it saves, and its risk."""

    cut: str
    saves: str
    beware: str


AXES = {
    "tp": Said("heads, hidden units", "weights, activations in pairs", "on every layer's path: keep it within a node"),
    "x": Said("the width: other dims of the matrices", "weights, activations", "sums after every matrix and norm"),
    "cp": Said("positions of a sequence", "activations", "causal attention is uneven: use zigzag"),
    "ep": Said("experts", "weights of experts", "popular experts: the slowest rank sets the time"),
    "pp": Said("layers", "weights, gradients, states", "the bubble: m must be much larger than p"),
    "dp": Said("rows of the batch", "time; with ZeRO states, gradients, weights", "needs enough rows for every copy"),
}
HEADS = ("axis", "cut along it", "what travels", "when", "bytes", "saves", "watch out")


def axes(layer: Layer) -> Table:
    """A row for each axis of the layer's mesh; bytes and operations are those of the layer.

    >>> import hybridlab as hl
    >>> print(axes(hl.dry_layer(hl.Mesh(tp=2))))
    axis  cut along it         what travels  when ...
    """
    rows = []
    for axis in (axis for axis in AXES if layer.mesh[axis] > 1):
        its, said = layer.along(axis), AXES[axis]
        travels = ", ".join(f"{count} {op}" for op, count in _operations(its).items())
        sent = size(sum(one.bytes for one in its))
        rows.append((f"{axis}={layer.mesh[axis]}", said.cut, travels, _when(its), sent, said.saves, said.beware))
    return table(HEADS, rows)


def _operations(its: tuple[Travel, ...]) -> dict[str, int]:
    table = {}
    for one in its:
        name = one.op.removeprefix("i").replace("_", "-")
        table[name] = table.get(name, 0) + one.count
    return table


def _when(its: tuple[Travel, ...]) -> str:
    whens = ["in every microbatch"] * any(one.phase not in ONCE for one in its)
    return " and ".join(whens + ["once in a step"] * any(one.phase in ONCE for one in its))
