"""Notebook 30, pictures: two matrices with a GELU between them, and an attention layer, cut over ranks; and a chart.

Slices are the boxes of a Layout; the tensors between them are read from `pair.steps_of`. Nothing is placed by hand.
"""

import math

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import Layout, even
from hybridlab.core.where.states import CONJUGATE, conjugate, spoken
from hybridlab.labs.megatron import pair
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.cuts import Matrix, Sign, Slice, cuts, in_words
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.still import Still

SHAPE = Shape(width=64, heads=8, context=48)
NAMES = {"I->R": "f", "P->I": "g", "I->V": "split", "V->R": "gather", "V->I": "gather", "P->V": "scatter"}
NOTES = {"all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-\nscatter", "": "nothing"}
FLOWS = ("forward", "backward")
GELU, BACK = Sign("GELU", "makes H"), Sign("⊙ GELU′")


def pair_cut(shape: Shape = SHAPE, ranks: int = 4) -> Chooser:
    """The MLP's two matrices, with buttons for the number of ranks, the way to cut, and the direction of the flow."""
    choices = {
        "ranks": ("ranks", [1, 2, 4, 8], ranks),
        "way": ("cut", list(pair.WAYS), pair.WAYS[0]),
        "flow": ("flow", list(FLOWS), FLOWS[0]),
    }
    return Chooser(lambda **chosen: pair_still(shape, **chosen), choices, [{"flow": flow} for flow in FLOWS])


def attention_cut(shape: Shape = SHAPE, ranks: int = 4, kv_heads: int = 2) -> Chooser:
    """The matrices of attention, cut by heads, with buttons for the number of ranks and of KV heads."""
    ways = [n for n in (1, 2, 4, 8) if shape.heads % n == 0]
    choices = {
        "ranks": ("ranks", [1, 2, 4, 8, 16], ranks),
        "kv_heads": ("kv_heads", ways, kv_heads),
        "flow": ("flow", list(FLOWS), FLOWS[0]),
    }
    shown = [{"kv_heads": shape.heads}, {"kv_heads": kv_heads}]
    return Chooser(lambda **chosen: attention_still(shape, **chosen), choices, shown)


def pair_still(shape: Shape, ranks: int, way: str = pair.WAYS[0], flow: str = "forward") -> Still:
    """The two matrices of an MLP on several ranks.

    >>> pair_still(SHAPE, 4).summary.split("; ")[0]
    '4 ranks, A by column, B by row, forward: f sends nothing, g is an all-reduce of 48×64'
    """
    layout = pair.layout_of(shape, ranks, way)
    steps, backward, rows = pair.steps_of(layout), flow == "backward", shape.context
    both = [_pair_lines(layout, steps, way, rows, ranks, one) for one in (False, True)]
    told = _pair_in_words(layout, steps, way, ranks, flow, rows)
    title = f"MLP: A cut by {way.split(' → ')[0]}s, B by {way.split(' → ')[1]}s, {ranks} rank{'s' * (ranks > 1)}"
    return cuts(both[backward], ranks, title, told, backward, also=both[not backward])


def _pair_lines(layout, steps, way, rows, ranks, backward) -> list:
    """The formula of one pass, in two lines if it is long."""
    parts = _merged((_backward if backward else _forward)(layout, steps, rows, ranks))
    middle = parts.index(BACK if backward else GELU) if backward or way != pair.WAYS[0] else 0
    return [line for line in (parts[:middle], parts[middle:]) if line]


def _forward(layout, steps, rows, ranks) -> list:
    """x · A = Y, GELU gives H, H · B = Z, and the operators before and after them."""
    parts, flowing = [], "x"
    for step in steps:
        if step.moves:
            parts += _move(step, flowing, rows, ranks, False, first=not parts)
        elif step.what == "gelu":
            parts.append(GELU)
        else:
            name, outputs, columns = _product(layout, step)
            flowing = "Y" if step.what == "A" else "Z"
            after = _flow(flowing, rows, outputs, "V" if columns else "P", ranks, False)
            parts += [Sign("·"), _weight(layout, name, step.what, ranks), Sign("="), after]
    return parts


def _backward(layout, steps, rows, ranks) -> list:
    """∂Z · Bᵀ = ∂H, ⊙ GELU′ makes ∂Y, · Aᵀ = ∂x: from the last step to the first, read from left to right."""
    parts, flowing, kind = [], "Z", "I"
    for step in reversed(steps):
        if step.moves:
            parts += _move(step, flowing, rows, ranks, True, first=not parts)
            kind = step.what[0]
        elif step.what == "gelu":
            flowing = "Y"
            parts += [BACK, _flow(flowing, rows, step.width, kind, ranks, True)]
        else:
            name, _, columns = _product(layout, step)
            flowing, kind = "x" if step.what == "A" else "H", "R" if columns else "V"
            before = _flow(flowing, rows, step.width, kind, ranks, True)
            parts += [Sign("·"), _weight(layout, name, f"{step.what}ᵀ", ranks), Sign("="), before]
    return parts


def _product(layout, step) -> tuple[str, int, bool]:
    """(the weight of a matmul, its outputs, whether it is cut by columns)."""
    name = pair.A if step.what == "A" else pair.B
    return name, layout[name].shape[0], layout[name].shard["tp"].dim == 0


def attention_still(shape: Shape, ranks: int, kv_heads: int, flow: str = "forward") -> Still:
    """The matrices of an attention layer on several ranks, by heads.

    raises  ValueError if heads cannot be divided like this

    >>> attention_still(SHAPE, 4, 2).summary.split("; ")[1]
    '8 query heads, 2 on each rank'
    """
    from hybridlab.modes.tensor_parallel import refuse_misfits

    shape = Shape(width=shape.width, heads=shape.heads, context=shape.context, kv_heads=kv_heads)
    refuse_misfits(shape.sizes, ranks)
    layout, rows, h, backward = pair.attention_layout(shape, ranks), shape.context, shape.width, flow == "backward"
    t = "ᵀ" if backward else ""
    q, k, v, o = (_weight(layout, name, letter + t, ranks, shape.head_width) for letter, name in pair.ATTENTION.items())
    enter, leave = pair.Step("I->R", h), pair.Step("P->I", h)
    heads = _flow("heads", rows, h, "V", ranks, backward)
    if backward:
        parts = [*_move(leave, "Z", rows, ranks, True, first=True), Sign("·"), o, Sign("="), heads, Sign("attend′")]
        parts += [Sign("·"), q, Sign(","), k, Sign(","), v, Sign("="), _flow("x", rows, h, "R", ranks, True)]
        parts += _move(enter, "x", rows, ranks, True)
    else:
        parts = [*_move(enter, "x", rows, ranks, False, first=True), Sign("·"), q, Sign(","), k, Sign(","), v]
        parts += [Sign("attend"), heads, Sign("·"), o, Sign("="), _flow("Z", rows, h, "P", ranks, False)]
        parts += _move(leave, "Z", rows, ranks, False)
    title = f"Attention: heads={shape.heads}, kv_heads={kv_heads}, {ranks} rank{'s' * (ranks > 1)}"
    return cuts([_merged(parts)], ranks, title, _heads_in_words(layout, shape, ranks, flow), backward)


def times(measured: dict, foreseen: dict, cores: int) -> Figure:
    """Milliseconds of a step, by the number of ranks, spent computing and in collectives; {ranks: `megatron.Shares`}.

    foreseen  the same by rule
    cores     the number of cores of this machine: with more ranks than cores, no step becomes shorter
    """
    curves = []
    for what, name, colour, marker in (
        ("computing", "computing", 5, "circle"),
        ("collectives", "in collectives", 4, "square"),
    ):
        for kind, its, dash, hollow in (("measured", measured, "solid", ""), ("predicted", foreseen, "dash", "-open")):
            at = [math.log2(ranks) for ranks in its]
            ms = [1e3 * getattr(one, what) for one in its.values()]
            curves.append(Curve(f"{name}, {kind}", at, ms, colour, dash, marker + hollow))
    marks = {math.log2(t): f"{t}" + (f", on {cores} core{'s' * (cores > 1)}" if t > cores else "") for t in measured}
    share = {t: one.collectives / (one.computing + one.collectives) for t, one in measured.items()}
    told = "Share of a step in collectives: " + ", ".join(f"{part:.0%} with t = {t}" for t, part in share.items())
    most = max(max(one.y) for one in curves)
    x = Axis("ranks t", -0.1, max(marks) + 0.25, marks=marks)
    y = Axis("ms", -0.04 * most, 1.08 * most)  # room for the marks at 0
    return chart(curves, x, y, "One training step, the same model on more ranks", told)


# --- parts --------------------------------------------------------------------------------------------------------


def _weight(layout: Layout, name: str, letter: str, ranks: int, head: int = 0) -> Matrix:
    """A weight as formulas write it, inputs down and outputs across; with ᵀ, as torch keeps it and the backward uses
    it.
    """
    outputs, inputs = layout[name].shape
    boxes, transposed = {}, letter.endswith("ᵀ")
    for rank in range(ranks):
        across, down = ((one.start, one.stop) for one in layout.box(name, rank))
        boxes.setdefault((across, down) if transposed else (down, across), []).append(rank)
    slices = tuple(Slice(*box, tuple(its)) for box, its in boxes.items())
    lines = tuple(range(head, outputs, head)) if head and letter in "QKV" else ()
    rows, columns = (outputs, inputs) if transposed else (inputs, outputs)
    return Matrix(letter, rows, columns, slices, lines=lines)


def _flow(name: str, rows: int, columns: int, kind: str, ranks: int, backward: bool) -> Matrix:
    """The tensor between two steps, or its gradient, by its type along tp."""
    kind, everybody = CONJUGATE[kind] if backward else kind, tuple(range(ranks))
    whole = (Slice((0, rows), (0, columns), everybody),)
    parts = tuple(Slice((0, rows), span, (rank,)) for rank, span in enumerate(even(columns, ranks)))
    flow = FLOWS[backward]
    return Matrix(f"∂{name}" if backward else name, rows, columns, parts if kind == "V" else whole, flow, kind == "P")


def _move(step, name, rows, ranks, backward, first=False) -> list:
    """The sign of an arrow and the tensor that leaves it; before the first sign, also the incoming tensor. Gradients go
    the other way.
    """
    before, after = step.what.split("->")[:: -1 if backward else 1]
    op = spoken(conjugate(step.what) if backward else step.what) if ranks > 1 else ""
    sign = Sign(NAMES[step.what], NOTES[op], lit=bool(op))
    ends = [_flow(name, rows, step.width, kind, ranks, backward) for kind in (before, after)]
    return [ends[0], sign, ends[1]] if first else [sign, ends[1]]


def _merged(parts: list) -> list:
    """The same parts without a matrix that looks like the one before it, across a sign."""
    kept, last = [], None
    for part in parts:
        if isinstance(part, Matrix):
            if part == last:
                continue
            last = part
        kept.append(part)
    return kept


# --- words --------------------------------------------------------------------------------------------------------


def _pair_in_words(layout, steps, way, ranks, flow, rows):
    moves = []
    for step in steps:
        if step.moves:
            op = spoken(conjugate(step.what) if flow == "backward" else step.what) if ranks > 1 else ""
            does = f"is an {op.replace('_', '-')} of {rows}×{step.width}" if op else "sends nothing"
            moves.append(f"{NAMES[step.what]} {does}".replace("an reduce", "a reduce"))
    moves = moves[::-1] if flow == "backward" else moves
    first, second = way.split(" → ")
    has = f"each rank has 1/{ranks} of A and B" if ranks > 1 else "one rank has all of A and B"
    there = f"there and back each rank sends {pair.sent(layout):g} times {rows}×{layout[pair.A].shape[1]}"
    return f"{ranks} rank{'s' * (ranks > 1)}, A by {first}, B by {second}, {flow}: {', '.join(moves)}; {has}; {there}"


def _heads_in_words(layout, shape, ranks, flow):
    name = pair.ATTENTION["K"]
    sharing = sorted({layout.same_box(name, rank) for rank in range(ranks)})
    copied = " and ".join(in_words(group) for group in sharing)
    keys = f"{shape.key_heads} of keys and values"
    if len(sharing) == ranks:
        keys += f", {shape.key_heads // ranks} on each rank" if ranks > 1 else ""
    else:
        keys += f", each on several ranks: ranks {copied} hold the same and add its gradients"
    flows = {"forward": "f sends nothing, g is an all-reduce", "backward": "g sends nothing, f is an all-reduce"}
    moves = flows[flow] if ranks > 1 else "nothing is sent"
    queries = f"{shape.heads} query heads, {shape.heads // ranks} on each rank"
    return f"Attention on {ranks} rank{'s' * (ranks > 1)}, {flow}: {moves}; {queries}; {keys}"
