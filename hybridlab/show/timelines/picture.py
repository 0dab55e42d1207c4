"""A picture as plain columns: the data of the widget, the static twin, the page and the text summary.

It is one dictionary, made only here. `view.js` and `twin.py` draw it; its "summary" is the text next to the picture. It
can be sent as it is (columns as bytes) or written as JSON (columns in base64, see `to_json`).

    columns    {name: {"type": "f4" | "i1" | "i2" | "i4", "data": little-endian bytes, or their base64}}
        x0 x1 y0 y1                   of every box: time, and lane heights from the top (see `boxes`)
        look lane kind                numbers into "looks", "lanes", "kinds"; kind -1 is a bubble, -2 a message that has
                                      arrived and is not yet used
        stage microbatch replica      of the box; -1 where it has none
        waited                        the box that it waited for last; -1: none
        need_starts needs             needs[need_starts[i] : need_starts[i + 1]] are the boxes that make box i's inputs
        path_starts path              the critical path of each timeline, as boxes
        held_starts held_times held_counts   activations held: one step curve per timeline and rank, in this order
    looks, lanes, headings, legend    as `Boxes` has them, as dictionaries; a legend entry is [name, look]
    kinds      [[spelling, meaning], …], as in "F", "forward"
    timelines  one each, from top to bottom: {"name", "measured", "summary", "peaks" (per rank), "ranks",
               "one_of" (what a held activation belongs to), "scale" (drawn time per tick), "length" (text),
               "ruler" (the top of its ruler, in lane heights),
               "stuck" (of a deadlock at its end: [rank, action, the rank that it waits for], …),
               "outputs" (of a deadlock: [box, the rank that its output is for], …), "measures"};
               a measure is one of the three bubbles, with its times (see `_measures`)
    by_stage   whether a box's number is its stage, or its slice of the row, and not its microbatch
    unit, length, height, lighter, slices, told, summary    (after a deadlock, time goes on for a while)
"""

import base64
import json
from dataclasses import replace

import numpy as np

from hybridlab.core.when.action import KINDS, MEANING
from hybridlab.core.when.critical_path import chain
from hybridlab.core.when.timeline import Timeline
from hybridlab.core.when.words import length_text, one_of
from hybridlab.predict.bytes.live import live
from hybridlab.show.paper.style import Look
from hybridlab.show.timelines.boxes import boxes, panels_of
from hybridlab.show.timelines.drawn import Boxes, Heading, Lane, shown
from hybridlab.show.timelines.needs import needs
from hybridlab.show.timelines.spans import is_measured

MEASURES = (  # property of a timeline, its short name, its definition
    ("bubble_fraction", "idle / total", "idle time over the time of all ranks from the first start to the last end"),
    ("bubble_overhead", "idle / ideal", "idle time over compute time; the lectures' bubble"),
    ("bubble_span", "idle / span", "idle time over span, of the rank with the longest span; zero-bubble papers"),
)
LATER = 2**62  # later than any tick
WAITING = 0.125  # of its length: how long the ranks of a deadlock are drawn while they wait
BOX_COLUMNS = ("x0", "x1", "y0", "y1", "look", "lane", "kind", "stage", "microbatch")


def picture(*timelines: Timeline) -> dict:
    """The picture of one timeline or several, as plain values and columns of bytes.

    raises  ValueError when there is nothing to draw
    """
    ordered = [one for panel in panels_of(timelines) for one in panel]
    drawn = boxes(*ordered, rulers=True)
    columns = {name: getattr(drawn, name) for name in BOX_COLUMNS}
    columns |= {"replica": _replicas(ordered, drawn)} | _causes(ordered, drawn) | _held(ordered, drawn)
    return {
        "columns": {name: _column(values) for name, values in columns.items()},
        "looks": [look._asdict() for look in drawn.looks],
        "lanes": [lane._asdict() for lane in drawn.lanes],
        "headings": [heading._asdict() for heading in drawn.headings],
        "legend": [[name, look._asdict()] for name, look in drawn.legend],
        "kinds": [[kind, MEANING[kind]] for kind in KINDS],
        "timelines": [_timeline(one, drawn, number) for number, one in enumerate(ordered)],
        "unit": drawn.unit,
        "length": drawn.length * (1 + WAITING * any("stuck" in one.origin for one in ordered)),
        "height": drawn.height,
        "lighter": drawn.lighter,
        "slices": drawn.slices,
        "by_stage": drawn.by_stage,
        "told": drawn.told,
        "summary": drawn.summary,
    }


def to_json(picture: dict) -> str:
    """A picture as JSON, its columns in base64."""
    return json.dumps(picture, default=lambda raw: base64.b64encode(raw).decode(), separators=(",", ":"))


def column(picture: dict, name: str) -> np.ndarray:
    """One column of a picture, which may have been read from JSON."""
    stored = picture["columns"][name]
    raw = base64.b64decode(stored["data"]) if isinstance(stored["data"], str) else stored["data"]
    return np.frombuffer(raw, f"<{stored['type']}")


def boxes_of(picture: dict) -> Boxes:
    """The boxes that a picture was made from, read back from it."""
    columns = {name: column(picture, name) for name in BOX_COLUMNS}
    lanes = tuple(Lane(**lane) for lane in picture["lanes"])
    timeline = np.array([lane.timeline for lane in lanes])[columns["lane"]]
    rulers = tuple(one["ruler"] for one in picture["timelines"])
    return Boxes(
        **columns,
        rank=np.array([lane.rank for lane in lanes])[columns["lane"]],
        looks=tuple(Look(**look) for look in picture["looks"]),
        lanes=lanes,
        headings=tuple(Heading(**heading) for heading in picture["headings"]),
        starts=tuple(np.searchsorted(timeline, np.arange(len(rulers) + 1)).tolist()),
        rulers=rulers,
        captions=tuple(one["summary"] for one in picture["timelines"]),
        told=tuple(picture["told"]),
        **{name: picture[name] for name in ("unit", "length", "height", "lighter", "slices")},
        scales=tuple(one["scale"] for one in picture["timelines"]),
    )


def _column(values):
    """A column in the fewest bytes that hold it."""
    values = np.asarray(values)
    kind = "f4"
    if values.dtype.kind in "iub":
        most = max(-int(values.min(initial=0)) - 1, int(values.max(initial=0)))
        kind = next(f"i{size}" for size in (1, 2, 4) if most < 2 ** (8 * size - 1))
    return {"type": kind, "data": values.astype(f"<{kind}").tobytes()}


def _replicas(timelines, drawn):
    """The model copy that each box belongs to; bubbles belong to none."""
    column = np.full(len(drawn), -1)
    for timeline, start in zip(timelines, drawn.starts):
        rows = timeline.schedule.rows
        column[start : start + len(rows)] = rows[:, 3]
    return column


def _causes(timelines, drawn):
    """The columns of dependencies: for each box, the boxes that make its inputs, and the box that it waited for."""
    waited, counts, needed, paths = np.full(len(drawn), -1), np.zeros(len(drawn), dtype=np.int64), [], []
    for timeline, start in zip(timelines, drawn.starts):
        flow, cause, taken = timeline.flow, timeline.waited_for, needs(timeline)
        rows = slice(start, start + len(flow.kind))
        mine = cause[flow.action_of]
        waited[rows] = np.where(mine >= 0, start + flow.first_row[mine], -1)
        counts[rows] = np.diff(taken.starts)
        needed.append(start + taken.values)
        paths.append(start + flow.first_row[chain(cause, timeline.end[timeline.typical])])
    return {
        "waited": waited,
        "need_starts": np.concatenate([[0], np.cumsum(counts)]),
        "needs": np.concatenate(needed),
        "path_starts": np.cumsum([0] + [len(one) for one in paths]),
        "path": np.concatenate(paths),
    }


def _held(timelines, drawn):
    """One step curve of activations held for every rank of every timeline, drawn as long as its boxes."""
    curves = []
    for timeline, scale in zip(timelines, drawn.scales):
        curves += [(times / timeline.tick * scale, counts) for times, counts in _curves(timeline)]
    times, counts = (np.concatenate(parts) for parts in zip(*curves))
    starts = np.cumsum([0] + [len(one) for one, _ in curves])
    return {"held_starts": starts, "held_times": times, "held_counts": counts.astype(np.int64)}


def _curves(timeline):
    """The memory of each rank over time; in a run that still goes on, an action without length has not ended."""
    if not timeline.origin.get("live"):
        return live(timeline)
    over = timeline.end > timeline.begin
    begin, end = (np.where(over, column, LATER) for column in (timeline.begin, timeline.end))
    curves = live(replace(timeline, begin=begin, end=end))
    return [(times[known], counts[known]) for times, counts in curves for known in [times < LATER * timeline.tick]]


def _timeline(timeline, drawn, number):
    """The texts and numbers of one timeline, in addition to its boxes."""
    scale = drawn.scales[number]
    return {
        "name": timeline.schedule.name,
        "measured": is_measured(timeline),
        "summary": drawn.captions[number],
        "ranks": timeline.schedule.ranks,
        "one_of": one_of(timeline.schedule),
        "peaks": timeline.peak_live,
        "length": length_text(timeline.length, timeline.unit),
        "scale": scale,
        "ruler": drawn.rulers[number],
        "stuck": timeline.origin.get("stuck", []),
        "outputs": _outputs(timeline, drawn.starts[number]) if "stuck" in timeline.origin else [],
        "measures": _measures(timeline, scale / timeline.tick),
    }


def _outputs(timeline, start):
    """[box, rank] for every output that leaves its rank: the box that makes it, and the rank that it is for."""
    flow = timeline.flow
    rows, edges, down = flow.crossing()
    rank = flow.home[flow.edges[edges, down.astype(int)], flow.owner[flow.microbatch[rows]]]
    return [[start + row, to] for row, to in sorted(zip(rows.tolist(), rank.tolist()))]


def _measures(timeline, scale):
    """The three bubbles: {"key", "name", "told", "value", "text"}, and their times, in drawn time.

    rank   the rank of the measure; -1: the mean over all
    begin, busy_end, end  compute time from begin to busy_end, idle time from there to end
    whole  the end of the time by which idle time is divided: `end`, or `busy_end`
    """
    length, busy, to = timeline.length, float(np.mean(timeline.busy)), 1e3 if timeline.unit == "s" else 1
    rank, begin, end = _longest_span(timeline)
    bubbles = ((-1, 0.0, busy, length), (-1, 0.0, busy, length), (rank, begin, begin + timeline.busy[rank], end))
    measures = []
    for (key, name, told), (who, first, busy_end, last) in zip(MEASURES, bubbles):
        value = getattr(timeline, key)
        whole = busy_end if key == "bubble_overhead" else last
        per_rank = f"rank {who}" if who >= 0 else "per rank"
        what = name.partition(" / ")[2]
        idle, compared = (shown(time * to) for time in (last - busy_end, whole - first))
        text = f"{per_rank}: idle {idle} / {what} {compared} = {value:.1%}"
        drawn = {"begin": first * scale, "busy_end": busy_end * scale, "end": last * scale, "whole": whole * scale}
        measures.append({"key": key, "name": name, "told": told, "value": f"{value:.1%}", "text": text, "rank": who}
                        | drawn)  # fmt: skip
    return measures


def _longest_span(timeline):
    """(rank, begin, end) of the rank with the longest time from first to last compute action, as in `bubble_span`."""
    flow, step, spans = timeline.flow, timeline.typical, []
    for rank, (a, b) in enumerate(zip(flow.program, flow.program[1:])):
        own = np.flatnonzero(timeline.lane[a:b] == 0) + a
        begin, end = timeline.begin[step, own].min(initial=2**62), timeline.end[step, own].max(initial=0)
        spans.append((max(int(end - begin), 0), rank, int(begin), int(end)))
    length, rank, begin, end = max(spans)
    return (rank, begin * timeline.tick, end * timeline.tick) if length else (0, 0.0, 0.0)
