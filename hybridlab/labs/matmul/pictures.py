"""Notebook 31, pictures: a matmul step by step on a grid of ranks; each rank's parts of A, B and C; words over ranks.

In a step, every rank is a card with its part of C = A·B. A shade is a part of k: where A's and B's shades match, the
step is valid, and C's block gets a stripe of that shade. Green arrows are messages, A's within rows and B's within
columns, dashed while they are under way during a matmul; a dashed frame marks the home of a rank's block.
"""

import math
from collections.abc import Sequence

from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.matmul.grids import ways
from hybridlab.labs.matmul.moves import Moment, ahead, moments
from hybridlab.predict.bytes.matmul_by_rank import sent
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.cuts import Matrix, Sign, Slice, cuts
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.live.stepper import Stepper
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import sheet, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, dashed, mix

CARD, TILE, GAP, LEFT, TOP, BETWEEN = (232, 108), 58, 10, 20, 78, 46
PX, INK, PAPER, GRID, MUTED = STYLE["pixels"], STYLE["ink"], STYLE["paper"], STYLE["grid"], STYLE["muted"]
GREEN = STYLE["kinds"]["message"]["fill"]
SHADES = (mix(STYLE["kinds"]["F"]["fill"], PAPER, 0.72), STYLE["kinds"]["F"]["fill"])
SIZES, NAMES = (6, 6, 6), {"summa": "SUMMA", "cannon": "Cannon"}


# --- a product, step by step --------------------------------------------------------------------------------------


def steps(algorithm: str, grid: tuple[int, int] = (3, 3), sizes=SIZES, flying: bool = False) -> Stepper:
    """A stepper over SUMMA or Cannon's algorithm, which begins with the home blocks.

    flying  SUMMA with each panel under way one step early
    """
    every = ahead(moments(algorithm, sizes, grid)) if flying else moments(algorithm, sizes, grid)
    return Stepper([step_still(algorithm, every, number, grid, sizes) for number in range(len(every))], across=1)


def step_still(algorithm: str, every: Sequence[Moment], number: int, grid, sizes) -> Still:
    """The picture of one step: the messages, the blocks that each rank multiplies, and its block of C."""
    r, c = grid
    moment, tall = every[number], CARD[1] + BETWEEN
    title = _title(algorithm, number, every)
    out = [words(LEFT, 30, title, PX["axis"], **{"font-weight": "600"})]
    for rank in range(r * c):
        out += _card(rank, moment, every[0], *_corner(rank, c), grid, sizes)
    out += _arrows(moment, c)
    told = _told(title, moment, sizes)
    wide, bottom = LEFT + c * (CARD[0] + BETWEEN) + 8, TOP + r * tall
    lines = wrap(told, wide - 2 * LEFT, PX["smallest"])
    out += [words(LEFT, bottom + 16 * i, line, PX["smallest"], fill=MUTED) for i, line in enumerate(lines)]
    return Still(sheet(wide, bottom + 16 * len(lines) + 6, title, told, out), told)


def _title(algorithm, number, every):
    if number == 0:
        return f"{NAMES[algorithm]}: all blocks at home"
    return f"{NAMES[algorithm]}, step {number} of {len(every) - 1}"


def _told(title, moment, sizes) -> str:
    """The picture in words: from where on each rank's part of k goes, rank by rank, and the words that travel."""
    if not moment.done[0] and not moment.sends:
        return f"{title}; no matmul yet"
    if moment.flying:
        return f"{title}: {_flying(moment, sizes)}"
    begins = " ".join(str(begin) for begin, _ in moment.a)
    pairs = f"all multiply k = {moment.a[0][0]}–{moment.a[0][1]}"
    if len(set(moment.a)) > 1:
        pairs = f"ranks 0 to {len(moment.a) - 1} multiply parts of k that begin at {begins}"
    travelled = sum(one.words for one in moment.sends)
    done = sum(end - begin for begin, end in moment.done[0])
    return f"{title}: {len(moment.sends)} messages, {travelled} words; then {pairs}; {done} of {sizes[1]} are done"


def _flying(moment, sizes) -> str:
    coming = "nothing is under way any more"
    if moment.sends:
        travelling = sum(one.words for one in moment.sends)
        begin, end = moment.sends[0].span[0], max(one.span[1] for one in moment.sends)
        coming = f"{len(moment.sends)} messages, {travelling} words, are under way for k = {begin}–{end}"
    if not moment.done[0]:
        return f"{coming}; no matmul yet"
    done = sum(end - begin for begin, end in moment.done[0])
    working = f"all multiply k = {moment.a[0][0]}–{moment.a[0][1]}, and {coming}"
    return f"{working}; {done} of {sizes[1]} are done"


def _corner(rank, columns):
    return LEFT + (rank % columns) * (CARD[0] + BETWEEN), TOP + (rank // columns) * (CARD[1] + BETWEEN)


def _card(rank, moment, home, x, y, grid, sizes):
    """One rank: its number, and the three matrices in small size, with its parts of them."""
    (m, k, n), (r, c) = sizes, grid
    rows, columns = even(m, r)[rank // c], even(n, c)[rank % c]
    yield (
        f'<rect x="{x}" y="{y}" width="{CARD[0]}" height="{CARD[1]}" rx="8" fill="none" stroke="{GRID}" '
        f'stroke-width="1.5"/>'
    )
    yield words(x + 10, y + 20, f"rank {rank}", PX["smallest"], **{"font-weight": "600"})
    lefts = [x + GAP + number * (TILE + 18) for number in range(3)]
    top = y + 38
    working = bool(moment.done[rank])
    for name, left in zip(("A", "B", "C"), lefts):
        yield words(left + TILE / 2, top - 5, name, PX["smallest"], "middle")
        yield f'<rect x="{left}" y="{top}" width="{TILE}" height="{TILE}" fill="none" stroke="{GRID}"/>'
    for sign, left in zip("·=", lefts[1:]):
        yield words(left - 9, top + TILE / 2 + 5, sign, PX["axis"], "middle")
    yield _part(lefts[0], top, rows, home.a[rank], (m, k), None)
    yield _part(lefts[1], top, home.b[rank], columns, (k, n), None)
    yield _part(lefts[0], top, rows, moment.a[rank], (m, k), _shade(moment.a[rank], k))
    yield _part(lefts[1], top, moment.b[rank], columns, (k, n), _shade(moment.b[rank], k))
    yield _part(lefts[2], top, rows, columns, (m, n), None)
    yield from _stripes(lefts[2], top, rows, columns, moment.done[rank] if working else (), sizes)


def _part(left, top, rows, columns, sizes, fill):
    """A block inside a small matrix; without a fill, its dashed frame."""
    down, across = TILE / sizes[0], TILE / sizes[1]
    box = (
        f'x="{left + across * columns[0]:.1f}" y="{top + down * rows[0]:.1f}" '
        f'width="{across * (columns[1] - columns[0]):.1f}" height="{down * (rows[1] - rows[0]):.1f}"'
    )
    if fill:
        return f'<rect {box} fill="{fill}" stroke="{PAPER}"/>'
    return f'<rect {box} fill="none" stroke="{MUTED}" {dashed("absent tile")}/>'


def _stripes(left, top, rows, columns, done, sizes):
    """A block of C: for each part of k that is summed, a stripe of its width."""
    (m, k, n), (begin, end) = sizes, columns
    across = (end - begin) / k
    for span in done:
        stripe = begin + across * span[0], begin + across * span[1]
        yield _part(left, top, rows, stripe, (m, n), _shade(span, k))


def _shade(span, length):
    """A part of k: later ones are darker."""
    middle = (span[0] + span[1]) / 2 / length
    return mix(SHADES[0], SHADES[1], min(1.0, max(0.0, 1.25 * middle - 0.1)))


def _arrows(moment, columns):
    """A's messages above the cards of a row, B's to the right of the cards of a column, each in a separate lane."""
    lanes: dict[tuple, int] = {}
    dashes = f" {dashed('under way')}" if moment.flying else ""
    for one in moment.sends:
        line = ("A", one.source // columns) if one.what == "A" else ("B", one.source % columns)
        trunk = (*line, one.source, one.span)  # a part that several want leaves once
        lane = lanes.setdefault(trunk, sum(other[:2] == line for other in lanes))
        (x, y), (to_x, to_y) = _corner(one.source, columns), _corner(one.target, columns)
        if one.what == "A":
            begin, end, height = x + CARD[0] / 2 - 14, to_x + CARD[0] / 2 + 14, y - 9 - 8 * lane
            path, head = f"M{begin} {y}V{height}H{end}V{to_y - 2}", f"M{end - 5} {to_y - 9}l5 7l5 -7"
        else:
            side = CARD[0]
            begin, end, across = y + CARD[1] / 2 - 12, to_y + CARD[1] / 2 + 12, x + side + 9 + 8 * lane
            tip = to_x + side + 2
            path, head = f"M{x + side} {begin}H{across}V{end}H{tip}", f"M{tip + 7} {end - 5}l-7 5l7 5"
        yield f'<path d="{path}" fill="none" stroke="{GREEN}" stroke-width="2"{dashes}/>'
        yield f'<path d="{head}" fill="none" stroke="{GREEN}" stroke-width="2"/>'


# --- who holds what -----------------------------------------------------------------------------------------------

FORMS = {  # how the picture calls them: the algorithm, and the grids of eight ranks to choose from
    "1D": ("1d", [(8, 1, 1)]),
    "2D": ("summa", [(2, 4, 1), (4, 2, 1)]),
    "3D": ("3d", [(2, 2, 2), (8, 1, 1), (1, 1, 8), (1, 2, 4), (4, 1, 2)]),
}
SQUARE = (16, 16, 16)


def homes(numbers: bool = True) -> Chooser:
    """A, B and C with the ranks that store them, for several grids of eight ranks."""
    every = [f"{form} {'×'.join(map(str, grid))}" for form, (_, grids) in FORMS.items() for grid in grids]
    shown = [{"way": every[0]}, {"way": "2D 2×4×1"}, {"way": "3D 2×2×2"}]
    return Chooser(lambda way: home_still(way, numbers=numbers), {"way": ("ranks", every, every[0])}, shown)


def home_still(way: str, sizes: tuple[int, int, int] = SQUARE, numbers: bool = True) -> Still:
    """The layout of A, B and C on eight ranks before and after a matmul.

    >>> home_still("3D 2×2×2").summary.split(";")[0]
    '3D on 2×2×2 ranks: rank 5 holds rows 8–12 and columns 8–16 of A, rows 12–16 and columns 0–8 of B'
    """
    from hybridlab.modes.products import matmul

    form, shown = way.split()
    algorithm, grid = FORMS[form][0], tuple(map(int, shown.split("×")))
    mesh, (m, k, n) = Mesh(i=grid[0], j=grid[1], l=grid[2]), sizes
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    boxes = {
        name: [
            matmul.home(mesh, mesh.coordinates(rank), shape, matmul.HOMES[algorithm][name]) for rank in range(mesh.size)
        ]
        for name, shape in shapes.items()
    }
    parts = [_matrix(name, shapes[name], boxes[name], "forward" if name == "C" else "weight") for name in "ABC"]
    line = [parts[0], Sign("·"), parts[1], Sign("="), parts[2]]
    told = f"{form} on {shown} ranks: rank 5 holds {_in_words('A', boxes)}, {_in_words('B', boxes)}"
    if numbers:
        words_sent = max(sent(algorithm, sizes, grid, tuple(mesh.coordinates(rank)[axis] for axis in "ijl")).forward
                         for rank in range(mesh.size))  # fmt: skip
        told += f"; {m}×{k} · {k}×{n}: each rank sends {words_sent} words"
    return cuts([line], mesh.size, f"{form}, {shown} ranks", told)


def _matrix(name, shape, boxes, kind) -> Matrix:
    slices = tuple(
        Slice((rows.start, rows.stop), (columns.start, columns.stop), (rank,))
        for rank, (rows, columns) in enumerate(boxes)
    )
    return Matrix(name, *shape, slices, kind)


def _in_words(name, boxes) -> str:
    rows, columns = boxes[name][5]
    return f"rows {rows.start}–{rows.stop} and columns {columns.start}–{columns.stop} of {name}"


# --- words and memory ---------------------------------------------------------------------------------------------

LOOKS = {"1D": (1, "solid", "square"), "2D": (5, "dash", "circle"), "3D": (2, "dot", "diamond")}


def falling(every_ranks: Sequence[int] = (4, 8, 16, 64, 256, 512, 1024, 4096)) -> Figure:
    """Words that a rank sends for a square matmul over the number of ranks, for each algorithm with such a grid."""
    return _curves(every_ranks, "sent", "words a rank sends, in matrices", "Words a rank sends for a square matmul")


def room(every_ranks: Sequence[int] = (4, 8, 16, 64, 256, 512, 1024, 4096)) -> Figure:
    """The numbers that a rank holds while it multiplies, over the number of ranks."""
    return _curves(every_ranks, "held", "numbers a rank holds, in matrices", "Numbers a rank holds for a square matmul")


def _curves(every_ranks, what, label, title) -> Figure:
    side = 1 << 16  # all grids divide it
    found: dict[str, list] = {name: [] for name in LOOKS}
    for ranks in every_ranks:
        for way in ways(side, ranks):
            if way.name in found:
                found[way.name].append((ranks, getattr(way, what) / side**2))
    curves = [
        Curve(name, [math.log2(ranks) for ranks, _ in points], [math.log10(value) for _, value in points], *LOOKS[name])
        for name, points in found.items()
    ]
    low = min(min(curve.y) for curve in curves)
    x = Axis(
        "ranks",
        1.6,
        math.log2(max(every_ranks)) + 0.4,
        marks={math.log2(p): f"{p}" for p in (4, 16, 64, 256, 1024, 4096)},
    )
    marks = {power: f"{10.0**power:g}" for power in range(math.floor(low), 1)}
    y = Axis(label, min(low, min(marks)) - 0.1, 0.45, marks=marks)
    last = "; ".join(f"{name}: {points[-1][1]:.3g} on {points[-1][0]} ranks" for name, points in found.items())
    return chart(curves, x, y, title, f"{title}, in full matrices: {last}.")
