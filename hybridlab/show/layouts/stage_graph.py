"""A stage graph: the edges between stages, the ranks of the stages, and the edges that are messages.

Stages are in columns, by the number of stages before them on the longest path. A green arrow goes to another rank, a
grey one stays. Relatives: `core.when.schedule` (skips and breaks), `show.timelines` (the same stages in time).
"""

from collections.abc import Sequence
from itertools import pairwise

from hybridlab.core.when.schedule import Schedule
from hybridlab.show.paper.sheet import captioned, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE

WIDTH, LEFT, TOP = 960, 40, 40  # pixels of the sheet; the width is the least
BOX, TALL, ROW, APART = 116, 56, 84, (40, 96)  # pixels; two columns are so far apart, at least and at most
PX = STYLE["pixels"]
GREEN, GREY = STYLE["kinds"]["message"]["fill"], STYLE["muted"]


def stage_graph(schedule: Schedule, names: Sequence[str] = ()) -> Still:
    """The picture of a schedule's stages, of the first copy where there are several.

    names of the stages, next to their numbers

    >>> from hybridlab.scheduling.registry import schedule
    >>> stage_graph(schedule("subgraph", ranks=4, microbatches=1))
    <picture stage 0 (rank 0) → 1, 2; stage 1 (rank 1) → 3; stage 2 (rank 2) → 3; stage 3 (rank 3)>
    """
    edges = sorted(schedule.inside.values())
    places = _placed(schedule.stages, edges)
    ranks = [schedule.place[stage, 0] for stage in range(schedule.stages)]
    out = [_arrow(places, (a, b), ranks[a] != ranks[b]) for a, b in edges]
    for stage in range(schedule.stages):
        x, y = places[stage]
        name = names[stage] if names else f"stage {stage}"
        outline = f'fill="{STYLE["paper"]}" stroke="{STYLE["ink"]}" stroke-width="1.5"'
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{TALL}" rx="5" {outline}/>')
        out.append(words(x + BOX / 2, y + 24, name, PX["axis"], "middle", **{"font-weight": "600"}))
        told = f"stage {stage}, rank {ranks[stage]}" if names else f"rank {ranks[stage]}"
        out.append(words(x + BOX / 2, y + 44, told, PX["box"], "middle", fill=STYLE["muted"]))
    summary = _summary(edges, ranks, names)
    bottom = max(y for _, y in places.values()) + TALL + 34
    width = max(WIDTH, LEFT + BOX + max(x for x, _ in places.values()))
    fill = (WIDTH - 2 * LEFT) / (width - 2 * LEFT)  # as wide as a page, whatever the length of the graph
    return captioned(width, bottom, f"{schedule.name}: its stages", summary, out, LEFT, fill=fill)


def _placed(stages, edges) -> dict:
    """{stage, or (edge, column) where an edge goes through a column: (x, y) of the upper left corner of its place}.

    The order in a column is that of the mean height of each entry's sources.
    """
    before = [0] * stages
    for a, b in edges:
        before[b] = max(before[b], 1 + before[a])
    columns, takes = [[] for _ in range(1 + max(before))], {}
    for a, b in edges:
        way = [a, *(((a, b), column) for column in range(before[a] + 1, before[b])), b]
        for one, other in pairwise(way):
            takes.setdefault(other, []).append(one)
        for through in way[1:-1]:
            columns[through[1]].append(through)
    for stage, column in enumerate(before):
        columns[column].append(stage)
    room = (WIDTH - 2 * LEFT - BOX * len(columns)) / max(1, len(columns) - 1)
    apart = min(max(APART[0], room), APART[1])
    middle, places = TOP + ROW * (max(map(len, columns)) - 1) / 2, {}
    for number, column in enumerate(columns):
        height = lambda one: sum(places[source][1] for source in takes.get(one, ())) / max(1, len(takes.get(one, ())))
        for row, one in enumerate(sorted(column, key=lambda one: (height(one), str(one)))):
            places[one] = LEFT + number * (BOX + apart), middle + ROW * (row - (len(column) - 1) / 2)
    return places


def _arrow(places, edge, message) -> str:
    """An arrow from the right side of one box to the left side of another, through the places that are kept for it."""
    through = sorted(places[one] for one in places if isinstance(one, tuple) and one[0] == edge)
    way, (x, y) = "", places[edge[0]]
    for to_x, to_y in (*through, places[edge[1]]):
        bend = (to_x - x - BOX) / 2
        middle, to_middle = y + TALL / 2, to_y + TALL / 2
        way += f"{'L' if way else 'M'}{x + BOX:g} {middle:g}"
        way += f"C{x + BOX + bend:g} {middle:g} {to_x - bend:g} {to_middle:g} {to_x - 2:g} {to_middle:g}"
        x, y = to_x, to_y
    look = f'fill="none" stroke="{GREEN if message else GREY}" stroke-width="{3 if message else 2}"'
    return f'<path d="{way}m-9 -6l9 6l-9 6" {look}/>'


def _summary(edges, ranks, names) -> str:
    """Every stage with its rank, and the stages that take its output."""
    said = []
    for stage, rank in enumerate(ranks):
        to = ", ".join(str(b) for a, b in edges if a == stage)
        called = f"{names[stage]}, stage {stage}" if names else f"stage {stage}"
        said.append(f"{called} (rank {rank})" + f" → {to}" * bool(to))
    return "; ".join(said)
