"""The picture of tracks: a rank's compute, and below it its messages, with one lane for each axis of its grid.

Matmuls are blue in the forward, orange for gradients of inputs, wine for gradients of weights; green bars are messages.
Grey is time without a matmul. A measured row is below its prediction, and lighter.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hybridlab.predict.time.overlap import Piece, exposed, length
from hybridlab.show.paper.sheet import words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, look
from hybridlab.show.timelines.lanes import PX, Lanes, box, labelled, on_lanes, on_paper

LEFT, TOP = 112, 56
HEADING, COMPUTE, SENT, AFTER = 32, 32, 20, 20  # heights in pixels


class Telling(NamedTuple):
    """The kinds of work on a picture's tracks, with their looks and names.

    kinds   {prefix of a piece's name: its look};  legend  pairs (look, name), shown above the rows
    lane    the name of the compute lane;  bare  the name for the time in which the rank does not compute
    spelt   what the letters in boxes stand for
    """

    kinds: dict[str, str]
    legend: tuple[tuple[str, str], ...]
    lane: str = "products"
    bare: str = "without a matmul"
    spelt: str = ""


PRODUCTS = Telling(
    {"Y": "F", "dX": "I", "dW": "W"},
    (
        ("F", "Y = X·Wᵀ"),
        ("I", "dX"),
        ("W", "dW"),
        ("message", "message; a number is a layer"),
        ("bubble", "no matmul"),
    ),
    spelt="AG all-gather, RS reduce-scatter, AR all-reduce",
)


class Row(NamedTuple):
    """One rank's row in a step, predicted or measured; times in seconds, from the beginning of the step.

    name      label of the row
    pieces    from left to right
    measured  whether it was measured; otherwise it is predicted
    """

    name: str
    pieces: Sequence[Piece]
    measured: bool = False


def tracks(*rows: Row, title: str = "Matmuls and messages of a rank", telling: Telling = PRODUCTS) -> Still:
    """The picture of rows, one below another, on one time axis in milliseconds.

    rows     from top to bottom
    title    above the picture
    telling  colours and words for each kind of piece

    raises  ValueError if no row has a piece

    >>> one = [Piece("compute", "dX 0", 0.0, 0.002), Piece("outer", "AR dX 0", 0.002, 0.003),
    ...        Piece("compute", "dW 0", 0.002, 0.004)]
    >>> tracks(Row("overlapped, predicted", one))
    <picture overlapped, predicted: 4.0 ms, of which 0.0 ms without a matmul; messages 1.0 ms
    AG all-gather, RS reduce-scatter, AR all-reduce>
    """
    if not any(row.pieces for row in rows):
        raise ValueError("no row has a piece of work or a message: give at least one")
    lanes = list(dict.fromkeys(one.track for row in rows for one in row.pieces if one.track != "compute"))
    placed = [{lane: beside(one for one in row.pieces if one.track == lane) for lane in lanes} for row in rows]
    total = 1e3 * max(length(row.pieces) for row in rows)
    on, drawn, y = Lanes(LEFT, TOP, TOP + sum(map(_height, placed)), total), [], TOP
    for row, its in zip(rows, placed):
        drawn += _row(row, its, y, on.at, telling)
        y += _height(its)
    told = [*(in_words(row, telling) for row in rows), *([telling.spelt] if telling.spelt else [])]
    return on_lanes(on, title, telling.legend, told, drawn)


def in_words(row: Row, telling: Telling = PRODUCTS) -> str:
    """A row in words: the length of the step, its part without a matmul, and the total length of all messages."""
    sent = sum(one.end - one.begin for one in row.pieces if one.track != "compute")
    whole, bare = 1e3 * length(row.pieces), 1e3 * exposed(row.pieces)
    return f"{row.name}: {whole:.1f} ms, of which {bare:.1f} ms {telling.bare}; messages {1e3 * sent:.1f} ms"


def beside(pieces: Iterable[Piece]) -> list[tuple[Piece, int]]:
    """Each message with its line: 0, or a lower one while earlier messages are still under way.

    >>> [line for _, line in beside([Piece("z", "AG 0", 0, 3), Piece("z", "AG 1", 1, 2), Piece("z", "AG 2", 2, 4)])]
    [0, 1, 1]
    """
    ends, found = [], []
    for one in sorted(pieces, key=lambda one: one.begin):
        line = next((number for number, end in enumerate(ends) if end <= one.begin), len(ends))
        ends[line : line + 1] = [one.end]
        found.append((one, line))
    return found


def _height(placed) -> int:
    """The height of a row with these lanes, in pixels."""
    return HEADING + COMPUTE + 6 + sum(map(_tall, placed.values())) + AFTER


def _tall(its) -> int:
    """The height of a lane, in pixels."""
    return SENT * max([1, *(line + 1 for _, line in its)]) + 4


def _row(row, placed, top, at, telling):
    """The heading, the matmuls over grey, and a lane of messages for each axis."""
    y = top + HEADING
    yield on_paper(LEFT, y - 10, row.name, weight="600")
    yield words(LEFT - 10, y + 21, telling.lane, PX["axis"], "end")
    yield box(at(0), y, at(length(row.pieces)) - at(0), COMPUTE, look("bubble"))
    for one in row.pieces:
        if one.track == "compute":
            its = look(telling.kinds[one.name.split()[0]], measured=row.measured)
            yield from labelled(at(one.begin), y, at(one.end), COMPUTE, its, one.name)
    y += COMPUTE + 6
    for lane, its in placed.items():
        yield words(LEFT - 10, y + 15, f"along {lane}", PX["axis"], "end", fill=STYLE["muted"])
        for one, line in its:
            fill = look("message", measured=row.measured)
            yield from labelled(at(one.begin), y + SENT * line, at(one.end), SENT - 2, fill, one.name)
        y += _tall(its)
