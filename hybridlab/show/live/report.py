"""A report: one self-contained HTML file, which fetches nothing.

It contains plotly's program once. On paper, and where scripts do not run, each figure's static twin is shown.
"""

from html import escape
from pathlib import Path

from plotly.offline import get_plotlyjs

from hybridlab.core.files import put
from hybridlab.core.when.timeline import Timeline
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.draw import draw, without_caption


def _theme(name):
    theme = STYLE[name]
    return f"--ink: {theme['ink']}; --paper: {theme['edge']}; --line: {theme['grid']}; --soft: {theme['bubble']}"


CSS = f"""
:root {{ color-scheme: light dark; {_theme("light")} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_theme("dark")} }} }}
body {{ font: 17px/1.55 {STYLE["font"]}; color: var(--ink); background: var(--paper); margin: 0 auto; max-width: 1040px;
  padding: 2rem 1.5rem 4rem }}
h1 {{ font-size: 2rem; line-height: 1.2; margin: 0 0 1.5rem }}
h2 {{ font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line) }}
p {{ max-width: 44rem }}
figure {{ margin: 1.25rem 0; background: {STYLE["paper"]}; color: {STYLE["ink"]}; border: 1px solid var(--line);
  border-radius: 6px; padding: 6px; break-inside: avoid }}
figcaption {{ font-size: 15px; color: {STYLE["muted"]}; padding: 4px 12px 8px; white-space: pre-line }}
.twin {{ display: none }} .twin svg {{ display: block }}
.scroll {{ overflow-x: auto; margin: 1.25rem 0 }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; padding: .35rem .9rem; border-bottom: 1px solid var(--line) }}
th {{ background: var(--soft) }} td.number {{ text-align: right }}
@media print {{
  :root {{ {_theme("light")} }}
  body {{ max-width: none; padding: 0; font-size: 11pt }}
  .live, figcaption {{ display: none }} .twin {{ display: block }}
  h2, figure, tr {{ break-inside: avoid }} h2 {{ break-after: avoid }}
}}
"""
NO_SCRIPT = "<noscript><style>.live, figcaption { display: none } .twin { display: block }</style></noscript>"


def report(path, title: str, sections: list[tuple]) -> Path:
    """One self-contained HTML file at `path`; the path is returned.

    sections  (heading, text, things): empty lines separate paragraphs of text; a thing is a timeline, a figure of
              `draw` or `curves` (on paper its twin, which includes the caption), or a table: a list of rows
              {column: value}

    raises  ValueError for any other thing
    """
    numbers = iter(range(10**6))
    parts = [_section(heading, text, things, numbers) for heading, text, things in sections]
    live = any('class="live"' in part for part in parts)
    page = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{CSS}</style>{NO_SCRIPT}",
        f"<script>{get_plotlyjs()}</script>" if live else "",
        f"</head><body><main><h1>{escape(title)}</h1>",
        *parts,
        "</main></body></html>\n",
    ]
    put(path, "\n".join(page))
    return Path(path)


def _section(heading, text, things, numbers):
    paragraphs = [f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip()]
    shown = [_thing(thing, numbers) for thing in things]
    return "\n".join([f"<section><h2>{escape(heading)}</h2>", *paragraphs, *shown, "</section>"])


def _thing(thing, numbers):
    if isinstance(thing, Timeline):
        thing = draw(thing)
    if isinstance(thing, Figure):
        return _figure(thing, next(numbers))
    if isinstance(thing, list) and all(isinstance(row, dict) for row in thing):
        return _table(thing)
    raise ValueError(f"a report cannot show a {type(thing).__name__}: give a timeline, a figure, or a list of dicts")


def _figure(figure, number):
    options = {"full_html": False, "include_plotlyjs": False, "config": {"displaylogo": False}}
    html = without_caption(figure).to_html(div_id=f"figure-{number}", **options)
    return (
        f'<figure><div class="live">{html}</div><div class="twin">{figure.twin}</div>'
        f"<figcaption>{escape(figure.summary)}</figcaption></figure>"
    )


def _table(rows):
    """Columns in the order of their first appearance; numbers to the right."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    head = "".join(f'<th scope="col">{escape(str(column))}</th>' for column in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(column, "")) for column in columns) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value):
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{value if isinstance(value, int) else f"{value:.6g}"}</td>'
    return f"<td>{escape(str(value))}</td>"
