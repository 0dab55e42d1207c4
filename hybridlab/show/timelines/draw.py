"""Draw: a timeline, or several on one time axis, as a plotly figure; a layout, a dry run, a layer, a resharding.

Boxes are bars with a base or, above `MANY` boxes, one image; plotly's shapes take seconds instead of milliseconds.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from hybridlab.core.dry import DryRun
from hybridlab.core.layer import Layer
from hybridlab.core.when.timeline import Timeline
from hybridlab.core.where.layout import Layout
from hybridlab.core.where.passage import Passage
from hybridlab.show.charts.memory_over_time import memory_over_time
from hybridlab.show.layouts.grid_of_ranks import grid_of_ranks
from hybridlab.show.layouts.one_layer import one_layer
from hybridlab.show.layouts.passage_matrix import passage_matrix
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import prose_width, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, mix
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.drawn import LEFT, RIGHT, USUAL_WIDTH
from hybridlab.show.timelines.grid import MANY, grid, png
from hybridlab.show.timelines.noted import strokes, texts
from hybridlab.show.timelines.notes import Note
from hybridlab.show.timelines.svg import page
from hybridlab.signatures import typed

BELOW, CAPTION_LINE = 66, 21  # pixels under the plot, and for each line of the captions there
NARROW = 760  # pixels: captions fit a notebook next to an open file browser, since plotly does not wrap them
LEGEND_ROW, LEGEND_KEY = 22, 40  # pixels: of the legend, and of the mark before a name
COLUMNS, ROWS = 2000, 8  # pixels of the image: its width, and for each lane height
PALE = 0.6  # how far dots move towards their ground, so that a number on them is readable
PX = STYLE["pixels"]


@typed
def draw(
    *timelines: Timeline | Layout | DryRun | Layer | Passage | str,
    title: str | None = None,
    numbers: bool = True,
    notes: Sequence[Note] = (),
    columns: int = 0,
    titles: Sequence[str] = (),
) -> Figure | Still:
    """The picture of a timeline, of a prediction above its measurement, of several timelines, of a layout, of a dry
    run, of one layer or of a resharding.

    Rank 0 is on top. A prediction and a measurement of one program share rows, the prediction above. If there are
    several steps, the step of median length is drawn. Measured times are in milliseconds. For a layout, draw(layout,
    "blocks.0.mlp.up.weight") shows the slice of this parameter on each rank; for a dry run, the picture shows its
    memory; for the layer of `hl.dry_layer`, its messages; for the plan of `hl.reshard`, the bytes by sender and
    receiver.

    timelines  timelines, or a layout and the name of a parameter, a dry run, a layer or a plan
    title      the title above the picture; None: no title
    numbers    whether the caption shows length, idle time and activations, and notes show their lengths; False
               hides them if they are the answer to a question
    notes      braces and outlines, each for one of the timelines (see `hybridlab.show.timelines.notes`)
    columns    columns of small pictures with numbers in their headings, so that four fit on a screen; 0: full size
    titles     headings of several timelines, instead of their schedules' names

    raises  ValueError if there is nothing to draw, or titles or notes do not match the timelines

    >>> import hybridlab as hl
    >>> t = hl.simulate(hl.schedule("gpipe", ranks=4, microbatches=8))
    >>> hl.draw(t)
    <figure gpipe, 4 ranks, 8 microbatches, predicted: length 33 units, ...>
    >>> hl.draw(t, numbers=False)
    <figure gpipe, 4 ranks, 8 microbatches, predicted>
    """
    if timelines and isinstance(timelines[0], Layout):
        return grid_of_ranks(*timelines)
    if timelines and isinstance(timelines[0], DryRun):
        return memory_over_time(timelines[0], title)
    if timelines and isinstance(timelines[0], Layer):
        return one_layer(timelines[0], title)
    if timelines and isinstance(timelines[0], Passage):
        return passage_matrix(timelines[0], title)
    picture = boxes(*timelines, notes=notes, numbers=numbers, columns=columns, titles=titles)
    traces = [*(_keys(picture) if len(picture) > MANY else _bars(picture)), *_strokes(picture)]
    return Figure.of(traces, _layout(picture, title), page(picture, title=title), picture.summary)


def without_caption(figure: Figure) -> Figure:
    """The same figure for a page that writes its summary itself."""
    bare = Figure(figure)
    kept = [note for note in figure.layout.annotations if note.name != "caption"]
    if len(kept) < len(figure.layout.annotations):
        saved = figure.layout.margin.b - BELOW
        bare.layout.annotations = kept  # update_layout would merge the lists
        bare.update_layout(height=figure.layout.height - saved, margin={"b": BELOW})
    return bare


def _bars(picture):
    """One trace per look; in the legend the first of each name stands for all of that name."""
    size, labels = picture.labels(_time_pixels(picture), picture.lane_pixels)
    keys = {look: (place, name) for place, (name, look) in enumerate(picture.legend)}
    there = picture.x1 > picture.x0  # the outline of a bar without length would be visible
    boxes_of = [np.flatnonzero(there & (picture.look == number)).tolist() for number in range(len(picture.looks))]
    drawn = [(look, mine) for look, mine in zip(picture.looks, boxes_of) if mine]
    bars = [_bar(picture, mine, look, labels, size, keys.get(look)) for look, mine in drawn]
    return bars + [_line_in_legend(look, *keys[look]) for look, _ in drawn if look in keys and look.kind == "arrived"]


def _bar(picture, mine, look, labels, size, key):
    edges = picture.edges(mine, _time_pixels(picture)) if look.kind == "message" else look.edge
    marker = {"color": look.fill, "line": {"color": edges, "width": 2 if look.dotted else 1}}
    if look.hatch or look.dotted:
        shape, colour = ("/", look.hatch) if look.hatch else (".", mix(look.edge, look.fill, PALE))
        marker["pattern"] = {"shape": shape, "fgcolor": colour, "bgcolor": look.fill, "size": 8, "solidity": 0.3}
    return go.Bar(
        orientation="h",
        base=picture.x0[mine],
        x=picture.x1[mine] - picture.x0[mine],
        y=(picture.y0[mine] + picture.y1[mine]) / 2,
        width=picture.y1[mine] - picture.y0[mine],
        marker=marker,
        text=[labels[i] for i in mine],
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont={"color": look.text, "size": size},
        constraintext="inside" if size == PX["box"] else "none",  # plotly leaves more space around a text than we do
        textangle=0,
        hovertext=[picture.hover(i) for i in mine],
        hoverinfo="text",
        name=key[1] if key else look.name,
        legendrank=1 + key[0] if key else None,
        showlegend=key is not None and look.kind != "arrived",
    )


def _line_in_legend(look, place, name):
    """The legend's mark for a look that is drawn as a thin line; plotly's mark for a bar is always a square."""
    pen = {"color": look.fill, "width": 3}
    return go.Scatter(x=[None], y=[None], mode="lines", line=pen, name=name, legendrank=1 + place, hoverinfo="skip")


def _keys(picture):
    """The legend of an image: bars without length."""
    return [
        go.Bar(x=[None], y=[None], marker={"color": look.fill, "line": {"color": look.edge}}, name=name)
        for name, look in picture.legend
    ]


def _image(picture):
    """All boxes as one image under the axes: the time to show it depends on the screen alone."""
    pixels = grid(picture, COLUMNS, round(ROWS * picture.height))
    place = {"xref": "x", "yref": "y", "x": 0, "y": 0, "sizex": picture.width, "sizey": picture.height}
    return place | {"source": png(pixels), "sizing": "stretch", "layer": "below", "xanchor": "left", "yanchor": "top"}


def _strokes(picture):
    """Braces and outlines: all of one width in one trace, with gaps between them."""
    drawn = strokes(picture.notes, _time_pixels(picture), picture.lane_pixels)
    for width, outlined in ((1.5, False), (2.5, True)):
        mine = [line for line, note in zip(drawn, picture.notes) if bool(note.outline) == outlined]
        points = [point for line in mine for point in (*line, (None, None))]
        if points:
            x, y = zip(*points)
            pen = {"color": STYLE["ink"], "width": width}
            yield go.Scatter(x=x, y=y, mode="lines", line=pen, hoverinfo="skip", showlegend=False, cliponaxis=False)


def _written(picture, font):
    """The text of the notes, as annotations."""
    for one in texts(picture.notes, picture.length, _time_pixels(picture), picture.lane_pixels):
        text = f"<b>{one.text}</b>" if one.bold else one.text
        place = {"x": one.x, "y": one.y, "xanchor": "center", "yanchor": "middle", "showarrow": False, "borderpad": 0}
        yield place | {"name": "note", "text": text, "bgcolor": STYLE["paper"], "font": font | {"size": one.size}}


def _time_pixels(picture):
    """The width of one unit of time in a notebook's output, in pixels."""
    return (USUAL_WIDTH - LEFT - RIGHT) / picture.width


def _layout(picture, title):
    """Axes that count ranks from the top, a legend above the plot, the captions below it."""
    tall = picture.height * picture.lane_pixels
    captions = () if picture.small else picture.captions
    lines = [line for caption in captions for line in wrap(caption, NARROW, PX["caption"])]
    rows, legend = _legend(picture)
    top, bottom = 44 + LEGEND_ROW * (rows - 1) + (34 if title else 0), BELOW + CAPTION_LINE * len(lines)
    font = {"family": STYLE["font"], "size": PX["axis"], "color": STYLE["ink"]}
    caption = {
        "name": "caption", "text": "<br>".join(lines), "showarrow": False, "align": "left",
        "font": font | {"color": STYLE["muted"]},
        "xref": "paper", "yref": "paper", "x": 0, "xanchor": "left", "xshift": 12 - LEFT,
        "y": 0, "yanchor": "top", "yshift": -56,
    }  # fmt: skip
    return {
        "template": "none",
        "barmode": "overlay",
        "font": font,
        "height": round(top + tall + bottom),
        "margin": {"l": LEFT, "r": RIGHT, "t": top, "b": bottom},
        "paper_bgcolor": STYLE["paper"],
        "plot_bgcolor": STYLE["paper"],
        "hoverlabel": {"font": {"size": PX["box"]}},
        "dragmode": "zoom",
        "uniformtext": {"minsize": PX["smallest"], "mode": "hide"},
        "title": {"text": title, "x": 0.02, "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 12},
                  "font": {"size": PX["heading"]}} if title else None,
        "legend": legend,
        "xaxis": {"range": [0, picture.width], "gridcolor": STYLE["grid"], "zeroline": False,
                  "ticks": "", "title": {"text": f"time, {picture.unit}", "standoff": 2, "font": font}}
                  | _ticks_of_columns(picture),
        "yaxis": {"range": [picture.height, 0], "fixedrange": True, "showgrid": False, "zeroline": False,
                  "ticks": "outside", "ticklen": 8, "tickcolor": STYLE["paper"],
                  "tickvals": [lane.top + 0.5 for lane in picture.named_lanes if not lane.x],
                  "ticktext": [lane.label for lane in picture.named_lanes if not lane.x]},
        "annotations": [caption, *_headings(picture, font), *_labels_of_columns(picture, font),
                        *_written(picture, font)],
        "images": [_image(picture)] if len(picture) > MANY else [],
    }  # fmt: skip


def _legend(picture):
    """The number of rows of the legend, and its layout.

    Names that do not fit into one row are in columns. In plotly the longest name sets the width of all columns, so the
    last name, which is the longest, has no neighbour.
    """
    wide = [prose_width(name, PX["axis"]) for name, _ in picture.legend]
    room, own = USUAL_WIDTH - LEFT - RIGHT, LEGEND_KEY + 8
    across = {"orientation": "h", "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom", "itemclick": False,
              "itemdoubleclick": False}  # fmt: skip
    if sum(wide) + own * len(wide) <= room:
        return 1, across
    entry = max(wide[:-1])
    columns = max(1, int(room // (entry + own)))
    return -(-len(wide) // columns), across | {"entrywidth": entry}


def _headings(picture, font):
    """Names of timelines; for small pictures also their numbers, after the name in one column, under it in several."""
    between = "<br>" if len(picture.axes) > 1 else "&nbsp;&nbsp; "
    for one in picture.headings:
        told = f'{between}<span style="font-size:{PX["box"]}px;color:{STYLE["muted"]}">{one.told}</span>'
        text = f"<b>{one.text}</b>{told if one.told else ''}"
        yield {"text": text, "x": one.x, "xanchor": "left", "y": one.y, "yanchor": "middle", "showarrow": False,
               "align": "left", "borderpad": 0, "font": font | {"size": PX["heading"]}}  # fmt: skip


def _ticks_of_columns(picture):
    """Ticks of several time axes next to each other; each begins at 0."""
    if len(picture.axes) == 1:
        return {}
    return {
        "tickvals": [axis + tick for axis in picture.axes for tick in picture.ticks],
        "ticktext": [f"{tick:g}" for _ in picture.axes for tick in picture.ticks],
    }


def _labels_of_columns(picture, font):
    """The names of lanes in every column but the first, which has the axis."""
    for lane in picture.named_lanes:
        if lane.x:
            yield {"text": lane.label, "x": lane.x, "xanchor": "right", "xshift": -8, "y": lane.top + 0.5,
                   "yanchor": "middle", "showarrow": False, "borderpad": 0, "font": font}  # fmt: skip
