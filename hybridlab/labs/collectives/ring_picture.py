"""The picture of one moment of a ring all-reduce: a row per rank, a column per chunk, and the ranks in each sum."""

import numpy as np

from hybridlab.show.paper.sheet import sheet, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, ink_on

BOX, CELL_GAP, ROW, LEFT, TOP = 22, 10, 62, 64, 92  # two pictures side by side are as wide as a page
PX = STYLE["pixels"]
GREEN = STYLE["kinds"]["message"]["fill"]
FULL, PARTLY = STYLE["ink"], STYLE["control"]


def ring_still(held: np.ndarray, sent: np.ndarray, step: int) -> Still:
    """The chunks of all ranks after `step` steps, and the messages of the last of these steps.

    held  (steps + 1, ranks, chunks): sums, whose bit r says that rank r's number is in it
    sent  (steps, ranks): which chunk left each rank in each step
    """
    ranks, chunks = held.shape[1:]
    cell = BOX * ranks
    width = LEFT + chunks * (cell + CELL_GAP) + 24
    out = [words(LEFT, 26, _name(step, ranks), PX["axis"], **{"font-weight": "600"})]
    for c in range(chunks):
        out.append(words(LEFT + c * (cell + CELL_GAP) + cell / 2, TOP - 44, f"chunk {c}", PX["smallest"], "middle"))
    came = {((r + 1) % ranks, int(sent[step - 1, r])) for r in range(ranks)} if step else set()
    for r in range(ranks):
        y = TOP + r * ROW
        out.append(words(LEFT - 12, y + BOX / 2 + 5, f"rank {r}", PX["axis"], "end"))
        for c in range(chunks):
            x = LEFT + c * (cell + CELL_GAP)
            out += _sum(int(held[step, r, c]), ranks, x, y)
            if (r, c) in came:
                out.append(
                    f'<rect x="{x - 4}" y="{y - 4}" width="{cell + 8}" height="{BOX + 8}" fill="none" stroke="{GREEN}" '
                    f'stroke-width="3"/>'
                )
                out.append(_arrow(x + cell / 2, y))
    summary = _summary(held, step)
    bottom = TOP + ranks * ROW
    lines = wrap(summary, width - 36, PX["smallest"])
    out += [words(18, bottom + 17 * i, line, PX["smallest"], fill=STYLE["muted"]) for i, line in enumerate(lines)]
    return Still(sheet(width, bottom + 17 * len(lines) + 4, _name(step, ranks), summary, out), summary)


def _sum(bits, ranks, x, y):
    """A row of boxes, one per rank: filled where that rank's number is in the sum, black when all are."""
    fill = FULL if bits == 2**ranks - 1 else PARTLY
    for r in range(ranks):
        inside = bits >> r & 1
        yield (
            f'<rect x="{x + BOX * r}" y="{y}" width="{BOX}" height="{BOX}" fill="{fill if inside else "none"}" '
            f'stroke="{STYLE["grid"]}"/>'
        )
        if inside:
            yield words(x + BOX * (r + 0.5), y + BOX * 0.72, str(r), PX["smallest"], "middle", fill=ink_on(fill))


def _arrow(x, y):
    """A green arrow into a cell from above: from the rank before; into the first row it comes from the last rank."""
    shaft = f"M{x:g} {y - ROW + BOX + 8}v{ROW - BOX - 14}m-6 -7l6 7l6 -7"
    return f'<path d="{shaft}" fill="none" stroke="{GREEN}" stroke-width="3"/>'


def _name(step, ranks):
    if step == 0:
        return "before the first step"
    part = "first round, adding" if step < ranks else "second round, copying"
    return f"after step {step} of {2 * (ranks - 1)}: {part}"


def _summary(held, step):
    ranks = held.shape[1]
    complete = (held[step] == 2**ranks - 1).sum(axis=1)
    told = " ".join(map(str, complete.tolist()))
    return f"{_name(step, ranks)}; complete chunks on ranks 0 to {ranks - 1}: {told}; chunks sent by each: {step}"
