"""Themed chart: a plotly chart, as JSON, that follows the colour scheme of its page.

plotly knows one colour for each thing. So its paper is transparent, above a picture that is light or dark; each text
has a style in CSS; and its lines have colours that are visible on both.
"""

from typing import Any
from urllib.parse import quote

from hybridlab.show.paper.sheet import minus
from hybridlab.show.paper.style import CLEAR, IN_THE_DARK, MIDDLE, ON_BOTH, STYLE
from hybridlab.show.paper.theme import both, in_the_dark

GROUND = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><style>:root { color-scheme: light dark } '
    f'rect {{ fill: {both(STYLE["paper"])} }}</style><rect width="1" height="1" fill="{STYLE["paper"]}"/></svg>'
)
SHEET = {"source": "data:image/svg+xml," + quote(GROUND), "xref": "paper", "yref": "paper", "x": -2, "y": 3, "sizex": 5,
         "sizey": 5, "sizing": "stretch", "layer": "below"}  # fmt: skip
CLEARED = ("paper_bgcolor", "plot_bgcolor", "tickcolor", "bgcolor")  # of the layout
INSIDE = ("insidetextfont", "pattern")  # on a fill, which stays


def themed(chart: dict) -> dict:
    """The chart with a background and texts that follow the page, and lines that are visible on both.

    chart  as plotly's `to_json` gives it

    >>> themed({"data": [{"name": "F"}], "layout": {"font": {"color": "#1A1A1A"}}})["data"]
    [{'name': '<span style="fill:light-dark(#1A1A1A, #F0F0F0)">F</span>'}]
    """
    ink = chart["layout"].get("font", {}).get("color", STYLE["ink"])
    data = [_told(trace, ink, "name") for trace in (_trace(one, ink) for one in chart["data"])]
    layout = _layout({name: CLEAR if name in CLEARED else one for name, one in chart["layout"].items()}, ink)
    return chart | {"data": data, "layout": layout}


def _trace(trace, ink):
    """A trace; the fill of a bar stays, since its text and its stripes were chosen for it."""
    whole = _coloured(trace)
    if trace.get("type") == "bar":
        whole["marker"]["color"] = _coloured(trace["marker"]["color"], "fillcolor")
    elif "text" in trace:
        whole["text"] = [text and _span(text, ink) for text in trace["text"]]
    return whole


def _layout(layout, ink):
    whole = _coloured(layout)
    for name in [name for name in whole if name[1:].startswith("axis")]:
        whole[name] = _axis(whole[name], ink)
    if whole.get("title"):
        whole["title"] = _told(whole["title"], ink)
    for name in ("annotations", "shapes"):
        if name in whole:
            whole[name] = [_noted(one, ink) for one in whole[name]]
    modebar = {"bgcolor": CLEAR, "color": MIDDLE, "activecolor": MIDDLE}
    return whole | {"images": [SHEET, *whole.get("images", [])], "modebar": modebar, "paper_bgcolor": CLEAR,
                    "plot_bgcolor": CLEAR}  # fmt: skip


def _axis(axis, ink):
    if axis.get("title"):
        axis = axis | {"title": _told(axis["title"], ink)}
    if "ticktext" in axis:
        return axis | {"ticktext": [_span(text, ink) for text in axis["ticktext"]]}
    begin, end = _span("|", ink).split("|")
    return axis | {"tickprefix": begin + axis.get("tickprefix", ""), "ticksuffix": axis.get("ticksuffix", "") + end}


def _noted(one, ink):
    if "label" in one:
        return one | {"label": _told(one["label"], ink)}
    halo = f";paint-order:stroke;stroke-width:4px;stroke:{both(STYLE['paper'])}" if "bgcolor" in one else ""
    return _told(one | ({"bgcolor": CLEAR} if halo else {}), ink, more=halo)


def _told(one, ink, name="text", more=""):
    """One dictionary with its text in the colour of its font, or else in that of the chart."""
    text = one.get(name)
    return one | {name: _span(text, one.get("font", {}).get("color", ink), more)} if text else one


def _span(text, colour, more=""):
    return f'<span style="fill:{both(colour)}{more}">{minus(text)}</span>'


def _coloured(value: Any, name: str = "") -> Any:
    """The same JSON with colours for both pages, except for those of texts."""
    if isinstance(value, dict):
        return {key: one if key in ("font", *INSIDE) else _coloured(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_coloured(one, name) for one in value]
    if not isinstance(value, str) or not value.startswith("#"):
        return value
    if name == "tickcolor":
        return CLEAR
    if value in ON_BOTH or value in IN_THE_DARK or name != "color":
        return ON_BOTH.get(value, value)
    return in_the_dark(value)
