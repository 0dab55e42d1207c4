"""Lines of a text that state what the actions of a schedule do not say: slices, pieces, and edges between stages.

    slices=2
    skips=0>2 1>3
    breaks=1>2
    0F0,1F0,1B0,0B0
    2F0,3F0,3B0,2B0

They come before the first rank, one fact in a line, with the names that `Schedule` uses. A chain of stages needs none
of them. Relatives: `inferred`, facts that follow from the actions; `exchange`, which writes and reads the text.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridlab.core.when.schedule import Schedule

NUMBERS = {"slices": 1, "pieces": 0}  # with their usual values
EDGES = {"skips": ">", "breaks": ">", "exchanges": ">", "tied": "+"}  # with the sign between two stages
_FACT = re.compile(rf"\s*(chunks|{'|'.join([*NUMBERS, *EDGES])})\s*=\s*(.*?)[\s,;]*")
_GROUP = re.compile(r"[0-9]{1,9}(?:[>+][0-9]{1,9})+")


def lines_of(schedule: "Schedule") -> str:
    """The lines of a schedule; none for a chain of stages.

    >>> from hybridlab.core.when.schedule import Schedule
    >>> print(lines_of(Schedule.from_csv("breaks=0>1\\n0F0,0B0\\n1F0,1B0")), end="")
    chunks=1
    breaks=0>1
    """
    numbers = {name: getattr(schedule, name) for name, usual in NUMBERS.items() if getattr(schedule, name) != usual}
    edges = {name: getattr(schedule, name) for name in EDGES if getattr(schedule, name)}
    if not numbers and not edges:
        return ""
    texts = {"chunks": schedule.chunks} | numbers
    texts |= {name: " ".join(EDGES[name].join(map(str, group)) for group in groups) for name, groups in edges.items()}
    return "".join(f"{name}={text}\n" for name, text in texts.items())


def first_of(lines: Iterable[tuple[int, str]]) -> tuple[dict, Iterator[tuple[int, str]]]:
    """({fact: (the number of its line, its value)}, the other lines) of numbered lines.

    raises  ValueError for a line whose value cannot be read
    """
    found, lines = {}, iter(lines)
    for number, line in lines:
        fact = _FACT.fullmatch(line)
        if line.strip() and not fact:
            return found, chain([(number, line)], lines)
        if fact:
            found[fact[1]] = number, _value(number, *fact.groups())
    return found, lines


def _value(number: int, name: str, text: str):
    """A number, or the groups of stages as lists."""
    words = text.split()
    if name not in EDGES and len(words) == 1 and re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    if name in EDGES and words and all(map(_GROUP.fullmatch, words)):
        return [list(map(int, re.split("[>+]", word))) for word in words]
    stages = " ".join(f"{one}{EDGES.get(name)}{one + 2}" for one in (0, 1))
    example = f"stages such as {stages}" if name in EDGES else "a whole number"
    raise ValueError(f"line {number}: {name}={text!r} cannot be read: give {example}")
