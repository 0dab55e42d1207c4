"""Write the reference of all public names: a page for `hl` and one for each of its namespaces, from the package itself.

pdoc reads members, signatures and types from the live objects, `tools.docstrings` the docstrings. A public name is one
in an `__all__`; a namespace is a public name that is a module. Nothing is listed here.
"""

import inspect
import re
from dataclasses import dataclass
from functools import cache
from html import escape
from types import ModuleType

import pdoc.doc
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonConsoleLexer

import hybridlab
from tools import sheet
from tools.docstrings import read

LONG = 40  # the longest default that is shown in full, in characters
KINDS = {"function": "Verbs", "class": "Values", "variable": "Constants"}
DOTTED = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
VALUE = re.compile(r"\b[A-Z]\w+")
CODE = re.compile(r"`+([^`]+)`+")


@dataclass(frozen=True)
class Page:
    """A page of the reference: its file, its heading, its text, and its contents next to it."""

    file: str
    title: str
    body: str
    beside: str


@cache
def namespaces() -> dict[str, ModuleType]:
    """{name as users write it: module}: `hl`, and each public name in it that is a module, of a namespace too.

    >>> next(iter(namespaces()))
    'hl'
    """
    return dict(_namespaces("hl", hybridlab))


def _namespaces(name, module):
    yield name, module
    inside = {one: getattr(module, one) for one in getattr(module, "__all__", ())}
    for one, thing in inside.items():
        if inspect.ismodule(thing):
            yield from _namespaces(f"{name}.{one}", thing)


def members(module: ModuleType) -> list[pdoc.doc.Doc]:
    """The public names of a module without namespaces, functions first; without an `__all__`, the documented names."""
    for name in getattr(module, "__all__", ()):
        getattr(module, name)  # loads a lazy one, which pdoc would not
    public = [one for one in pdoc.doc.Module(module).members.values() if one.kind in KINDS and one.name[0] != "_"]
    told = [one for one in public if hasattr(module, "__all__") or one.docstring]
    return sorted(told, key=lambda one: list(KINDS).index(one.kind))


def pages() -> list[Page]:
    return [_page(name, module) for name, module in namespaces().items()]


def file(space: str) -> str:
    return "index.html" if space == "hl" else f"{space}.html"


@cache
def places() -> dict[str, str]:
    """{name of a public function or class: the link to it}; if two have one name, the one in `hl`."""
    found = {}
    for space, module in namespaces().items():
        for one in members(module):
            found.setdefault(one.name, f"{file(space)}#{anchor(one)}")
    return found


def anchor(one: pdoc.doc.Doc) -> str:
    """Schedule and schedule are two names; links on the site are in lower case."""
    return f"{one.kind}-{one.qualname.lower()}"


def _page(space, module):
    groups = {}
    for one in members(module):
        groups.setdefault(one.kind, []).append(one)
    body, rows = [f'<h1 id="top">{space}</h1>{_paragraphs(read(module.__doc__))}'], []
    for kind, ones in groups.items():
        body.append(f'<h2 id="{kind}">{KINDS[kind]}</h2>{_summary(ones)}')
        links = (f'<li><a href="#{anchor(one)}">{one.name}</a></li>' for one in ones)
        rows.append(f'<li class="h1"><a href="#{kind}">{KINDS[kind]}</a></li>{"".join(links)}')
    inside = {name: one for name, one in namespaces().items() if name.rpartition(".")[0] == space}
    body += [_inside(inside), *(_entry(space, one) for ones in groups.values() for one in ones)]
    others = "".join(f'<li><a href="{file(name)}">{name}</a></li>' for name in namespaces() if name != space)
    rows.append(others and f'<li class="h1">Namespaces</li>{others}')
    return Page(file(space), space, "\n".join(body), f"<nav><ul>{''.join(rows)}</ul></nav>")


def _inside(spaces):
    """A table of the namespaces in one; none if there are none."""
    links = {name: f'<td><a href="{file(name)}"><code>{name}</code></a></td>' for name in spaces}
    rows = (f"<tr>{links[name]}<td>{_inline(_first(one.__doc__))}</td></tr>" for name, one in spaces.items())
    return spaces and f'<h2 id="namespaces">Namespaces</h2><table class="names">{"".join(rows)}</table>' or ""


def _summary(ones):
    links = (f'<td><a href="#{anchor(one)}"><code>{one.name}</code></a></td>' for one in ones)
    rows = (f"<tr>{link}<td>{_inline(_first(one.docstring))}</td></tr>" for link, one in zip(links, ones))
    return f'<table class="names">{"".join(rows)}</table>'


def _first(docstring):
    """The first paragraph."""
    return read(docstring or "").blocks[0] if docstring else ""


def _entry(space, one):
    """The text for a public name: its call, its description, its arguments, its errors; the same for its methods."""
    parts = [f'<section id="{anchor(one)}"><h3>{one.name}</h3>', _told(f"{space}.{one.name}", one)]
    if one.kind == "class":
        parts += [_method(one, inner) for inner in one.members.values() if _is_public(inner)]
    return "\n".join([*parts, "</section>"])


def _is_public(inner):
    """Does it have a docstring, and is it neither a field of a record (which has a table) nor Python's own?"""
    told = inner.obj.__doc__ if inner.kind == "function" else inner.docstring  # its own docstring, not torch's
    return inner.name[0] != "_" and bool(told) and inner.taken_from[0].startswith("hybridlab")


def _method(owner, inner):
    if inner.kind != "function":
        shown = sheet.code(f"{owner.name}.{inner.name}") + _text(read(inner.docstring), [])
    else:
        shown = _told(f"{owner.name}.{inner.name}", inner)
    return f'<div id="{anchor(inner)}" class="member">{shown}</div>'


def _told(called, one):
    if one.kind == "variable":
        return sheet.code(f"{called} = {_short(one.default_value)}") + _text(read(one.docstring), [])
    signature = _signature(one)
    asked = list(signature.parameters.values())
    plain = [each.replace(annotation=each.empty, default=_Plain.of(each.default)) for each in asked]
    back = "" if one.kind == "class" else _type(signature.return_annotation)
    shown = f"{called}{signature.replace(parameters=plain, return_annotation=signature.empty)}"
    return sheet.code(f"{shown} -> {back}" if back else shown) + _text(read(one.docstring), asked)


def _signature(one):
    """Its signature, without self or cls, with the types of its annotations."""
    if one.kind == "class":
        return inspect.signature(one.obj)
    bound = one.qualname != one.name and not one.is_staticmethod
    return one.signature_without_self if bound else one.signature


class _Plain:
    """A default as a signature prints it."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return _short(self.value)

    @classmethod
    def of(cls, value):
        return value if value is inspect.Parameter.empty else cls(value)


def _short(value):
    """A value as Python source; for a long value, only its type.

    >>> _short("1f1b"), _short(tuple(range(100))), _short(len)
    ("'1f1b'", 'tuple(...)', 'len')
    """
    shown = getattr(value, "__name__", repr(value)) if callable(value) else repr(value)
    return shown if len(shown) <= LONG else f"{type(value).__name__}(...)"


def _type(annotation):
    """A type without the names of modules."""
    return (
        ""
        if annotation is inspect.Parameter.empty
        else DOTTED.sub("", pdoc.doc.formatannotation(annotation)).strip("'")
    )


def _text(told, asked):
    """The content of a docstring: paragraphs, a table of arguments, a table of other names, the result, errors."""
    names = [one.name for one in asked]
    others = ((name, "", "", meaning) for name, meaning in told.meanings.items() if name not in names)
    heads = ("argument", "type", "default", "meaning")
    rows = [(one.name, _type(one.annotation), _default(one), told.meanings.get(one.name, "")) for one in asked]
    lines = {"Returns": told.returns, "Raises": told.raises}
    ends = "".join(f'<p class="end"><b>{what}</b> {_inline(text)}</p>' for what, text in lines.items() if text)
    examples = "".join(map(_example, told.examples))
    return _paragraphs(told) + _table(heads, rows) + _table((), others) + ends + examples


def _default(one):
    return "" if one.default is one.empty else _short(one.default)


def _table(heads, rows):
    """Rows of name, type, default, meaning; a row without a type and a default has its name and its meaning only."""
    body = "".join(_row(*row, columns=len(heads)) for row in rows)
    head = f"<thead><tr>{''.join(f'<th>{one}</th>' for one in heads)}</tr></thead>" if heads else ""
    return body and f'<table class="names">{head}<tbody>{body}</tbody></table>'


def _row(name, kind, default, meaning, columns):
    middle = f"<td>{_linked(kind)}</td><td>{_code(default)}</td>" if columns else ""
    return f"<tr><td>{_code(name)}</td>{middle}<td>{_inline(meaning)}</td></tr>"


def _code(text):
    return text and f"<code>{escape(text)}</code>"


def _linked(text):
    """Code in which each public value's name leads to it."""

    def link(found):
        place = places().get(found[0])
        return f'<a href="{place}">{found[0]}</a>' if place else found[0]

    short = ' class="whole"' if len(text) < 24 else ""
    return text and f"<code{short}>{VALUE.sub(link, escape(text))}</code>"


def _paragraphs(told):
    texts = (one for one in told.blocks if isinstance(one, str) and not one.startswith(">>>"))
    return "".join(f"<p>{_inline(one)}</p>" for one in texts)


def _inline(text):
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _example(source):
    return f'<div class="code"><pre>{highlight(source, PythonConsoleLexer(), HtmlFormatter(nowrap=True))}</pre></div>'
