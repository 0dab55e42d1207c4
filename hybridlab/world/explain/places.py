"""Places: the location of a line of code in the user's terms, and whether it is the user's code."""

import linecache
import os
import sys
import sysconfig

from hybridlab.world import WORLD

LIBRARIES = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")


def place(file: str, line) -> str:
    """The name of a line in a sentence: "lab.py:3", in a notebook "cell [7]:3".

    >>> place("/home/me/lab.py", 3)
    'lab.py:3'
    """
    return f"{title(file)}:{line}"


def title(file: str) -> str:
    """The name of a file without its folders; for a notebook's cell, its number as the notebook shows it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    number = shell and _cell(shell, file)
    return f"cell [{number}]" if number else os.path.basename(file)


def _cell(shell, file: str) -> str | None:
    """The number of the cell whose code IPython has stored as this file; None if it is not a cell."""
    if says := getattr(shell.compile, "format_code_name", None):
        told = says(file)  # ("Cell", "In[7]"), or None for a file
        return told and told[1].removeprefix("In").strip("[]")
    # IPython 7, which Colab has, stores no number with the file: use the last cell with this text
    text, cells = "".join(linecache.getlines(file)).strip(), shell.history_manager.input_hist_parsed
    return next((str(number) for number in range(len(cells) - 1, 0, -1) if cells[number].strip() == text), None)


def code(file: str, line: int, columns: str = "") -> str:
    """The source text of this place, between two columns ("4-21") or the full line; if unreadable, the location."""
    begin, _, end = columns.partition("-")
    written = (
        linecache.getline(file, line).encode()[int(begin or 0) : int(end) if end else None].decode(errors="replace")
    )
    return written.strip() or f"{file}:{line}"


def is_users(file: str) -> bool:
    """Whether a file belongs to the user: not to `world`, to Python, or to an installed package."""
    return not file.startswith((WORLD, *LIBRARIES)) and "site-packages" not in file and "dist-packages" not in file


def names(ranks) -> str:
    """
    >>> names([2]), names([0, 3])
    ('rank 2', 'ranks 0, 3')
    """
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
