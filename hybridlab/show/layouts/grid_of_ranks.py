"""A grid of ranks: the mesh as sheets, one per copy; the same ranks as boxes in nodes, with the slice of a parameter on
each.

A box shows the full parameter as a small rectangle: blue is the slice that the rank computes with, black on it what it
owns between steps (a rim stays blue). Ranks with the same letter add their gradients. Groups of the chosen rank have an
outline for each axis; a tensor group that leaves its node is an error.
"""

from collections.abc import Sequence
from itertools import count, product

from hybridlab.core.where.layout import Layout
from hybridlab.core.where.mesh import Mesh
from hybridlab.show.paper.sheet import captioned, first_to_last, sheet, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import DASHES, STYLE

WIDTH, MARGIN, MIDDLE, TOP = 960, 24, 356, 92  # nodes begin to the right of the middle
BRICK, ACROSS, GAP, PAD = (128, 74), 4, 10, 12  # a brick in pixels; how many side by side
SHEETS = 330  # pixels; sheets that would be taller together are drawn smaller
PX, INK, PAPER, ERROR = STYLE["pixels"], STYLE["ink"], STYLE["paper"], STYLE["error"]
LABEL, RIM = PX["smallest"] + 1, 4  # of bricks and sheets; width of the blue rim around black
BOX = STYLE["curves"][0]
AXES = {  # the name of a group, its outline's colour and dashes
    "tp": ("tensor group", STYLE["curves"][5], ""),
    "x": ("along x", STYLE["curves"][2], DASHES["along x"]),
    "cp": ("along cp", STYLE["curves"][3], DASHES["along cp"]),
    "pp": ("pipeline", STYLE["curves"][1], DASHES["along pp"]),
    "dp": ("data group", STYLE["curves"][4], DASHES["along dp"]),
}
COLUMNS = ((24, "start"), (100, "start"), (270, "start"), (620, "end"), (760, "end"))  # of the table; numbers end there


def grid_of_ranks(
    layout: Layout,
    parameter: str | None = None,
    rank: int = 0,
    per_node: int | None = None,
    table: Sequence[Sequence[str]] = (),
) -> Still:
    """The picture of a parameter's layout, seen from one rank; by default, of the parameter that the most axes cut.

    per_node  ranks of one node, neighbours by number; None: all in one
    table     rows of text for below, the first one the heading

    raises    ValueError when there is no such rank or parameter

    >>> from hybridlab.core.where.layout import Cut, Param, even
    >>> one = Param("w", (4, 6), shard={"tp": Cut(0, even(4, 2))}, partial=("dp",), owners=2, rest=1)
    >>> grid_of_ranks(Layout(Mesh(dp=2, tp=2), (one,)), rank=1)
    <picture dp=2 × tp=2, rank 1 at dp 0, tp 1; its groups: dp 1, 3; tp 0, 1. w 4×6: the rank computes with rows 2...
    """
    parameter = parameter or telling(layout)
    if parameter not in layout.named:
        raise ValueError(f"the model has no parameter {parameter!r}: choose one of {', '.join(layout.named)}")
    per_node, mesh = per_node or layout.mesh.size, layout.mesh
    told = in_words(layout, parameter, rank, per_node)
    look = _Look(mesh, rank, per_node)
    sheets, low = _sheets(mesh, look)
    nodes, lower = _nodes(layout, parameter, look, per_node)
    rows, bottom = _table(table, max(low, lower) + 18)
    title = " × ".join(f"{axis}={n}" for axis, n in mesh.axes.items())
    body = [*_legend(parameter, layout, per_node < mesh.size, look.out), *sheets, *nodes, *rows]
    fill = (WIDTH - 160) / (WIDTH - 2 * MARGIN)
    return captioned(WIDTH, bottom + PX["line"], title, told, body, MARGIN, fill, foot=3)


def refusal(sentence: str) -> Still:
    """The picture of an impossible layout: the sentence that says what to change."""
    lines = wrap(sentence, 0.85 * (WIDTH - 120), PX["heading"])
    frame = f'<rect x="24" y="24" width="{WIDTH - 48}" height="{40 + 26 * len(lines)}" fill="none" stroke="{ERROR}" '
    body = [frame + 'stroke-width="3"/>', words(44, 62, "✕", PX["heading"], fill=ERROR)]
    body += [words(76, 62 + 26 * i, line, PX["heading"]) for i, line in enumerate(lines)]
    return Still(sheet(WIDTH, 90 + 26 * len(lines), "refused", sentence, body), f"refused: {sentence}")


def telling(layout: Layout) -> str:
    """The parameter that most axes cut; of several, the one with most dims, and of these the first."""
    return max(layout.params, key=lambda param: (len(param.shard), len(param.shape))).name


def leaving(mesh: Mesh, per_node: int, axis: str = "tp") -> list[tuple[int, ...]]:
    """The groups along an axis whose ranks are not all in one node.

    >>> leaving(Mesh(tp=2, dp=2), per_node=2)
    [(0, 2), (1, 3)]
    """
    return [group for group in mesh.groups(axis) if len({rank // per_node for rank in group}) > 1]


def in_words(layout: Layout, parameter: str, rank: int, per_node: int) -> str:
    """The description of the chosen rank, and of nodes."""
    mesh, shape = layout.mesh, layout[parameter].shape
    place, box = mesh.coordinates(rank), layout.box(parameter, rank)
    groups = [f"{axis} {_list(mesh.group(rank, axis))}" for axis in mesh.axes if mesh[axis] > 1]
    text = f"{' × '.join(f'{axis}={n}' for axis, n in mesh.axes.items())}, rank {rank} at "
    text += ", ".join(f"{axis} {at}" for axis, at in place.items()) + f"; its groups: {'; '.join(groups) or 'none'}. "
    text += f"{parameter} {'×'.join(map(str, shape))}: "
    if box is None:
        return text + "this rank holds no part of it." + _of_nodes(mesh, per_node)
    spans = [first_to_last(span.start, span.stop) for span in box]
    spans = "rows {} and columns {}".format(*spans) if len(spans) == 2 else " × ".join(spans)
    share, size = layout.share(parameter, rank), layout.size(parameter, rank)
    at_rest = (
        f"elements {first_to_last(share.start, share.stop)} of these {size}"
        if share.stop > share.start
        else "no part of it"
    )
    at_rest = "all of it" if share == slice(0, size) else at_rest
    adds = layout.summed(parameter, rank)
    sums = f"reduces its gradient with ranks {_list(adds)}" if len(adds) > 1 else "does not reduce its gradient"
    text += f"the rank computes with {spans}, owns {at_rest} between steps, and {sums}."
    text += " The letter after “adds” is the same on ranks that reduce a gradient together." * (len(adds) > 1)
    return text + _of_nodes(mesh, per_node)


def _of_nodes(mesh, per_node):
    if per_node >= mesh.size or mesh["tp"] == 1:
        return ""
    out = len(leaving(mesh, per_node))
    return f" Nodes of {per_node}: {out} of {len(mesh.groups('tp'))} tensor groups cross nodes."


def _list(ranks):
    return ", ".join(map(str, ranks))


class _Look:
    """The outline of each rank's brick, seen from the chosen rank."""

    def __init__(self, mesh, rank, per_node):
        self.mesh, self.rank = mesh, rank
        self.mates = {other: axis for axis in AXES for other in mesh.group(rank, axis) if other != rank}
        self.out = {other for group in leaving(mesh, per_node) for other in group}

    def brick(self, rank, x, y, wide, tall, text):
        """The outline and the number of one rank."""
        place = ", ".join(f"{axis} {at}" for axis, at in self.mesh.coordinates(rank).items())
        chosen = rank == self.rank
        _, colour, dash = AXES.get(self.mates.get(rank), ("", STYLE["muted"], ""))
        pen = f'stroke="{INK if chosen else colour}" stroke-width="{3.5 if chosen or rank in self.mates else 1}"'
        out = [f"<g><title>rank {rank}: {place}</title>"]
        if rank in self.out:
            out.append(f'<rect x="{x - 4:g}" y="{y - 4:g}" width="{wide + 8:g}" height="{tall + 8:g}" fill="none" '
                       f'stroke="{ERROR}" stroke-width="3"/>')  # fmt: skip
        ground = STYLE["light"]["bubble"] if chosen else PAPER
        dots = f' stroke-dasharray="{dash}"' if dash and not chosen else ""
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" fill="{ground}" {pen}{dots}/>')
        return [*out, *text, "</g>"]


def _legend(parameter, layout, nodes, leaving):
    """The legend of outlines and fills; above the nodes, the parameter that is shown."""
    out, x = [], MARGIN
    axes = [(name, colour, dash, 3.5) for axis, (name, colour, dash) in AXES.items() if layout.mesh[axis] > 1]
    out_of_node = [("tensor group crosses nodes ✕", ERROR, "", 3)] if leaving else []
    for name, colour, dash, wide in [("chosen rank", INK, "", 3.5), *axes, *out_of_node]:
        fill = STYLE["light"]["bubble"] if name == "chosen rank" else "none"
        out.append(f'<rect x="{x}" y="14" width="26" height="18" fill="{fill}" stroke="{colour}" stroke-width="{wide}" '
                   f'stroke-dasharray="{dash or "none"}"/>')  # fmt: skip
        out.append(words(x + 34, 28, name, PX["caption"]))
        x += 62 + int(7.2 * len(name))
    out.append(words(MARGIN, 66, "copies, stages, parts", PX["axis"], **{"font-weight": "600"}))
    out.append(
        words(MIDDLE, 66, f"{'nodes' if nodes else 'ranks'} · {parameter}", PX["axis"], **{"font-weight": "600"})
    )
    x = WIDTH - MARGIN - 232
    for name, fill, wide in (("computes with", BOX, 128), ("owns", INK, 0)):
        out.append(f'<rect x="{x}" y="54" width="14" height="14" fill="{fill}"/>')
        out.append(words(x + 20, 66, name, PX["smallest"]))
        x += wide
    return out


def _sheets(mesh, look):
    """One sheet for each coordinate along dp: stages side by side, the parts of a stage one below the other."""
    copies, stages = mesh["dp"], mesh["pp"]
    seats = [dict(zip(mesh.inside, place)) for place in product(*(range(mesh[axis]) for axis in mesh.inside))]
    parts = len(seats)
    wide, tall, step = min(84.0, 250 / stages), 34.0, 14 if parts > 1 else 8
    if copies * (parts * 40 + step) > SHEETS:
        tall = 26.0
    high = parts * (tall + 6) + step
    column = max(1, -(-copies // 2) if copies * high > SHEETS and stages == 1 else copies)
    gap, out, arrows, bottom = 0.3 * wide, [], [], TOP
    for d in range(copies):
        x, y = MARGIN + d // column * (wide + 60), TOP + d % column * high
        out.append(words(x, y + tall / 2 + 5, f"dp {d}", LABEL, fill=STYLE["muted"]))
        for s in range(stages):
            for part, seat in enumerate(seats):
                at = {"dp": d, "pp": s, **seat}
                box = x + 48 + s * wide, y + part * (tall + 6), wide - gap, tall
                out += _seat(look, mesh.rank(**{axis: at[axis] for axis in mesh.axes}), box)
                if s < stages - 1:
                    room = min(6, gap / 3)  # for the frames of both seats
                    arrows.append(_arrow(box[0] + box[2] + room, box[1] + tall / 2, gap - 2 * room))
        bottom = max(bottom, y + high)
    for s in range(stages if wide > 40 and stages > 1 else 0):
        name = f"stage {s}" if wide > 56 else f"{s}"
        out.append(words(MARGIN + 48 + s * wide, TOP - 9, name, LABEL, fill=STYLE["muted"]))
    return [*out, *arrows], bottom


def _seat(look, rank, box):
    x, y, wide, tall = box
    return look.brick(rank, *box, [words(x + wide / 2, y + tall / 2 + 5, str(rank), LABEL, "middle")])


def _arrow(x, y, wide):
    """The arrows from stage to stage."""
    green = STYLE["kinds"]["message"]["fill"]
    return f'<path d="M{x:.1f} {y:.1f}h{wide:.1f}m-4 -3l4 3l-4 3" fill="none" stroke="{green}" stroke-width="2"/>'


def _nodes(layout, parameter, look, per_node):
    """The ranks in their nodes, each with its part of the parameter."""
    mesh, letters = layout.mesh, _letters(layout, parameter)
    wide, tall = BRICK
    columns = min(per_node, ACROSS)
    rows, beside = -(-per_node // columns), max(1, min(3, ACROSS // columns))
    frame = columns * (wide + GAP) + 2 * PAD - GAP, rows * (tall + GAP) + 2 * PAD - GAP + 16
    out, bottom = [], TOP
    for node in range(-(-mesh.size // per_node)):
        x, y = MIDDLE + node % beside * (frame[0] + GAP), TOP - 12 + node // beside * (frame[1] + GAP)
        here = range(node * per_node, min((node + 1) * per_node, mesh.size))
        if per_node < mesh.size:
            ground = f'fill="none" stroke="{STYLE["grid"]}" stroke-width="2" rx="8"'
            out.append(f'<rect x="{x}" y="{y}" width="{frame[0]}" height="{frame[1]}" {ground}/>')
            out.append(words(x + PAD, y + 16, f"node {node}", LABEL, fill=STYLE["muted"]))
        for i, rank in enumerate(here):
            left, top = x + PAD + i % columns * (wide + GAP), y + PAD + 12 + i // columns * (tall + GAP)
            out += look.brick(rank, left, top, wide, tall, _inside(layout, parameter, rank, left, top, letters, look))
        bottom = max(bottom, y + frame[1])
    return out, bottom


def _letters(layout, parameter):
    """{rank: the letter of the ranks with which it adds its gradient}, for ranks with such partners."""
    letters, number = {}, count()
    for rank in range(layout.mesh.size):
        group = layout.summed(parameter, rank)
        if len(group) > 1 and group not in letters:
            letters[group] = chr(ord("a") + next(number))
    return {rank: letter for group, letter in letters.items() for rank in group}


def _inside(layout, parameter, rank, x, y, letters, look):
    """A rank's number, its coordinates, its letter, and its slice of the parameter."""
    place = layout.mesh.coordinates(rank)
    out = [words(x + 10, y + 24, str(rank), PX["heading"], **{"font-weight": "700"})]
    if rank in look.out:
        rim = {"stroke": PAPER, "stroke-width": "3", "paint-order": "stroke"}  # on the grey of a chosen rank too
        out.append(words(x + 42, y + 23, "✕", PX["axis"], fill=ERROR, **{"font-weight": "700"}, **rim))
    out.append(words(x + 10, y + 44, " ".join(f"{axis[0]}{at}" for axis, at in place.items()), LABEL))
    out.append(words(x + 10, y + 62, f"adds: {letters[rank]}" if rank in letters else "", LABEL))
    return out + _slices(layout, parameter, rank, x + 74, y + 10, 46, BRICK[1] - 20)


def _slices(layout, parameter, rank, x, y, wide, tall):
    """The full parameter in small, with a rank's box, and in it the elements that it owns between steps."""
    shape, box = layout[parameter].shape, layout.box(parameter, rank)
    frame = f'fill="none" stroke="{STYLE["muted"]}"'
    dots = DASHES["gathered"] if box is None else "none"
    out = [f'<rect x="{x:g}" y="{y:g}" width="{wide}" height="{tall}" {frame} stroke-dasharray="{dots}"/>']
    if box is None or not layout.size(parameter, rank):
        return out
    rows, columns = box[0], box[1] if len(box) > 1 else slice(0, 1)
    across = shape[1] if len(shape) > 1 else 1
    top, high = y + tall * rows.start / shape[0], tall * (rows.stop - rows.start) / shape[0]
    left, broad = x + wide * columns.start / across, wide * (columns.stop - columns.start) / across
    share, size = layout.share(parameter, rank), layout.size(parameter, rank)
    own = top + high * share.start / size, high * (share.stop - share.start) / size
    for at, height, fill, inset in ((top, high, BOX, 0), (*own, INK, min(RIM, broad / 4))):
        size = f'width="{broad - 2 * inset:.1f}" height="{height:.1f}"'
        out.append(f'<rect x="{left + inset:.1f}" y="{at:.1f}" {size} fill="{fill}"/>')
    return out


def _table(rows, y):
    """Rows of text in columns, the heading in bold, numbers as they are written."""
    out = []
    for number, row in enumerate(rows):
        more = {"font-weight": "600"} if not number else {}
        out += [words(x, y + 22 * number + 16, cell, PX["box"], side, **more) for (x, side), cell in zip(COLUMNS, row)]
    return out, y + (22 * len(rows) + 8 if rows else 0)
