"""Notebook 16's picture: the cost of each token of a row, cut into slices of equal length and of equal cost."""

from hybridlab.core.what.shape import Shape
from hybridlab.labs.slices.runs import HEADS, TOKENS, WIDTH, lengths
from hybridlab.predict.plans.slicing import SLICING, per_token, shares
from hybridlab.show.paper.sheet import sheet, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, dashed, mix

PX, PAPER, MUTED = STYLE["pixels"], STYLE["paper"], STYLE["muted"]
DARK = STYLE["kinds"]["F"]["fill"]
TONES = DARK, mix(DARK, PAPER, 0.45)  # colours of slices, alternately
READ = (
    "across: position in the row; up: FLOPs of the token, below the line of matrices, above it of attention",
    "below each slice: its tokens, and its share of the FLOPs of the row",
)
WIDE, LEFT, GAP, SIDE, TALL, TOP = 960, 24, 48, 432, 180, 60


def triangle(tokens: int = TOKENS, slices: int = 4) -> Still:
    """The cost of a token over its position in a row, under both cuts. The area of a slice is its cost.

    tokens  the number of tokens in the row;  slices  the number of slices
    """
    shape = Shape(layers=1, width=WIDTH, heads=HEADS, context=tokens)
    cuts = {how: lengths(slices, how, tokens) for how in SLICING}
    costs = {how: [f"{share:.1%}" for share in shares(shape, cut)] for how, cut in cuts.items()}
    told = "; ".join(f"slices of equal {_noun(how)} cost {' '.join(costs[how])} of a row" for how in SLICING)
    out = []
    for number, how in enumerate(SLICING):
        left = LEFT + number * (SIDE + GAP)
        out.append(words(left + SIDE / 2, 30, f"equal {_noun(how)}", PX["axis"], "middle", **{"font-weight": "600"}))
        out += _areas(shape, cuts[how], costs[how], left)
    foot = TOP + TALL + 68
    out += [words(LEFT, foot + PX["line"] * i, line, PX["caption"], fill=MUTED) for i, line in enumerate(READ)]
    return Still(sheet(WIDE, foot + PX["line"] + 14, "The cost of a row, in slices", told, out), told)


def _noun(how: str) -> str:
    return "length" if how == "equal" else how


def _areas(shape: Shape, cut: tuple[int, ...], costs: list[str], left: int) -> list[str]:
    """A slice is the area below the costs of its tokens: the cost of matrices, and above it the cost of attention."""
    alpha, beta = per_token(shape)
    across = SIDE / shape.context
    up = lambda tokens: TOP + TALL - TALL * (alpha + beta * tokens) / (alpha + beta * shape.context)
    up_of_matrices = up(0)
    out, begin = [], 0
    for number, (length, cost) in enumerate(zip(cut, costs)):
        end = begin + length
        x, far, foot = left + begin * across, left + end * across, TOP + TALL
        corners = f"{x:.1f},{foot} {x:.1f},{up(begin):.1f} {far:.1f},{up(end):.1f} {far:.1f},{foot}"
        out.append(f'<polygon points="{corners}" fill="{TONES[number % 2]}" stroke="{PAPER}"/>')
        out.append(words((x + far) / 2, foot + 20, f"{length:,}", PX["box"], "middle", fill=MUTED))
        out.append(words((x + far) / 2, foot + 40, cost, PX["box"], "middle"))
        begin = end
    line = f"M {left} {up_of_matrices:.1f} h {SIDE}"
    return [*out, f'<path d="{line}" stroke="{PAPER}" {dashed("two parts")}/>']
