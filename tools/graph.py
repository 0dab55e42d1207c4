"""Draw the prerequisites of the notebooks: one box per notebook, a column per family, an arrow per prerequisite."""

from html import escape

from hybridlab.show.paper.style import STYLE
from tools.course import Book

FAMILIES = {"0": "start", "1": "pipelines", "2": "data parallelism", "3": "inside a layer", "4": "all together"}
FILLS = dict(zip(FAMILIES, ("#F0F0F0", "#D6E9F5", "#FBEFD2", "#EBDCE5", "#D5EEE5")))  # tints of the pictures' colours
WIDTH, HEIGHT, ACROSS, DOWN, TOP, LEFT = 198, 44, 234, 64, 40, 26


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
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="100%"'
        f' style="max-width:{width}px;height:auto"'
        f' font-family="{escape(STYLE["font"])}" fill="{STYLE["ink"]}">',
        f"<title>What builds on what</title>\n<desc>{escape(told(books))}</desc>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{STYLE["muted"]}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="6" fill="{STYLE["paper"]}"/>',
    ]
    heading = f'y="24" font-size="15" text-anchor="middle" fill="{STYLE["muted"]}"'
    for one, place in columns.items():
        lines.append(f'<text x="{LEFT + ACROSS * place + WIDTH / 2:g}" {heading}>{FAMILIES[one]}</text>')
    style = f'fill="none" stroke="{STYLE["muted"]}" stroke-width="1.4" marker-end="url(#tip)"'
    lines += [f'<path d="{_path(at[one], at[name])}" {style}/>' for one, name in arrows(books)]
    for name, (x, y) in at.items():
        lines += _box(books[name], x, y, FILLS[family(name)])
    return "\n".join(lines) + "\n</svg>\n"


def _path(source, target):
    """Straight down to the next box; around others in the same column on the left; to another column between boxes."""
    (x, y), (to_x, to_y) = source, target
    middle, start, end = to_x + WIDTH / 2, y + HEIGHT / 2, to_y + HEIGHT / 2
    if x == to_x and to_y - y == DOWN:
        return f"M{middle:g} {y + HEIGHT}V{to_y}"
    if x == to_x:
        return f"M{x} {start:g}C{x - 21} {start:g} {x - 21} {end:g} {x} {end:g}"
    aside, above = x + WIDTH + 9, to_y - 11  # in the gap to the right of the column, and in the gap above the row
    return f"M{x + WIDTH} {start:g}H{aside - 6}q6 0 6 6V{above - 6}q0 6 6 6H{middle - 6:g}q6 0 6 6V{to_y}"


def _box(book, x, y, fill):
    return [
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{fill}" stroke="{STYLE["muted"]}"/>',
        f'<text x="{x + 8}" y="{y + 19}" font-size="13"><tspan font-weight="bold">{book.number}</tspan>'
        f" {escape(book.short)}</text>",
        f'<text x="{x + 8}" y="{y + 36}" font-size="12" fill="{STYLE["muted"]}">{book.core} min</text>',
    ]
