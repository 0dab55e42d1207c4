"""A matrix of the bytes that ranks send to one another when a training run moves to another layout.

A row is a sender under the old layout, a column a receiver under the new one; a cell with more bytes is darker. On the
diagonal are the bytes that are there already.
"""

from hybridlab.core.where.passage import PARTS, Passage
from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import DASHES, STYLE, ink_on, mix

WIDTH, LEFT, TOP, SUMS = 960, 176, 118, 96
WIDEST, TALL, GAP, MOST = 108, 44, 4, 16  # of a cell in pixels; and the most ranks that are drawn
PX, GREEN = STYLE["pixels"], STYLE["kinds"]["message"]["fill"]
PALEST = 0.75  # how far the cell with the fewest bytes is mixed with white


def passage_matrix(passage: Passage, title: str | None = None) -> Still:
    """The matrix of a passage: bytes by sender and receiver, with the bytes that each rank sends and receives in all.

    passage  such as the plan of `hl.reshard`
    title    above the picture; None: both meshes

    raises  ValueError for more than 16 ranks
    """
    before, after = (layout.mesh for layout in passage.layouts)
    ranks = range(max(before.size, after.size))
    if len(ranks) > MOST:
        raise ValueError(f"a matrix of {len(ranks)} ranks is too large to read: use plan.sent, a table of its numbers")
    wide = min(WIDEST, (WIDTH - LEFT - SUMS - 24) / len(ranks))
    most, right = max(passage.sent.values(), default=1), LEFT + wide * len(ranks)
    out = [heading(24, 34, title or f"{before} → {after}"), words(24, TOP - 12, "sender", PX["caption"])]
    out.append(words(LEFT, 64, "receiver", PX["caption"]))
    letters = PX["box"] if wide > 70 else PX["smallest"]
    for rank in ranks:
        x, y = LEFT + wide * rank, TOP + (TALL + GAP) * rank
        out += _named(x + (wide - GAP) / 2, TOP - 28, rank, after, "middle", stacked=True)
        out += _named(LEFT - 12, y + TALL / 2 + 5, rank, before, "end", stacked=False)
        for to in ranks:
            out += _cell(passage, rank, to, LEFT + wide * to, y, wide - GAP, most, letters)
        sends = sum(its for (source, _), its in passage.sent.items() if source == rank)
        out.append(words(right + 10, y + TALL / 2 + 5, size(sends), PX["box"]))
    out.append(words(right + 10, TOP - 12, "sends", PX["caption"]))
    bottom = TOP + (TALL + GAP) * len(ranks)
    out.append(words(LEFT - 12, bottom + 18, "receives", PX["caption"], "end"))
    for rank in ranks:
        takes = sum(its for (_, to), its in passage.sent.items() if to == rank)
        out.append(words(LEFT + wide * rank + (wide - GAP) / 2, bottom + 18, size(takes), letters, "middle"))
    return captioned(WIDTH, bottom + 56, title or "who sends to whom", _told(passage), out)


def _named(x, y, rank, mesh, side, stacked):
    """A rank's number and its coordinates."""
    if rank >= mesh.size:
        return []
    place = " ".join(f"{axis}{at}" for axis, at in mesh.coordinates(rank).items() if mesh[axis] > 1)
    if stacked:
        low = words(x, y + 17, place, PX["smallest"], side, fill=STYLE["muted"])
        return [words(x, y, str(rank), PX["axis"], side, **{"font-weight": "600"}), low]
    return [words(x, y, f"{rank}   {place}", PX["box"], side)]


def _cell(passage, rank, to, x, y, wide, most, letters):
    """A box with the bytes that one rank sends to another, or has already."""
    place = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{TALL}"'
    bytes_here = sum(passage.pairs.get((rank, to), {}).values())
    if rank == to:
        ground = STYLE["light"]["bubble"]
        edge = f'stroke="{STYLE["muted"]}" stroke-dasharray="{DASHES["absent"]}"'
    else:
        ground = mix(GREEN, STYLE["paper"], PALEST * (1 - bytes_here / most)) if bytes_here else STYLE["paper"]
        edge = f'stroke="{STYLE["grid"]}"'
    label = size(bytes_here) if bytes_here else "–"
    text = words(x + wide / 2, y + TALL / 2 + 5, label, letters, "middle", fill=ink_on(ground))
    return [f'<rect {place} fill="{ground}" {edge}/>', text]


def _told(passage) -> str:
    """The picture in words."""
    sent, there = (
        ", ".join(f"{size(its[part])} of {part}" for part in PARTS) for its in (passage.bytes, passage.there)
    )
    return f"{len(passage.sent)} messages carry {sent}. There already (on the diagonal): {there}."
