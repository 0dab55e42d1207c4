"""A notebook as one HTML file that opens from disk: a page to print, or slides. Nothing in it is fetched."""

import ast
import base64
import re
from functools import cache
from html import escape

from IPython.core.inputtransformer2 import TransformerManager
from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

import hybridlab as hl
from hybridlab.show.live import embedded
from hybridlab.show.paper.sheet import ROOT
from tools.course import HOUSE

LOOK = HOUSE / "tools" / "look"
LIVE = '<div class="hl-live">'  # around a stored picture that a program replaces
SIZE = re.compile(r'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)')  # of a picture: width, height
LIVE_CALLS = {  # what a cell calls, and what gives the data of the same picture
    "hl.explore": embedded.embedded,
    "hl.pictures.box_of_ranks": hl.pictures.box_of_ranks,
    "hl.pictures.bubble_formula": hl.pictures.bubble_formula,
    "hl.pictures.calculator": hl.pictures.calculator,
    "hl.pictures.cut_model": hl.pictures.cut_model,
    "hl.pictures.matmul_on_grid": hl.pictures.matmul_on_grid,
    "hl.pictures.ring_all_reduce": hl.pictures.ring_all_reduce,
}
LICENCE = "Text and figures: CC BY 4.0. Code: BSD 3-Clause. hybridlab contributors."
HELP = "→ or space: next · ←: back · ↓ ↑: scroll · n p: slide · a: all of it · + −: size · b: dark"


def look(name: str) -> str:
    return (LOOK / name).read_text(encoding="utf-8")


@cache
def _highlighter():
    return HtmlFormatter(style="default", nowrap=True)


def colours(of: str, style: str) -> str:
    """The rules that colour code, inside what a CSS selector names, in one of pygments' styles."""
    return HtmlFormatter(style=style).get_style_defs(of)


def page(title: str, body: str, style: str = "", script: str = "") -> str:
    """A whole HTML file."""
    colours = _highlighter().get_style_defs(".code")
    live = embedded.program() if LIVE in body else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>\n{look("sheet.css")}{colours}\n{style}</style>\n'
        f"</head>\n<body>\n{body}\n{script and f'<script>{script}</script>'}\n{live}\n</body>\n</html>\n"
    )


class Formulas(IPythonRenderer):
    """Markdown as JupyterLab shows it, with LaTeX as MathML, which browsers draw themselves."""

    def inline_math(self, body):
        return _apart(convert(body))

    def block_math(self, body):
        return _apart(convert(body, display="block"))

    def codespan(self, text):
        """Code in a line: the two dashes of an option are not separated from it at the end of a line."""
        return re.sub(r"(?<![\w-])--\w+", r'<span class="whole">\g<0></span>', super().codespan(text))


def _apart(formula):
    """A cross and a colon with the space that TeX gives them; next to words, browsers give none."""
    for tag, sign in (("mo", "&#x000D7;"), ("mi", ":")):
        formula = formula.replace(f"<{tag}>{sign}</{tag}>", f'<mo lspace=".25em" rspace=".25em">{sign}</mo>')
    return formula


def text(source: str) -> str:
    """A markdown cell; links to notebooks lead to their pages."""
    html = MarkdownWithMath(renderer=Formulas(escape=False)).render(source)
    return re.sub(r'href="(\w+)\.ipynb(#[^"]*)?"', r'href="\1.html\2"', html)


def code(source: str) -> str:
    return f'<div class="code"><pre>{highlight(source, PythonLexer(), _highlighter())}</pre></div>'


def output(one) -> str:
    """One output: its picture with the text that describes it, its own HTML, or its text."""
    if one.output_type == "stream":
        return f'<div class="out"><pre>{escape(one.text)}</pre></div>'
    data = one.get("data", {})
    told = data.get("text/plain", "")
    if "image/svg+xml" in data:
        picture = base64.b64encode(data["image/svg+xml"].encode()).decode()
        source, size = f"data:image/svg+xml;base64,{picture}", SIZE.search(data["image/svg+xml"])
        wide, tall = map(float, size.groups()) if size else (0, 0)
        own = f' style="--wide: {wide / ROOT:g}rem; --tall: {tall / wide:.2f}"' if size else ""
        return f'<div class="out"><img src="{source}" alt="{escape(told, quote=True)}"{own}></div>'
    if "text/html" in data:
        return f'<div class="out">{data["text/html"]}</div>'
    return f'<div class="out"><pre>{escape(told)}</pre></div>'


@cache
def explored(source: str) -> str:
    """The data of the live picture with which a cell ends, as JSON; "" if it ends otherwise, or needs other cells."""
    python = TransformerManager().transform_cell(source)  # %%ranks is no Python
    *_, last = ast.parse(python).body or [None]
    call = last.value if isinstance(last, ast.Expr) else None
    name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    if name not in LIVE_CALLS or any(isinstance(node, ast.Name) and node.id != "hl" for node in ast.walk(call)):
        return ""
    value = lambda one: eval(ast.unparse(one), {"hl": hl})
    shown = LIVE_CALLS[name](*map(value, call.args), **{one.arg: value(one.value) for one in call.keywords})
    return shown if isinstance(shown, str) else shown.as_json


def alive(data: str, stored: str) -> str:
    """A live picture inside a page: its data, and the stored picture that a program replaces."""
    return f'{LIVE}<script type="application/json">{data}</script>{stored}</div>'


def parts(cell, live: bool = False) -> list[str]:
    """A cell in the order in which it is shown: text; or code, then its outputs. An exercise has no answer.

    live  an explorer moves without a kernel; where no program runs, its stored picture is shown
    """
    if cell.cell_type == "markdown":
        solved = "solution" in cell.metadata.get("tags", ())
        return [f'<div class="answer">{text(cell.source)}</div>' if solved else text(cell.source)]
    shown = [] if "exercise" in cell.metadata.get("tags", ()) else [output(one) for one in cell.outputs]
    data = explored(cell.source) if live and shown else ""
    if data:
        shown = [alive(data, "".join(shown))]
    return [code(cell.source), *(["".join(shown)] if shown else [])]


def printable(title: str, cells) -> str:
    """The notebook as one page to read and to print."""
    body = "\n".join(part for cell in cells for part in parts(cell))
    return page(title, f'<main>\n{body}\n</main>\n<p class="foot">{LICENCE}</p>')


def slides(title: str, cells) -> str:
    """The notebook as slides: a heading starts one; text, code and output are its steps."""
    groups = []
    for cell in cells:
        if not groups or cell.source.startswith("## "):
            groups.append([])
        groups[-1] += parts(cell, live=True)
    sections, names = [], []
    for group in groups:
        beats = "\n".join(f'<div class="beat">{part}</div>' for part in group)
        sections.append(f"<section>\n{beats}\n</section>")
        names.append(_heading(group[0]))
    return staged(title, sections, names)


def staged(title: str, sections: list[str], names: list[str], help: str = HELP) -> str:
    """Slides as one HTML file: a section for each, and its name in the list."""
    choices = "".join(f'<option value="{i}">{i + 1} · {name}</option>' for i, name in enumerate(names))
    choose = f'<select aria-label="slide">{choices}</select>'
    bar = f'<div class="bar">{choose}<span>{help}</span><output></output></div>'
    body = "\n".join([*sections, bar, f'<p class="foot">{LICENCE}</p>'])
    return page(title, body, look("stage.css"), look("stage.js"))


def _heading(part):
    found = re.search(r"<h[12][^>]*>(.*?)(?:<a|</h)", part, flags=re.DOTALL)
    return re.sub(r"<[^>]+>", "", found[1]).strip() if found else ""
