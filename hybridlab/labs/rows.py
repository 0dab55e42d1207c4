"""Tables for notebooks, to replace a loop that prints lines."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hybridlab.core.when.timeline import Timeline

GAP = "  "


@dataclass(frozen=True)
class Table:
    """Rows under their heads: columns of text in a terminal, an HTML table in a notebook."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __repr__(self):
        lines = [self.heads, *self.rows]
        wide = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join(GAP.join(map(str.ljust, line, wide)).rstrip() for line in lines)

    def _repr_html_(self):
        return as_html(self.heads, self.rows)


def as_html(heads, rows) -> str:
    """A table of text as HTML, as in every table of a notebook.

    >>> as_html(("a",), [("<b>",)])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    line = lambda cells, tag: "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{line(heads, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def table(heads: str | Sequence[str], rows: Iterable[Sequence]) -> Table:
    """The rows, each with one entry for each head; heads are separated by bars, or a sequence.

    Integers are grouped by thousands; other numbers are written with four digits.

    raises  ValueError if a row has more or fewer entries than there are heads

    >>> table("schedule | held", [("gpipe", 8), ("1f1b", 4)])
    schedule  held
    gpipe     8
    1f1b      4
    >>> table(("ranks", "messages", "MB"), [(2, 2, 12.0), (1024, 2046, 23.9765625)])
    ranks  messages  MB
    2      2         12
    1,024  2,046     23.98
    """
    heads = heads.split("|") if isinstance(heads, str) else heads
    names = tuple(head.strip() for head in heads)
    lines = tuple(tuple(map(_written, row)) for row in rows)
    for line in lines:
        if len(line) != len(names):
            raise ValueError(
                f"{len(names)} column headings, but {len(line)} entries in {line}: give one entry for each"
            )
    return Table(names, lines)


def timelines(named: dict[str, Timeline]) -> Table:
    """Simulated timelines by name: the length in the units of their costs, both bubbles, and the activations held.

    >>> import hybridlab as hl
    >>> timelines({f"m = {m}": hl.simulate(hl.schedule("gpipe", ranks=2, microbatches=m)) for m in (1, 2)})
           length   idle / total  idle / ideal  activations held, by rank
    m = 1  6 units  50.0%         100.0%        1 1
    m = 2  9 units  33.3%         50.0%         2 2
    """
    heads = "| length | idle / total | idle / ideal | activations held, by rank"
    return table(heads, [(name, *_of_one(one)) for name, one in named.items()])


def _of_one(t):
    held = " ".join(map(str, t.peak_live))
    return f"{t.length:g} units", f"{t.bubble_fraction:.1%}", f"{t.bubble_overhead:.1%}", held


def _written(cell) -> str:
    """
    >>> [_written(cell) for cell in (2046, 23.9765625, "rank 0", True, (8, 16))]
    ['2,046', '23.98', 'rank 0', 'yes', '(8, 16)']
    """
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
