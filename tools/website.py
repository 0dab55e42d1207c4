"""Build the course as a static site: any host can serve it, it opens from disk, and no page loads from another machine.

python -m tools.website    into build/site

index.html             where to begin: every notebook with its goal
notebooks/NAME.html    a notebook to read, with its contents next to it; NAME.ipynb, not run, to take along
slides/NAME.html       the same from the front of a room
api/                   the reference of the package, from its signatures and docstrings
docs/, README.html, …  the pages of the repository;  explorer.html  the live timelines
calculator.html        the memory of a GPU and the time of a step, for divisions that a reader chooses
"""

import pathlib
import re
import shutil
from html import escape, unescape

from nbformat.v4 import new_output

import hybridlab as hl
from hybridlab.labs.copies import fresh
from hybridlab.show.live import page as explorer
from tools import reference, sheet
from tools.course import FOLDER, HOUSE, Book, books

WRITTEN = ("*.md", "notebooks/README.md", "examples/README.md", "docs/**/*.md", "results/**/*.md")  # patterns of pages
TAKEN = ("docs", "examples", "bench", "results")  # folders whose other files are copied
FAMILIES = {"0": "Begin", "1": "Pipelines", "2": "Data parallelism", "3": "Inside a layer", "4": "All together"}
ABOVE = {  # the bar: name, page
    "hybridlab": "index.html",
    "Course": "notebooks/README.html",
    "Live timelines": "explorer.html",
    "Calculator": "calculator.html",
    "Slide by slide": "docs/slides.html",
    "Reference": "api/index.html",
    "Glossary": "docs/glossary.html",
}
LINK = re.compile(r'(href=")(?!https?:)([^"#]*)(#[^"]*)?(")')
HEADING = re.compile(r'<h([12]) id="([^"]*)">(.*?)<a class="anchor-link"', re.DOTALL)
DARK = "github-dark"  # pygments' style for code on a dark ground
STORED = (
    '<p class="stored">This page shows stored results: timelines move here, and a picture whose buttons need Python '
    "shows some of its states. To press those buttons and to solve the exercises, run the notebook.</p>"
)
THEME = '<button id="theme" type="button" aria-label="light or dark">◐</button>'


def build(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write the site into a new folder; the files that were written."""
    for name in TAKEN:
        hidden = shutil.ignore_patterns(".*", "*.md", "*.toml", "__pycache__")
        shutil.copytree(HOUSE / name, folder / name, ignore=hidden)
    for name, book in books().items():
        _write(folder / "notebooks" / f"{name}.html", notebook(book))
        _write(folder / "notebooks" / f"{name}.ipynb", fresh(FOLDER / f"{name}.ipynb"))
        _write(folder / "slides" / f"{name}.html", _linked(sheet.slides(book.plain, book.cells), "../notebooks/"))
    for path in (str(path.relative_to(HOUSE)) for pattern in WRITTEN for path in sorted(HOUSE.glob(pattern))):
        source = (HOUSE / path).read_text(encoding="utf-8")
        title = source.partition("\n")[0].removeprefix("# ")
        _write((folder / path).with_suffix(".html"), frame(title, sheet.text(source), path.count("/")))
    for one in reference.pages():
        _write(folder / "api" / one.file, frame(one.title, one.body, 1, one.beside))
    for name in ("LICENSE", "notebooks/LICENSE"):
        shutil.copyfile(HOUSE / name, folder / name)
    explorer.write(folder / "explorer.html")
    _write(folder / "calculator.html", frame("Calculator", calculator(), 0))
    _write(folder / "index.html", frame("hybridlab", index(), 0))
    return sorted(path for path in folder.rglob("*") if path.is_file())


def notebook(book: Book) -> str:
    """The page of one notebook."""
    body = "\n".join(part for cell in book.cells for part in sheet.parts(cell, live=True))
    body = body.replace("</h1>", f"</h1>\n{STORED}", 1)
    places = f'<a href="{book.name}.ipynb" download>Notebook</a> · <a href="../slides/{book.name}.html">Slides</a>'
    return frame(book.plain, body, 1, f'<p class="take">{places}</p>{_contents(body)}', _neighbours(book))


def index() -> str:
    """The first page: a description of the course, and a card for each notebook."""
    cards = []
    for digit, family in FAMILIES.items():
        inside = "".join(_card(book) for book in books().values() if min(book.number[0], max(FAMILIES)) == digit)
        cards.append(f'<h2>{family}</h2>\n<div class="cards">{inside}</div>')
    return (
        '<h1>hybridlab</h1><p class="lead">One model, many processes. Each way to divide the work is explained, '
        "predicted, run on real processes, drawn with its measurement, and checked against one device.</p>"
        '<p class="doors"><a href="notebooks/00_start.html">Begin</a><a href="explorer.html">Try schedules</a>'
        '<a href="calculator.html">Size a run</a>'
        '<a href="README.html">Install</a><a href="notebooks/README.html">Routes</a>'
        '<a href="api/index.html">Reference</a></p>'
        '<div class="out"><img src="docs/moving.svg" alt="1F1B on four ranks with eight microbatches, animated"></div>'
        f"{''.join(cards)}"
    )


def calculator() -> str:
    """The page on which a reader sizes a run; without a program, it shows one division."""
    shown = hl.pictures.calculator()
    stored = new_output("display_data", {"image/svg+xml": shown.twin, "text/plain": shown.summary})
    return (
        "<h1>Calculator</h1><p>Choose a model, a machine and a division: the bars show the memory of a GPU, and the "
        'parts of a step. The formulas are those of <a href="notebooks/41_choosing.html">notebook 41</a>; '
        "<code>hl.plan</code> evaluates every division. Each stage has one chunk, and with <i>t</i> &gt; 1 the "
        "sequence is sharded too.</p>"
        f"{sheet.alive(shown.as_json, sheet.output(stored))}"
    )


def _card(book: Book) -> str:
    further = f" + {book.further}" if book.further else ""
    return (
        f'<a class="card" href="notebooks/{book.name}.html"><b>{book.number} · {escape(book.short)}</b>'
        f"<span>{sheet.text(book.goal)}</span><small>{book.core}{further} min · {len(book.tasks)} exercises</small></a>"
    )


def _contents(body: str) -> str:
    """The headings of a page, as a list of links."""
    title, *rest = HEADING.findall(body)
    plain = ((level, name, unescape(words).partition("★")[0].strip()) for level, name, words in rest)
    rows = (f'<li class="h{level}"><a href="#{name}">{words}</a></li>' for level, name, words in plain)
    return f"<nav><ul>{''.join(rows)}</ul></nav>"


def _neighbours(book: Book) -> str:
    every = list(books())
    place = every.index(book.name)
    before, after = every[place - 1] if place else None, every[place + 1] if place + 1 < len(every) else None
    back = before and f'<a href="{before}.html">← {escape(books()[before].plain)}</a>'
    on = after and f'<a href="{after}.html">{escape(books()[after].plain)} →</a>'
    return f'<p class="neighbours"><span>{back or ""}</span><span>{on or ""}</span></p>'


def frame(title: str, body: str, depth: int, beside: str = "", below: str = "") -> str:
    """A page of the site: the bar above, the text, the contents next to it, the foot. `depth` folders below the
    index."""
    up = "../" * depth
    bar = "".join(f'<a href="{up}{where}">{name}</a>' for name, where in ABOVE.items())
    aside = f"<aside>{beside}</aside>" if beside else ""
    text = f'<div class="sheet">{aside}<main>{body}{below}</main></div>\n<p class="foot">{sheet.LICENCE}</p>'
    whole = f"<script>{sheet.look('site.js')}</script>\n<header>{bar}{THEME}</header>\n{text}"
    style = sheet.colours(":root[data-theme=dark] .code", DARK) + sheet.look("site.css")
    return _linked(sheet.page(title, whole, style))


def _linked(html: str, notebooks: str = "") -> str:
    """Links between sources as links between pages; anchors in lower case, as pages of markdown have them elsewhere.

    >>> _linked('<a href="../docs/glossary.md#Words">')
    '<a href="../docs/glossary.html#words">'
    """

    def link(found):
        before, path, anchor, after = found.groups()
        if path.endswith(".md"):
            path = path.removesuffix(".md") + ".html"
        elif path.endswith(".html") and path.removesuffix(".html") in books():
            path = notebooks + path
        elif path.endswith(".ipynb") and "download" not in html[found.end() : found.end() + 10]:
            path = path.removesuffix(".ipynb") + ".html"
        anchor = (anchor or "").lower().replace("%27", "'")  # as the name of a heading has it
        return f"{before}{path}{anchor}{after}"

    html = re.sub(r'(<h\d id=")([^"]*)"', lambda found: f'{found[1]}{found[2].lower()}"', html)
    return LINK.sub(link, html)


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main():
    folder = HOUSE / "build" / "site"
    shutil.rmtree(folder, ignore_errors=True)
    files = build(folder)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{len(files)} files, {size:.0f} MB: open {folder / 'index.html'}, or serve the folder")


if __name__ == "__main__":
    main()
