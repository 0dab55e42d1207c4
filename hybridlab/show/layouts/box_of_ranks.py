"""A box of ranks: stages × copies × parts, with the three groups of a rank as lines, and walls between nodes.

A group along an axis is a line through the box. A wall is glass between two neighbours on different nodes; it is red
where a group of the chosen rank crosses it.
"""

from itertools import pairwise

from hybridlab.core.where.mesh import Mesh
from hybridlab.show.layouts.grid_of_ranks import AXES
from hybridlab.show.paper.sheet import captioned, sheet, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, ink_on
from hybridlab.show.paper.theme import CLASS

WIDTH, MARGIN, TOP, RADIUS = 760, 60, 52, 17  # pixels
MOST, LONGEST = 64, 170  # the most ranks; the most pixels from a stage to the next
STEPS = {"pp": (1.0, 0.16), "dp": (0.5, -0.34), "tp": (0.0, 0.62)}  # right, down; 1: from stage to stage
PLACE = {"pp": "stage", "dp": "copy", "tp": "part"}
PX, INK, ERROR, CHOSEN = STYLE["pixels"], STYLE["ink"], STYLE["error"], STYLE["curves"][0]


# The number of the chosen rank, whose disc looks the same on every page.
NUMBER = f'<style>.{CLASS} [data-of]:not([style*="none"]) + text[fill] {{ fill: {ink_on(CHOSEN)} }}</style>'


def box_still(mesh: Mesh, rank: int, per_node: int) -> Still:
    """The box with the groups of one rank, and its words below.

    >>> box_still(Mesh(pp=3, dp=2, tp=2), rank=5, per_node=4)
    <picture rank 5: stage 1, copy 0, part 1. Pipeline 1, 5, 9, crosses nodes. Data group 5, 7. Tensor group 4, 5.>
    """
    body, bottom = _body(mesh, rank, per_node)
    return captioned(WIDTH, bottom + PX["line"], _title(mesh), told(mesh, rank, per_node), body)


def box_svg(mesh: Mesh, rank: int, per_node: int) -> str:
    """The same box without words below, as SVG text; each group, ring and rank is marked for the page.

    data-of     ranks; the part is visible while the chosen rank is one of them
    data-hop    two ranks; the part is visible while a message is on its way from one to the other
    data-rank   the rank that this part represents
    """
    body, bottom = _body(mesh, rank, per_node, hops=True)
    return sheet(WIDTH, bottom, _title(mesh), told(mesh, rank, per_node), body)


def told(mesh: Mesh, rank: int, per_node: int) -> str:
    """A rank in words: where it is, its groups, and which of them cross nodes."""
    place = ", ".join(f"{PLACE[axis]} {mesh.coordinates(rank).get(axis, 0)}" for axis in PLACE)
    groups = []
    for axis in PLACE:
        group, name = mesh.group(rank, axis), AXES[axis][0]
        crosses = ", crosses nodes" if len({one // per_node for one in group}) > 1 else ""
        groups.append(f"{name.capitalize()} {', '.join(map(str, group))}{crosses}.")
    return f"rank {rank}: {place}. {' '.join(groups)}"


def refuse(mesh: Mesh, rank: int, per_node: int) -> None:
    """Raise a ValueError with a one-sentence message for a mesh, a rank or a node that cannot be drawn."""
    if other := [axis for axis, length in mesh.axes.items() if axis not in PLACE and length > 1]:
        raise ValueError(f"a box has the axes pp, dp and tp, and this mesh has {other[0]}: give a mesh without it")
    if mesh.size > MOST:
        raise ValueError(f"{mesh} has {mesh.size} ranks, too many to draw: give {MOST} at most")
    if rank not in range(mesh.size):
        raise ValueError(f"rank={rank} is not in the mesh: choose from 0 to {mesh.size - 1}")
    if per_node < 1:
        raise ValueError(f"per_node={per_node} leaves nodes empty: give 1 or more")


def _title(mesh):
    return "a box of ranks: " + " × ".join(f"{axis}={length}" for axis, length in mesh.axes.items())


def _body(mesh, rank, per_node, hops=False):
    """(elements, bottom), from the back of the box to its front; `hops`: also each piece of a pipeline on its own."""
    spot, unit, bottom = _spots(mesh)
    lines = [pair for axis in PLACE for group in mesh.groups(axis) for pair in pairwise(group)]
    out = [*_legend(mesh), *(_line(spot[a], spot[b], STYLE["control"], 1) for a, b in lines)]
    walls = {(a, b): _wall(mesh, spot, unit, a, b) for a, b in lines if a // per_node != b // per_node}
    glass = f'fill="{STYLE["control"]}" fill-opacity="0.22" stroke="{STYLE["control"]}" stroke-opacity="0.5"'
    out += [f'<path d="{outline}" {glass}/>' for outline in walls.values()]
    for axis in PLACE:
        for group in mesh.groups(axis):
            out += _group(axis, group, spot, walls, rank)
    for a, b in (pair for group in mesh.groups("pp") for pair in pairwise(group) if hops):
        out += [f'<g data-hop="{a} {b}" style="display:none">', *_pieces("pp", [(a, b)], spot, walls), "</g>"]
    for one in sorted(spot, key=lambda one: -mesh.coordinates(one).get("dp", 0)):
        out += _rank(one, *spot[one], rank)
    return [NUMBER, *out], bottom


def _spots(mesh):
    """({rank: (x, y)}, pixels from a stage to the next, the bottom)"""
    at = {
        rank: [
            sum(STEPS[axis][i] * place for axis, place in mesh.coordinates(rank).items() if axis in STEPS)
            for i in (0, 1)
        ]
        for rank in range(mesh.size)
    }
    (left, right), (high, low) = [(min(values), max(values)) for values in zip(*at.values())]
    unit = min(LONGEST, (WIDTH - 2 * MARGIN) / max(1, right - left))
    x, y = (WIDTH - unit * (right - left)) / 2, TOP + RADIUS + 0.2 * unit
    spot = {rank: (x + unit * (a - left), y + unit * (b - high)) for rank, (a, b) in at.items()}
    return spot, unit, y + unit * (low - high + 0.4) + RADIUS


def _legend(mesh):
    out, x = [], 24
    for axis in PLACE:
        name, colour, dash = AXES[axis]
        out += _cased((x, 24), (x + 34, 24), colour, dash)
        out.append(words(x + 42, 29, f"{name} ({axis}={mesh[axis]})", PX["caption"]))
        x += 70 + round(7.4 * len(f"{name} ({axis}={mesh[axis]})"))
    out.append(f'<path d="M{x} 16h18v16h-18z" fill="{ERROR}" fill-opacity="0.35" stroke="{ERROR}" stroke-width="2"/>')
    out.append(words(x + 26, 29, "crosses nodes", PX["caption"]))
    return out


def _line(a, b, colour, wide, dash=""):
    dots = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"
    return f'<path d="{ends}" fill="none" stroke="{colour}" stroke-width="{wide}"{dots}/>'


def _cased(a, b, colour, dash):
    """A group's line, with an edge in the colour of paper, so that it is visible on a dark page too."""
    return [_line(a, b, STYLE["paper"], 8), _line(a, b, colour, 5, dash)]


def _wall(mesh, spot, unit, a, b):
    """The outline of the glass between two neighbours: half a step to each side along both other axes."""
    here, there = mesh.coordinates(a), mesh.coordinates(b)
    one, other = [STEPS[axis] for axis in PLACE if here.get(axis) == there.get(axis)]
    middle = [(p + q) / 2 for p, q in zip(spot[a], spot[b])]
    corners = [
        " ".join(f"{m + 0.46 * unit * (i * p + k * q):.1f}" for m, p, q in zip(middle, one, other))
        for i, k in ((-1, -1), (-1, 1), (1, 1), (1, -1))
    ]
    return f"M{'L'.join(corners)}z"


def _group(axis, group, spot, walls, rank):
    """A group's line, and the walls that it crosses; hidden unless the chosen rank is in it."""
    return [_shown_for(group, rank), *_pieces(axis, list(pairwise(group)), spot, walls), "</g>"]


def _pieces(axis, pairs, spot, walls):
    """Pieces of a group's line, in front of the walls that they cross."""
    _, colour, dash = AXES[axis]
    red = f'fill="{ERROR}" fill-opacity="0.35" stroke="{ERROR}" stroke-width="2"'
    crossed = [f'<path d="{walls[pair]}" {red}/>' for pair in pairs if pair in walls]
    return [*crossed, *(line for a, b in pairs for line in _cased(spot[a], spot[b], colour, dash))]


def _rank(one, x, y, rank):
    disc, chosen = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{fill}" stroke="{INK}" stroke-width="{wide}"/>'
        for fill, wide in ((STYLE["paper"], 1.5), (CHOSEN, 3))
    )
    number = words(x, y + 5, str(one), PX["axis"], "middle", fill=INK)
    return [f'<g data-rank="{one}">', disc, _shown_for([one], rank), chosen, "</g>", number, "</g>"]


def _shown_for(ranks, rank):
    hidden = "" if rank in ranks else ' style="display:none"'
    return f'<g data-of="{" ".join(map(str, ranks))}"{hidden}>'
