"""Style: all colours, dashes, marks, fonts and sizes of pictures, defined once.

JavaScript gets STYLE as data; style sheets take its colours as custom properties (`live.module.stylesheet`).

Colour-blind readers, and readers of a grey print, can distinguish the colours of F, B and W (a test computes it). A
microbatch has a number; where a reader asks for it, it also has one of eight tints. The colours are Okabe and Ito's
set; only W is Paul Tol's wine, because blue, orange and green are too similar under tritanopia.
"""

from typing import NamedTuple

STYLE = {
    "font": "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif",
    "paper": "#FFFFFF",
    "ink": "#1A1A1A",
    "muted": "#555555",
    "grid": "#D9D9D9",
    "error": "#D55E00",  # an outline, never a fill
    "aside": "#8C8C8C",  # a device that is not the one spoken of
    "shadow": "#000000",  # mixed into the side of a body
    "tiles": "#F7F7F7",  # behind the colours of ranks, light on a dark page too
    # Four ranks in turn differ in lightness, so that the stripes of a sum are visible in a grey print.
    "ranks": ("#17406F", "#B5452A", "#E6C84F", "#CC79A7", "#0B5F55", "#7A6BB5", "#A9CF8E", "#4FA3C7"),
    "control": "#8A8A8A",  # edges of buttons and fields, visible on light and on dark
    "light": {"ink": "#1A1A1A", "muted": "#555555", "grid": "#D9D9D9", "bubble": "#E5E5E5", "edge": "#FFFFFF"},
    "dark": {"ink": "#F0F0F0", "muted": "#B8B8B8", "grid": "#4A4A4A", "bubble": "#484848", "edge": "#1A1A1A"},
    "pixels": {"box": 14, "smallest": 13, "axis": 15, "caption": 15, "line": 21, "heading": 18, "lane": 34},
    "kinds": {
        "F": {"name": "forward", "fill": "#0072B2", "tone": "forward"},
        "C": {"name": "forward, keeps only its input", "fill": "#00507D", "hatch": True, "tone": "forward"},
        "R": {"name": "forward, recomputed", "fill": "#0072B2", "outline": True, "tone": "forward"},
        "B": {"name": "backward", "fill": "#E69F00", "tone": "backward"},
        "I": {"name": "input half", "fill": "#E69F00", "tone": "backward"},
        "W": {"name": "weight half", "fill": "#882255", "hatch": True, "tone": "weights"},
        "OPT": {"name": "optimizer", "fill": "#333333"},
        "NORM": {"name": "squares added", "fill": "#333333", "outline": True, "letter": "Σ"},
        "VALID": {"name": "norm known", "fill": "#333333", "outline": True, "letter": "?"},
        "SWAP_OUT": {"name": "copied to the host", "fill": "#CC79A7", "letter": "↑"},
        "SWAP_IN": {"name": "copied back", "fill": "#CC79A7", "hatch": True, "letter": "↓"},
        "LENT_OUT": {"name": "activations lent, or returned", "fill": "#009E73", "letter": "↑"},
        "LENT_IN": {"name": "activations received", "fill": "#009E73", "hatch": True, "letter": "↓"},
        "message": {"name": "communication", "fill": "#009E73"},
        "arrived": {"name": "arrived, not yet used", "fill": "#009E73"},  # a thin line
        "bubble": {"name": "bubble (idle)", "fill": "#E5E5E5"},
        "lost": {"name": "lost rank", "fill": "#A6A6A6", "hatch": True, "letter": "lost"},
    },
    # Curves differ in width, dash and marker as well; the first of each list is drawn first, widest.
    "curves": ["#56B4E9", "#882255", "#E69F00", "#1A1A1A", "#009E73", "#0072B2"],
    "dotted": "4 3",
    "projector": 1.6,  # how much larger all live pictures are while the switch *projector* is on
}
DASHES = {  # by their meaning; the first four are plotly's names, for curves
    "solid": "none",
    "dash": "9 6",
    "dot": "2 5",
    "dashdot": "9 5 2 5",
    "absent": STYLE["dotted"],  # a frame around something absent
    "absent box": "3 2",
    "absent tile": "3 3",
    "hidden": "7 4",
    "under way": "7 5",
    "mixed": "7 3",
    "gathered": "2 3",
    "too small": "2 4",
    "two parts": "4 3",  # of one area
    "limit": "6 4",
    "along x": "12 3",
    "along cp": "6 3 2 3",
    "along pp": "9 4",
    "along dp": "2 4",
    "along ep": "2 3 6 3",
}
MARKS = {  # around the point (0, 0)
    "circle": "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
    "square": "M-5 -5h10v10h-10z",
    "diamond": "M0 -7l7 7l-7 7l-7 -7z",
    "cross": "M-7 -2h5v-5h4v5h5v4h-5v5h-4v-5h-5z",
}
WHITE, BLACK = "#FFFFFF", "#000000"
FIXED = "hl-fixed"  # the class of a line that keeps its colour in the dark, because the fill under it does
REPLIES = {"right": "#1e8752", "not yet": "#c45500", "asked": "#0072b2"}  # legible on white and on black
WEIGHT = "#4A4A4A"  # a matrix of weights; others have the colours of forward and backward
TINTS = "#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00"  # Paul Tol's light
TONES = {"forward": 0.0, "weights": 0.25, "backward": 0.5}  # how far the tint of a microbatch moves towards black
TOO_LARGE = {"stripes": "#C4C4C4", "edge": "#B0B0B0"}  # a plan that does not fit
BUBBLE_EDGE = "#CFCFCF"
IN_THE_DARK = {  # colours that follow the page; other fills stay, and lines and letters get lighter (`theme`)
    STYLE["paper"]: STYLE["dark"]["edge"],
    **{STYLE["light"][name]: STYLE["dark"][name] for name in ("ink", "muted", "grid", "bubble")},
    BUBBLE_EDGE: "#5A5A5A",
    TOO_LARGE["stripes"]: "#5E5E5E",
    TOO_LARGE["edge"]: "#6A6A6A",
    STYLE["kinds"]["OPT"]["fill"]: "#737373",
    WEIGHT: "#737373",
}
CLEAR, MIDDLE = "rgba(0,0,0,0)", "#808080"
ON_BOTH = {  # where a colour cannot follow the page (plotly): one for lines and quiet fills on light and on dark
    STYLE["ink"]: MIDDLE,
    STYLE["muted"]: MIDDLE,
    STYLE["grid"]: "rgba(128,128,128,0.35)",
    STYLE["light"]["bubble"]: "rgba(128,128,128,0.22)",
    BUBBLE_EDGE: "rgba(128,128,128,0.4)",
    STYLE["kinds"]["OPT"]["fill"]: "#5F5F5F",
}
LATER_CHUNK, MEASURED, HATCH, HATCH_ON_LIGHT = 0.3, 0.45, 0.2, 0.3  # how far a fill moves towards white


class Look(NamedTuple):
    """The look of one kind of box: its colours, letter and name.

    letter  the letter before the microbatch in a wide box;  chunk, measured  as given to `look`
    hatch   colour of diagonal stripes, or "";  dotted  a broken outline instead of a filled box
    """

    kind: str
    name: str
    letter: str
    chunk: int
    measured: bool
    fill: str
    text: str
    edge: str
    hatch: str
    dotted: bool


def look(kind: str, chunk: int = 0, measured: bool = False) -> Look:
    """The look of a kind of action (or "message", "arrived", "bubble"), of a rank's k-th chunk, predicted or measured.

    Later chunks are lighter, and measured actions lighter still. Both have an edge, and so differ from other kinds in a
    grey print.

    >>> look("F").fill, look("F").text, look("F", chunk=1).fill, look("F", chunk=1).text
    ('#0072B2', '#FFFFFF', '#4D9CC9', '#000000')
    """
    own = STYLE["kinds"][kind]
    letter = "" if kind in ("message", "arrived", "bubble") else own.get("letter", kind)
    if kind == "bubble":
        return Look(kind, own["name"], letter, 0, measured, own["fill"], STYLE["ink"], BUBBLE_EDGE, "", False)
    full, paper = own["fill"], STYLE["paper"]
    if kind == "arrived":
        return Look(kind, own["name"], letter, 0, measured, full, BLACK, full, "", False)
    if own.get("outline"):
        return Look(kind, own["name"], letter, chunk, measured, paper, STYLE["ink"], full, "", True)
    fill = mix(full, paper, 1 - (1 - LATER_CHUNK) ** chunk)
    fill = mix(fill, paper, MEASURED) if measured else fill
    text = ink_on(fill)
    stripe = mix(fill, paper, HATCH if text == WHITE else HATCH_ON_LIGHT) if own.get("hatch") else ""
    return Look(
        kind, own["name"], letter, chunk, measured, fill, text, full if measured or chunk else paper, stripe, False
    )


def mix(one: str, other: str, share: float) -> str:
    """A colour between two others: `share` 0 gives the first, 1 the second.

    >>> mix("#000000", "#FFFFFF", 0.2)
    '#333333'
    """
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in zip(_rgb(one), _rgb(other)))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG 2 defines it; text needs 4.5.

    >>> contrast("#FFFFFF", "#000000")
    21.0
    """
    dark, light = sorted(_luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def dashed(name: str) -> str:
    """The SVG attribute for the dashes of this name.

    >>> dashed("limit")
    'stroke-dasharray="6 4"'
    """
    return f'stroke-dasharray="{DASHES[name]}"'


def ink_on(fill: str) -> str:
    """White or black: the one that contrasts better with a fill; on paper and on a bubble, which follow the theme, ink.

    >>> ink_on("#0072B2"), ink_on("#E69F00")
    ('#FFFFFF', '#000000')
    """
    if fill in (STYLE["paper"], STYLE["light"]["bubble"]):
        return STYLE["ink"]
    return max((WHITE, BLACK), key=lambda ink: contrast(ink, fill))


def tints() -> list[dict]:
    """The colours of microbatches 0 to 7, after which they begin again: {a tone of TONES: its fill and text}."""
    fills = [{tone: mix(tint, BLACK, share) for tone, share in TONES.items()} for tint in TINTS]
    return [{tone: {"fill": fill, "text": ink_on(fill)} for tone, fill in one.items()} for one in fills]


def _rgb(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _luminance(colour):
    shares = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _rgb(colour)]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), shares))


STYLE["tints"] = tints()
