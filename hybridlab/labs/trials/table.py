"""A table of results: a heading, and rows of text; in a terminal, a line for each row."""

import html
from dataclasses import dataclass

from hybridlab.labs.rows import as_html


@dataclass(frozen=True)
class Table:
    """Rows under a heading; `note` is below them.

    >>> Table(("rank", "sends"), (("0", "648"), ("1", "648")), "words")
    rank 0: sends 648
    rank 1: sends 648
    words
    """

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __repr__(self):
        first, *others = self.heading
        lines = [
            f"{first} {row[0]}: " + ", ".join(f"{name} {cell}" for name, cell in zip(others, row[1:]) if cell)
            for row in self.rows
        ]
        return "\n".join([*lines, self.note] if self.note else lines)

    def _repr_html_(self):
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return as_html(self.heading, self.rows) + note
