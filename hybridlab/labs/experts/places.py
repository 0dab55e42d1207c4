"""Notebook 32: the places of experts. Folded experts on the ranks of one node, with their savings and their costs;
copies of popular experts.
"""

from collections.abc import Sequence

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.experts.pictures import BOLD, GROUND, LEFT, MUTED, PX, STYLE, WIDTH
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.copied_experts import bound, busiest, copied, packed
from hybridlab.predict.bytes.experts import imbalance
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.sheet import captioned, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import WEIGHT
from hybridlab.training.make_job import job_of
from hybridlab.training.report import Report

NODE, WAYS = 8, (2, 4, 8)  # ranks of a node, and as many experts; lengths of tp
NODE_SHAPE = Shape(layers=1, width=16, heads=8, context=16, experts=NODE, chosen=2, inner=16)
BOX, ROW, APART, HEAD = 82, 18, 18, 120  # pixels: a rank, an expert in it, between ranks, above the first line of ranks
NAMES = 74  # pixels of the names of experts
SKEWS = ("0", "0.3", "0.6", "0.9")
MANY, CHOSEN, EP = 64, 8, 8  # experts, choices of a token, and ep, in `traded`


# --- one node, twice --------------------------------------------------------------------------------------------------


def node() -> Chooser:
    """One node with sharded experts, and with folded ones, for some lengths of tp."""
    return Chooser(node_still, {"tp": ("tp", list(WAYS), 4)}, [{}])


def node_still(tp: int) -> Still:
    """The parts of eight experts on each of eight ranks: by hidden units along tp, and folded."""
    out, told = [words(LEFT, 34, f"Eight experts on one node: ep={NODE // tp}, tp={tp}", PX["heading"], **BOLD)], []
    for line, fold in enumerate((False, True)):
        top, name = HEAD + line * (NODE * ROW + 90), "folded" if fold else "sharded along tp"
        out.append(words(LEFT, top - 34, name, PX["axis"], **BOLD))
        held = [_held(tp, fold, rank) for rank in range(NODE)]
        for rank, its in enumerate(held):
            out += _rank(LEFT + NAMES + rank * (BOX + APART), top, rank, its)
        out += [words(LEFT, top + e * ROW + 12, f"expert {e}", PX["smallest"], fill=MUTED) for e in range(NODE)]
        experts, (begin, end) = held[0]
        part = "all" if end - begin == NODE_SHAPE.inside else f"1/{NODE_SHAPE.inside // (end - begin)}"
        told.append(f"{name}: rank 0 has {part} of {'experts' if len(experts) > 1 else 'expert'} {_span(experts)}")
    return captioned(WIDTH, HEAD + 2 * NODE * ROW + 110, "Eight experts on one node", "; ".join(told) + ".", out, LEFT)


def _held(tp: int, fold: bool, rank: int) -> tuple[range, tuple[int, int]]:
    """(experts, hidden units) on a rank, as the layout of a job says."""
    mesh = Mesh(**{axis: length for axis, length in (("ep", NODE // tp), ("tp", tp)) if length > 1})
    job = job_of(mesh, model=NODE_SHAPE, microbatches=1, batch=NODE, sequence=True, fold=fold)
    experts, hidden, _ = job.layout.box("blocks.0.mlp.experts.up.weight", rank)
    return range(experts.start, experts.stop), (hidden.start, hidden.stop)


def _span(experts: range) -> str:
    return f"{experts[0]} to {experts[-1]}" if len(experts) > 1 else str(experts[0])


def _rank(x, top, rank, held):
    """A rank: a row for each expert of the layer, filled where the rank has its hidden units."""
    experts, (begin, end) = held
    yield words(x + BOX / 2, top - 10, f"rank {rank}", PX["axis"], "middle", fill=MUTED)
    for expert in range(NODE):
        y = top + expert * ROW
        place = f'x="{x}" y="{y}" width="{BOX}" height="{ROW - 3}"'
        yield f'<rect {place} fill="none" stroke="{MUTED}" stroke-width="0.5"/>'
        if expert in experts:
            low, high = (BOX * unit / NODE_SHAPE.inside for unit in (begin, end))
            inside = f'x="{x + low:.1f}" y="{y}" width="{high - low:.1f}" height="{ROW - 3}"'
            yield f'<rect {inside} fill="{WEIGHT}"/>'


# --- bytes against balance --------------------------------------------------------------------------------------------


def traded() -> Chooser:
    """The bytes that folding saves and the balance that it costs, for some lengths of tp and some skews."""
    choices = {"tp": ("tp", [1, *WAYS], 4), "exponent": ("exponent", list(SKEWS), "0.6")}
    return Chooser(traded_still, choices, [{}])


def traded_still(tp: int, exponent: str) -> Still:
    """Rows that a rank sends, and the load of the busiest rank, of sharded and of folded experts."""
    load = lambda ways: float(imbalance(MANY, CHOSEN, ways, float(exponent)))
    bars = (
        ("rows that a rank sends", "sharded", 1.0, "1"),
        ("", "folded", 1 / tp, f"1/{tp}" if tp > 1 else "1"),
        ("busiest rank over the mean", "sharded", load(EP), f"{load(EP):.2f}"),
        ("", "folded", load(EP * tp), f"{load(EP * tp):.2f}"),
    )
    title = f"{MANY} experts, {CHOSEN} chosen, ep={EP}, tp={tp}, Zipf with exponent {exponent}"
    out = [words(LEFT, 34, title, PX["heading"], **BOLD)]
    for number, (group, name, value, said) in enumerate(bars):
        y = 70 + 44 * number + 20 * (number // 2)
        fill = STYLE["kinds"]["message" if number < 2 else "F"]["fill"]
        out.append(words(LEFT, y + 20, group, PX["axis"], **BOLD))
        out.append(words(LEFT + 330, y + 20, name, PX["axis"], "end", fill=MUTED))
        out.append(f'<rect x="{LEFT + 346}" y="{y}" width="{70 * value:.1f}" height="28" fill="{fill}"/>')
        out.append(words(LEFT + 356 + 70 * value, y + 20, said, PX["axis"]))
    told = f"{title}: folded experts send {bars[1][3]} of the rows; the busiest rank has {bars[3][3]} times the mean, "
    return captioned(WIDTH, GROUND - 20, title, f"{told}with sharded ones {bars[2][3]}.", out, LEFT)


def moved(report: Report, mesh: Mesh) -> list[tuple[str, int, int, int]]:
    """For each all-to-all of a report, (its axis, the bytes counted, the bytes by the formula, the bytes that one rank
    sends to others)."""
    rows = []
    for (_, axis, op), (counted, formula) in report.axes.items():
        if op == "all_to_all":
            sent = cost(op, mesh.length(axis), counted / mesh.size).bytes
            rows.append((axis, round(counted), round(formula), round(sent)))
    return rows


# --- copies -----------------------------------------------------------------------------------------------------------


def copies(loads: Sequence[float], ranks: int, every: Sequence[int]) -> list[tuple[str, int, str, str]]:
    """(slots, copies of the hottest expert, load of the busiest rank over the mean, its bound), for a table."""
    found = []
    for slots in every:
        load = busiest(loads, packed(loads, ranks, slots))
        found.append((f"{slots}", max(copied(loads, slots)), f"{load:.2f}", f"{bound(loads, ranks, slots):.2f}"))
    return found
