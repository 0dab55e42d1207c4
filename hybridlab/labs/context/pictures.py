"""Notebook 33, pictures: the positions on which each part of a block depends; a ring, step by step; the sizes for which
a hop is hidden.

In a step of the ring, the square is all queries (down) against all keys (across), cut into chunks. Dark blue meets now,
light blue has met, and a dot marks chunks that need not meet. Green arrows carry keys and values to the next rank.
"""

import math
from dataclasses import replace

import numpy as np

from hybridlab.core.what.catalog import MACHINES, machine
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.attended import looks, seen
from hybridlab.core.where.chunks import Chunks
from hybridlab.labs.context.moments import Moment, moments
from hybridlab.labs.context.sizes import LLAMA, SHARE, link_of
from hybridlab.predict.time.ring import block_seconds, hop_seconds, least_tokens
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.live.stepper import Stepper
from hybridlab.show.paper.sheet import captioned, heading, sheet, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, mix

PX, INK, PAPER, GRID, MUTED = STYLE["pixels"], STYLE["ink"], STYLE["paper"], STYLE["grid"], STYLE["muted"]
GREEN, NOW = STYLE["kinds"]["message"]["fill"], STYLE["kinds"]["F"]["fill"]
DONE = mix(NOW, PAPER, 0.68)
WIDE, LEFT, CARD, GAP, TOP, SIDE = 960, 24, (176, 62), 60, 70, 272
SQUARE_LEFT, SQUARE_TOP, BARS = 150, 220, 560


# --- who looks at whom --------------------------------------------------------------------------------------------


def dependence(context: int = 12) -> Still:
    """For parts of a block: the input positions on which each output position depends.

    It is found by experiment: each position of the input is changed, and the outputs that change are dark.
    """
    import torch

    from hybridlab.training.models.gpt import GPT

    block = GPT(Shape(layers=1, width=16, heads=2, context=context), dtype=torch.float64).layers()[1]
    parts = {"norm": block.attention_norm, "Q": block.attention.q, "attention": block.attention, "MLP": block.mlp}
    x = torch.randn(1, context, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = {name: _changed(part, x) for name, part in parts.items()}
    counts = ", ".join(f"{name} {int(one.sum())}" for name, one in found.items())
    return squares(found, "input", "output", f"pairs of positions that depend on each other: {counts}")


def _changed(part, x):
    import torch

    with torch.no_grad():
        before, found = part(x), []
        for place in range(x.shape[1]):
            other = x.clone()
            other[:, place] += 1 + torch.arange(x.shape[2])  # a norm would not see a shift of all features
            found.append((part(other) != before).any(2)[0].numpy())
    return np.stack(found, 1)


def packed(context: int = 16, documents=(5, 4, 7)) -> Still:
    """Which keys each query sees: in one document, and in several that are packed into a row."""
    forms = {"one document": (), f"packed, {' + '.join(map(str, documents))}": documents}
    found = {name: seen(looks(context, its), np.arange(context)) for name, its in forms.items()}
    told = "; ".join(f"{name}: {int(one.sum())} pairs" for name, one in found.items())
    return squares(found, "key", "query", told)


def balance(documents=(12, 4), ranks: int = 2) -> Still:
    """The pairs of each rank in a zigzag of the full row, and in a zigzag of each document: bars.

    >>> balance().summary
    'of the row: 20 and 68 pairs; of each document: 44 and 44 pairs'
    """
    total = sum(documents)
    row, each = Chunks.zigzag(total, ranks)._replace(documents=documents), Chunks.zigzag(total, ranks, documents)
    forms = {"of the row": row.pairs, "of each document": each.pairs}
    told = "; ".join(f"{name}: {' and '.join(map(str, pairs))} pairs" for name, pairs in forms.items())
    title = f"Pairs of each rank: documents of {' and '.join(map(str, documents))} tokens in one row"
    most, out, y = max(map(max, forms.values())), [heading(LEFT, 34, title)], 50
    for name, pairs in forms.items():
        out.append(words(LEFT, y + 20, f"zigzag {name}", PX["axis"], **{"font-weight": "600"}))
        for rank, number in enumerate(pairs):
            y, wide = y + 30, (WIDE - BARS) * number / most
            out.append(words(LEFT, y + 19, f"rank {rank}", PX["axis"]))
            out.append(f'<rect x="{LEFT + 70}" y="{y}" width="{wide:.1f}" height="24" fill="{NOW}"/>')
            out.append(words(LEFT + 78 + wide, y + 18, f"{number} pairs", PX["axis"]))
        y += 38
    return Still(sheet(WIDE, y + 4, title, told, out), told)


def squares(found: dict[str, np.ndarray], across: str, down: str, told: str) -> Still:
    """Square tables of yes and no, side by side: dark where a row depends on a column."""
    count = len(found)
    side = min(240, (WIDE - 2 * LEFT - 70 * count) // count)
    out = []
    for number, (name, one) in enumerate(found.items()):
        left, cell = LEFT + 50 + number * (side + 70), side / len(one)
        out.append(words(left + side / 2, 30, name, PX["axis"], "middle", **{"font-weight": "600"}))
        out.append(words(left + side / 2, 56, f"{across} →", PX["box"], "middle", fill=MUTED))
        if not number:
            out.append(words(left - 8, 78, f"{down} ↓", PX["box"], "end", fill=MUTED))
        for (row, column), yes in np.ndenumerate(one):
            x, y = left + column * cell, 66 + row * cell
            out.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="{NOW if yes else PAPER}" '
                f'stroke="{GRID}"/>'
            )
    return captioned(WIDE, 66 + side + 28, ", ".join(found), told, out, LEFT)


# --- the ring -----------------------------------------------------------------------------------------------------


def ring(ranks: int = 4, zigzag: bool = False, context: int = 48) -> Stepper:
    """A stepper over one forward of a ring."""
    chunks = (Chunks.zigzag if zigzag else Chunks.in_order)(context, ranks)
    return Stepper([step_still(chunks, number) for number in range(ranks)], across=1)


def step_still(chunks: Chunks, number: int) -> Still:
    """The picture of one step.

    >>> step_still(Chunks.in_order(6, 3), 1).summary
    'step 1: ranks 0 to 2 have keys of ranks 2 0 1, and compute 0 4 4 pairs; so far 3 7 7'
    """
    every = moments(chunks)
    now, before = every[number], every[:number]
    so_far = [sum(one.pairs[rank] for one in every[: number + 1]) for rank in range(len(chunks.of))]
    told = (
        f"step {number}: ranks 0 to {len(chunks.of) - 1} have keys of ranks {' '.join(map(str, now.sources))}, and "
        f"compute {' '.join(map(str, now.pairs))} pairs; so far {' '.join(map(str, so_far))}"
    )
    title = f"step {number} of {len(every) - 1}"
    out = [words(LEFT, 32, title, PX["axis"], **{"font-weight": "600"})]
    out += _legend()
    out += _cards(now, last=number == len(every) - 1)
    out += _square(chunks, now, before)
    out += _bars(chunks, every, number)
    return captioned(WIDE, SQUARE_TOP + SIDE + 34, title, told, out, LEFT)


def _legend():
    """The legend of the cells of the square."""
    x = LEFT + 160
    for fill, name in ((NOW, "computed now"), (DONE, "computed before"), ("", "nothing to compute")):
        yield f'<rect x="{x}" y="19" width="16" height="16" fill="{fill or "none"}" stroke="{GRID}"/>'
        yield "" if fill else f'<circle cx="{x + 8}" cy="27" r="3" fill="{MUTED}"/>'
        yield words(x + 24, 32, name, PX["caption"])
        x += 180


def _cards(now: Moment, last: bool):
    """The ranks with the keys that they have; arrows to the next rank, unless this is the last step."""
    for rank, source in enumerate(now.sources):
        x = LEFT + rank * (CARD[0] + GAP)
        yield f'<rect x="{x}" y="{TOP}" width="{CARD[0]}" height="{CARD[1]}" rx="8" fill="none" stroke="{GRID}"/>'
        yield words(x + 12, TOP + 25, f"rank {rank}", PX["axis"], **{"font-weight": "600"})
        yield words(x + 12, TOP + 47, f"K, V of rank {source}", PX["axis"])
        if not last and rank + 1 < len(now.sources):
            yield _arrow(f"M{x + CARD[0] + 4} {TOP + CARD[1] / 2}h{GAP - 10}", x + CARD[0] + GAP - 6, TOP + CARD[1] / 2)
    if not last:
        right = LEFT + (len(now.sources) - 1) * (CARD[0] + GAP) + CARD[0] / 2
        left, low = LEFT + CARD[0] / 2, TOP + CARD[1]
        path = f"M{right} {low + 4}v18H{left}v-14"
        yield f'<path d="{path}" fill="none" stroke="{GREEN}" stroke-width="3"/>'
        yield f'<path d="M{left - 6} {low + 13}l6 -8l6 8" fill="none" stroke="{GREEN}" stroke-width="3"/>'


def _arrow(path, x, y):
    return f'<path d="{path}M{x - 8} {y - 6}l8 6l-8 6" fill="none" stroke="{GREEN}" stroke-width="3"/>'


def _square(chunks, now, before):
    """Queries down, keys across, chunk by chunk, with the ranks that have them."""
    count = len(chunks.spans)
    cell = SIDE / count
    owner = {chunk: rank for rank, its in enumerate(chunks.of) for chunk in its}
    met = frozenset().union(*(one.meets for one in before)) if before else frozenset()
    skipped = now.skipped.union(*(one.skipped for one in before))
    yield words(SQUARE_LEFT + SIDE / 2, SQUARE_TOP - 30, "keys and values of rank", PX["axis"], "middle")
    yield words(LEFT, SQUARE_TOP + SIDE / 2 - 8, "queries", PX["axis"])
    yield words(LEFT, SQUARE_TOP + SIDE / 2 + 12, "of rank", PX["axis"])
    for mine in range(count):
        y = SQUARE_TOP + mine * cell
        yield words(SQUARE_LEFT - 10, y + cell / 2 + 5, str(owner[mine]), PX["axis"], "end")
        yield words(SQUARE_LEFT + (mine + 0.5) * cell, SQUARE_TOP - 8, str(owner[mine]), PX["axis"], "middle")
        for other in range(count):
            x, pair = SQUARE_LEFT + other * cell, (mine, other)
            fill = NOW if pair in now.meets else DONE if pair in met else "none"
            yield f'<rect x="{x:g}" y="{y:g}" width="{cell:g}" height="{cell:g}" fill="none" stroke="{GRID}"/>'
            if fill != "none":
                yield f'<path d="{_seen(chunks, pair, x, y, cell)}" fill="{fill}" stroke="{PAPER}"/>'
            elif pair in skipped:
                yield f'<circle cx="{x + cell / 2:g}" cy="{y + cell / 2:g}" r="3" fill="{MUTED}"/>'


def _seen(chunks, pair, x, y, cell):
    """A whole cell; if queries and keys have the same positions, only the triangle that is seen."""
    if chunks.seen(*pair) is None:
        return f"M{x:g} {y:g}h{cell:g}v{cell:g}h{-cell:g}z"
    return f"M{x:g} {y:g}v{cell:g}h{cell:g}z"


def _bars(chunks, every, number):
    """For each rank, the pairs of this step and of the steps before, as a bar; its frame is the total."""
    most = max(chunks.pairs)
    scale, tall = (WIDE - BARS - LEFT - 70) / most, 24
    yield words(BARS, SQUARE_TOP - 30, "pairs computed, of all that a rank has", PX["axis"])
    for rank, whole in enumerate(chunks.pairs):
        y = SQUARE_TOP + rank * (SIDE / len(chunks.pairs)) + 6
        done, now = sum(one.pairs[rank] for one in every[:number]), every[number].pairs[rank]
        yield words(BARS, y + 17, f"rank {rank}", PX["axis"])
        x = BARS + 60
        yield f'<rect x="{x:g}" y="{y:g}" width="{scale * done:.1f}" height="{tall}" fill="{DONE}"/>'
        yield f'<rect x="{x + scale * done:.1f}" y="{y:g}" width="{scale * now:.1f}" height="{tall}" fill="{NOW}"/>'
        yield f'<rect x="{x:g}" y="{y:g}" width="{scale * whole:.1f}" height="{tall}" fill="none" stroke="{MUTED}"/>'
        told = f"{now} now" if now else "nothing to compute"
        yield words(x, y + tall + 17, told, PX["box"], fill=MUTED)


# --- when a hop is hidden ---------------------------------------------------------------------------------------------


def overlap() -> Chooser:
    """Time of a block and of a hop over the tokens of a rank, for a card, a link, and a number of KV heads."""
    choices = {
        "card": ("card", list(MACHINES), "h100"),
        "link": ("link", ["inside a node", "between nodes"], "between nodes"),
        "keys": ("KV heads", [8, 32], 8),
    }
    return Chooser(overlap_still, choices, [{}])


def overlap_still(card: str, link: str, keys: int) -> Still:
    """The two curves for one choice.

    >>> overlap_still("h100", "between nodes", 8).summary
    'h100, between nodes, 8 KV heads: a hop is hidden with at least 2,634 tokens per rank'
    """
    shape, line = replace(LLAMA, kv_heads=keys), link_of(card, link)
    rate = SHARE * machine(card).peak
    least = least_tokens(shape, rate, line)
    tokens = [2**power for power in range(7, 16)]
    x = [math.log2(one) for one in tokens]
    scale = lambda seconds: math.log10(1e6 * seconds)
    curves = [
        Curve("a block: queries against keys of one rank", x,
              [scale(block_seconds(shape, one, rate)) for one in tokens], 5, "solid", "circle"),
        Curve("a hop: keys and values to the next rank", x,
              [scale(hop_seconds(shape, one, line)) for one in tokens], 4, "dash", "square"),
        Curve("", [math.log2(least)], [scale(hop_seconds(shape, least, line))], 3, "", "diamond",
              [f"{least:,.0f} tokens"]),
    ]  # fmt: skip
    told = f"{card}, {link}, {keys} KV heads: a hop is hidden with at least {least:,.0f} tokens per rank"
    across = Axis("tokens per rank", 6.8, 15.4, marks={power: f"{2**power:,}" for power in range(7, 16)})
    names = {0: "1 µs", 1: "10 µs", 2: "100 µs", 3: "1 ms", 4: "10 ms", 5: "100 ms"}
    up = Axis("time of one layer, forward", -0.5, 5.0, marks=names)
    return Still(chart(curves, across, up, told, told).twin, told)
