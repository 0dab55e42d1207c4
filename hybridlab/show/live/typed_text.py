"""A schedule typed by a student, with the location of an error in the text.

`Schedule.from_csv` and `validate` find the error; this file finds its place and does not parse the text again.
"""

import re
from typing import NamedTuple

from hybridlab.core.when.play import Stuck
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.validate import Invalid, validate

_CELL = re.compile(r"\([^()]*\)\w*|[,;\t]|[^\s,;\"']+")
_NAME = re.compile(r"""\s*["']?rank\s*[0-9]+\b["']?\s*[:,;\t]?""", re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|(?<=[\s,;]))#(?!\d).*")
_SPOT = re.compile(r"line (\d+)(?:, cell (\d+))?")


class Cell(NamedTuple):
    """One action of a typed text: its line and cell, counted from 1 as messages count them, and its characters."""

    line: int
    cell: int
    begin: int
    end: int
    text: str


def parsed(text: str, name: str = "mine") -> tuple[Schedule | None, dict]:
    """(the schedule, {}), or (None, its fault): {"text": one sentence, "begin", "end": the characters at fault}.

    A schedule with a deadlock comes with its fault. If the location is unknown, begin and end are 0. A text without any
    action is not an error: (None, {}).

    >>> parsed("0F0 0B0\\n1F0 1Q0")[1]
    {'text': "line 2, cell 2: '1Q0' is not an action: ...", 'begin': 12, 'end': 15}
    """
    if not cells(text):
        return None, {}
    made = None
    try:
        made = Schedule.from_csv(_as_text(text), name)
        return validate(made), {}
    except ValueError as error:
        begin, end = _spot(text, error)
        return made if isinstance(error, Stuck) else None, {"text": _sentence(error), "begin": begin, "end": end}


def cells(text: str) -> list[Cell]:
    """Every action of a text with a line per rank, in its order."""
    found, at = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        said = _COMMENT.sub("", line)
        name = _NAME.match(said)
        borders = words = 0
        for token in _CELL.finditer(said, name.end() if name else 0):
            if token[0] in ",;\t":
                borders += 1
                continue
            found.append(Cell(number, max(borders, words) + 1, at + token.start(), at + token.end(), token[0]))
            words += 1
        at += len(line) + 1
    return found


def _as_text(text):
    """The text with a line break: `from_csv` would take a single line that ends in .csv as a path."""
    return text if "\n" in text else text + "\n"


def _sentence(error):
    """The first line of an error; for a deadlock, also the action that the first rank waits for."""
    lines = str(error).split("\n")
    return f"{lines[0]}; {lines[1].strip()}" if isinstance(error, Stuck) else lines[0]


def _spot(text, error):
    """The first and last character of the text that an error is about."""
    typed = cells(text)
    if isinstance(error, Invalid):
        return _of_row(typed, error.row)
    if isinstance(error, Stuck):
        rank, (action, _) = next(iter(error.waiting.items()))
        lines = sorted({cell.line for cell in typed})
        mine = [cell for cell in typed if rank < len(lines) and cell.line == lines[rank] and cell.text == action]
        return (mine[0].begin, mine[0].end) if mine else (0, 0)
    said = _SPOT.match(str(error))
    line, number = (int(group or 0) for group in said.groups()) if said else (0, 0)
    mine = [cell for cell in typed if cell.line == line and number in (0, cell.cell)]
    return (mine[0].begin, mine[-1].end) if mine else (0, 0)


def _of_row(typed, row):
    """The cell of one row of the schedule; a fused pair is one cell and two rows."""
    rows = [cell for cell in typed for _ in range(2 if cell.text.startswith("(") else 1)]
    return (rows[row].begin, rows[row].end) if row < len(rows) else (0, 0)
