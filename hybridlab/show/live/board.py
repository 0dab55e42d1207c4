"""The board of the scheduling game as a static picture: the choices of each rank, for readers without a kernel."""

from hybridlab.show.paper.sheet import captioned, prose_width, words
from hybridlab.show.paper.style import STYLE, dashed, look

WIDTH, TOP, ROW = 960, 20, 46
CHOICES, WIDE, TALL = 110, 84, 32  # of the boxes of a row: where they begin; width, height
PX, MUTED = STYLE["pixels"], STYLE["muted"]


def board_svg(rows: list[dict], told: str) -> str:
    """The rows of a game's board as SVG text: a filled box can be chosen; a broken outline says why it cannot.

    rows  for each rank {"choices": [{"kind", "text", "why"}], "held"}, as `game.js` gets them
    told  below the board

    >>> one = {"choices": [{"kind": "F", "text": "F0", "why": ""}], "held": 0}
    >>> board_svg([one], "choose")[:4]
    '<svg'
    """
    out = []
    for rank, row in enumerate(rows):
        y, x = TOP + ROW * rank, CHOICES
        out.append(words(x - 14, y + 22, f"rank {rank}", PX["axis"], "end"))
        for choice in row["choices"]:
            its, frame = look(choice["kind"]), f'x="{x}" y="{y}" width="{WIDE}" height="{TALL}" rx="4"'
            filled, broken = f'fill="{its.fill}"', f'fill="none" stroke="{MUTED}" {dashed("absent")}'
            out.append(f"<rect {frame} {broken if choice['why'] else filled}/>")
            ink = MUTED if choice["why"] else its.text
            out.append(words(x + WIDE / 2, y + 22, choice["text"], PX["axis"], "middle", fill=ink))
            x += WIDE + 14
        why = next((choice["why"] for choice in row["choices"] if choice["why"]), "")
        if prose_width(why, PX["box"]) < WIDTH - x - 34:
            out.append(words(x + 10, y + 22, why, PX["box"], fill=MUTED))
    return captioned(WIDTH, TOP + ROW * len(rows) + 22, "the board of the game", told, out).svg
