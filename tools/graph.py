"""Draw the prerequisites of the notebooks: one box per notebook, a column per family. An arrow leads from one that is
directly above; others are numbers in the box, since lines to other columns hide one another.
"""

from html import escape

from hybridlab.show.paper.sheet import sheet
from hybridlab.show.paper.style import BLACK, STYLE
from tools.course import Book

FAMILIES = {"0": "start", "1": "pipelines", "2": "data parallelism", "3": "inside a layer", "4": "all together"}
FILLS = dict(zip(FAMILIES, ("#F0F0F0", "#D6E9F5", "#FBEFD2", "#EBDCE5", "#D5EEE5")))  # tints of the pictures' colours
WIDTH, HEIGHT, ACROSS, DOWN, TOP, LEFT = 192, 50, 200, 68, 44, 8
NAME, MORE = 15, 13  # pixels: the letters of a name, and of the line above it


def arrows(books: dict[str, Book]) -> list[tuple[str, str]]:
    """(needed, notebook) for every prerequisite that does not follow from another one."""
    behind = {}  # everything that a notebook builds on, directly or indirectly
    for name, book in books.items():
        behind[name] = set(book.needs).union(*(behind[one] for one in book.needs))
    return [
        (one, name)
        for name, book in books.items()
        for one in book.needs
        if not any(one in behind[other] for other in book.needs)
    ]


def family(name: str) -> str:
    """The column of a notebook: its first digit; the capstone is in the column of the hybrids."""
    return min(name[0], max(FAMILIES))


def rows(books: dict[str, Book]) -> dict[str, int]:
    """The row of each notebook: below all that it needs, and below its family's earlier notebooks."""
    row, last = {}, {}
    for name, book in books.items():
        row[name] = max([row[one] for one in book.needs] + [last.get(family(name), -1)], default=-1) + 1
        last[family(name)] = row[name]
    return row


def told(books: dict[str, Book]) -> str:
    """The picture in words, as its alternative text."""
    builds = {}
    for one, name in arrows(books):
        builds.setdefault(name, []).append(one[:2])
    first = [book.number for name, book in books.items() if name not in builds]
    rest = [f"{name[:2]} on {' and '.join(needed)}" for name, needed in builds.items()]
    return f"{' and '.join(first)} needs nothing; {', '.join(rest)}"


def svg(books: dict[str, Book]) -> str:
    """The picture as SVG; the same notebooks give the same text."""
    row = rows(books)
    columns = {one: place for place, one in enumerate(sorted({family(name) for name in books}))}
    at = {name: (LEFT + ACROSS * columns[family(name)], TOP + DOWN * row[name]) for name in books}
    width, height = LEFT + ACROSS * len(columns), TOP + DOWN * (max(row.values()) + 1)
    lines = [
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{STYLE["muted"]}"/></marker></defs>',
    ]
    heading = f'y="26" font-size="{NAME}" text-anchor="middle" fill="{STYLE["muted"]}"'
    for one, place in columns.items():
        lines.append(f'<text x="{LEFT + ACROSS * place + WIDTH / 2:g}" {heading}>{FAMILIES[one]}</text>')
    needed = arrows(books)
    above = {(one, name) for one, name in needed if family(one) == family(name) and row[one] + 1 == row[name]}
    lines += [_arrow(*at[one]) for one, _ in sorted(above)]
    for name, (x, y) in at.items():
        elsewhere = sorted(one[:2] for one, other in needed if other == name and (one, name) not in above)
        lines += _box(books[name], x, y, FILLS[family(name)], elsewhere)
    return sheet(width, height, "What builds on what", told(books), lines)


def _arrow(x, y):
    """From the box at this place to the one below it."""
    pen = f'stroke="{STYLE["muted"]}" stroke-width="1.6" marker-end="url(#tip)"'
    return f'<path d="M{x + WIDTH / 2:g} {y + HEIGHT}v{DOWN - HEIGHT}" {pen}/>'


def _box(book, x, y, fill, elsewhere):
    more = f", after {', '.join(elsewhere)}" if elsewhere else ""
    return [
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{fill}" stroke="{STYLE["muted"]}"/>',
        f'<text x="{x + 6}" y="{y + 20}" font-size="{MORE}" fill="{BLACK}">'
        f'<tspan font-weight="bold" font-size="{NAME}">{book.number}</tspan> {book.core} min{more}</text>',
        f'<text x="{x + 6}" y="{y + 41}" font-size="{NAME}" fill="{BLACK}">{escape(book.short)}</text>',
    ]
