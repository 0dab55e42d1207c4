"""Read a docstring in this project's layout: paragraphs, tables of names and meanings, errors, examples.

A table's row is `name  meaning` with two spaces or more between them; its further lines are indented. Several names
may share a meaning (`F, I, W  durations`), and several rows a line (`text;  name  meaning`). The row `raises` names the
errors, the row `returns` the result. An example begins with >>>.
"""

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

NAMES = r"\*{0,2}\w+(?:, \*{0,2}\w+)*"
ROW = re.compile(rf"({NAMES})\s{{2,}}(?=\S)")
MORE = re.compile(rf";\s{{2,}}({NAMES})\s{{2,}}")
WORD = re.compile(r"\w+")


@dataclass
class Told:
    """A docstring, read.

    blocks    in order: a paragraph is a text, a table a list of (names, meaning), an example a text with >>>
    raises    the errors, and their causes; empty: none are named
    returns   the result, if a row names it
    """

    blocks: list = field(default_factory=list)
    raises: str = ""
    returns: str = ""

    @property
    def meanings(self) -> dict[str, str]:
        """{name: its meaning} over all tables."""
        rows = (row for block in self.blocks if isinstance(block, list) for row in block)
        return {name: meaning for names, meaning in rows for name in names}

    @property
    def examples(self) -> list[str]:
        return [block for block in self.blocks if isinstance(block, str) and block.startswith(">>>")]

    @property
    def words(self) -> set[str]:
        """Every word of its tables and paragraphs."""
        texts = (block for block in self.blocks if isinstance(block, str) and not block.startswith(">>>"))
        return {*WORD.findall(" ".join([*texts, *self.meanings.values()])), *self.meanings}


def read(docstring: str) -> Told:
    r"""A docstring by its layout.

    >>> told = read("Wait.\n\nhow  long;  early  stop\n     when done\nraises  ValueError below 0\n\n>>> 1\n1")
    >>> told.blocks
    ['Wait.', [(('how',), 'long'), (('early',), 'stop when done')], '>>> 1\n1']
    >>> told.raises
    'ValueError below 0'
    """
    told = Told()
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if block.startswith(">>>"):
            told.blocks.append(block)
            continue
        for names, text in _rows(block.splitlines()):
            if names in (("raises",), ("returns",)):
                setattr(told, names[0], text)
            elif not names:
                told.blocks.append(text)
            elif told.blocks and isinstance(told.blocks[-1], list):
                told.blocks[-1].append((names, text))
            else:
                told.blocks.append([(names, text)])
    return told


def _rows(lines):
    """(names, text) of each row and paragraph of a block; a paragraph has no names."""
    parts = []
    for line in lines:
        if row := ROW.match(line):
            parts.append([row[1], line[row.end() :]])
        elif parts and (line.startswith(" ") or not parts[-1][0]):
            parts[-1][1] += " " + line.strip()
        else:
            parts.append(["", line])
    for names, text in parts:
        if not names:
            yield (), text
            continue
        text, *more = MORE.split(text)
        for some, meaning in [(names, text), *zip(more[::2], more[1::2])]:
            yield tuple(one.lstrip("*") for one in some.split(", ")), meaning.strip()


def asked(thing: Any) -> list[inspect.Parameter]:
    """The arguments of a callable, without self or cls."""
    given = ("self", "cls")
    return [one for one in inspect.signature(thing).parameters.values() if one.name not in given]


def untold(thing: Any) -> list[str]:
    """The arguments that a callable's docstring does not name.

    >>> untold(read)
    []
    """
    words = read(inspect.getdoc(thing) or "").words
    return [one.name for one in asked(thing) if one.name not in words]
