"""Find the words that docs/wording.toml forbids in the course's texts, and list them in the glossary.

python -m tools.wording                      each use: file, line, the word, the term to write
python -m tools.wording notebooks/11*        only these files
python -m tools.wording --count              how many each file has, as tests/house/wording.toml keeps them
"""

import argparse
import json
import pathlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

HOUSE = pathlib.Path(__file__).resolve().parent.parent
LIST = HOUSE / "docs" / "wording.toml"
PAGES = ("*.md", "docs/**/*.md", "notebooks/*.md", "notebooks/*.ipynb", "examples/**/*.md")
CODE = ("hybridlab/**/*.py", "tools/*.py", "examples/**/*.py")
HEADING = "## Plain words"
INTRO = f"""{HEADING}

Terms of the field, and the words that this course does not use for them. *`make pages` writes this list from
docs/wording.toml; a test fails if a text uses the words on the right.*

| write | not |
|---|---|
"""

# A Python file's strings, comments and all else. A string within an f-string's braces has the other quotation marks.
TOKEN = re.compile(
    r"(?P<open>(?:\b[rbfRBF]{1,2})?)(?P<quote>\"\"\"|'''|\"|')(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)|#[^\n]*",
    re.DOTALL,
)
NOT_PROSE = re.compile(
    r"^```.*?^```$|^ *>>>.*?(?:\n *\n|\Z)|\$\$.*?\$\$|\$[^$\n]+\$|``.*?``|`[^`]*`|\]\([^)]*\)|https?://\S+|</?\w[^>]*>",
    re.DOTALL | re.MULTILINE,
)
WORD = re.compile("[a-z]+")
SENTENCES = re.compile(r"\n\s*\n|\n\s*(?=(?:[-*|#>]|\d+\.) )|(?<=\|) ")


class Use(NamedTuple):
    """One forbidden use: where it is, the words found, and the term to write."""

    file: str
    line: int
    found: str
    write: str

    def __str__(self):
        return f"{self.file}:{self.line}: '{self.found}': write {self.write}"


@cache
def listed() -> dict:
    """docs/wording.toml: its rows as `term`, the ordinary uses as `allowed`."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


@cache
def _rules() -> tuple[dict[str, list[tuple[re.Pattern, str]]], re.Pattern]:
    """For each word the expressions that it may match, each with the term to write; and the allowed uses."""
    by_word = {}
    for one in listed()["term"]:
        finds = one.get("finds", rf"\b(?:{'|'.join(one['words'])})\b")
        for word in one["words"]:
            by_word.setdefault(word, []).append((re.compile(finds, re.IGNORECASE), one["write"]))
    return by_word, re.compile("|".join(listed()["allowed"]["uses"]), re.IGNORECASE)


def forbidden(text: str) -> list[tuple[str, str]]:
    """The forbidden words of a text, each with the term to write; code, formulas and links in it do not count.

    >>> forbidden("Each rank adds its summand. `summand` is a name.")
    [('summand', 'partial sum')]
    >>> forbidden("A stand-in. The product of the sizes.")
    []
    """
    by_word, ordinary = _rules()
    found = []
    for part in SENTENCES.split(NOT_PROSE.sub("…", text)):
        words = by_word.keys() & WORD.findall(part.lower())  # few parts have one: expressions are slow
        if not words:
            continue
        part = ordinary.sub("…", " ".join(part.split()))
        rules = dict.fromkeys(rule for word in sorted(words) for rule in by_word[word])
        found += [(use[0], write) for rule, write in rules for use in rule.finditer(part)]
    return found


def texts(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with the line or the number of the cell where it begins.

    For a page, its full text; for a notebook, its Markdown cells; for a Python file, its strings of at least three
    words. Strings that Python joins are one, with `{}` for computed parts.
    """
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, source.partition(HEADING)[0]
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(source)["cells"]):
            if cell["cell_type"] == "markdown":
                yield number, "".join(cell["source"])
    else:
        yield from ((line, text) for line, text in strings(source) if text.count(" ") > 1)


def strings(source: str) -> Iterator[tuple[int, str]]:
    """The string literals of Python source with their lines; neighbours are one, as for Python.

    >>> list(strings("f('one ' f'{two} three', 4)"))
    [(1, 'one {} three')]
    """
    line, start, end, text = 1, 1, 0, None
    for found in TOKEN.finditer(source):
        if found["quote"] is None:
            continue
        piece = found["text"].replace("\\n", "\n")
        if "f" in found["open"].lower():
            piece = re.sub(r"\{[^{}]*\}", "{}", piece)
        between = source[end : found.start()]
        line += between.count("\n")
        if text is not None and not between.strip():
            text += piece
        else:
            if text is not None:
                yield start, text
            start, text = line, piece
        line += found[0].count("\n")
        end = found.end()
    if text is not None:
        yield start, text


def files() -> list[pathlib.Path]:
    """Every file whose texts are read. Decisions are records of their day, and stay as they were written."""
    found = {path for pattern in PAGES + CODE for path in HOUSE.glob(pattern)}
    return sorted(path for path in found if "decisions" not in path.parts and path != pathlib.Path(__file__))


def uses(paths: list[pathlib.Path]) -> Iterator[Use]:
    """The forbidden uses in files, in order."""
    for path in paths:
        for line, text in texts(path):
            for found, write in forbidden(text):
                yield Use(str(path.relative_to(HOUSE)), line, found, write)


def section() -> str:
    """The glossary's list of words that are not used."""
    rows = [f"| {one['write']} | {', '.join(one['not'])} |" for one in listed()["term"]]
    return INTRO + "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The glossary with its last section written again."""
    return text.partition(HEADING)[0].rstrip() + "\n\n" + section()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=pathlib.Path, help="files; without any, all")
    parser.add_argument("--count", action="store_true", help="how many each file has")
    asked = parser.parse_args(arguments)
    found = list(uses([path.resolve() for path in asked.paths] or files()))
    if asked.count:
        for name in dict.fromkeys(one.file for one in found):
            print(f'"{name}" = {sum(one.file == name for one in found)}')
    else:
        print(*found, sep="\n")


if __name__ == "__main__":
    main()
