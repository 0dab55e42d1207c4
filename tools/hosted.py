"""Prepare the course for hosted machines with one GPU: Colab and Kaggle.

    make hosted ARGS=OWNER/NAME     of the repository on GitHub; writes build/colab

build/colab holds each notebook, not run, with two cells more at its head: badges that open it, and its installation,
which leaves torch, plotly and ipywidgets as the host has them. Push it as the branch `colab`: badges lead there.
"""

import argparse
import pathlib
import re
import shutil

import nbformat

from hybridlab.labs.copies import fresh
from tools.course import FOLDER, HOUSE, Book, books

BRANCH = "colab"
REPOSITORY = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")
INSTALL = """# torch, plotly and ipywidgets stay as they are here.
%pip install -q "hybridlab[colab] @ git+https://github.com/{}\""""
BADGES = {  # name: (picture, address of a notebook on GitHub)
    "Open in Colab": (
        "https://colab.research.google.com/assets/colab-badge.svg",
        "https://colab.research.google.com/github/{repository}/blob/{branch}/{name}.ipynb",
    ),
    "Open in Kaggle": (
        "https://kaggle.com/static/images/open-in-kaggle.svg",
        "https://kaggle.com/kernels/welcome?src=https://github.com/{repository}/blob/{branch}/{name}.ipynb",
    ),
}
BINDER = "[![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/{}/HEAD?urlpath=lab/tree/notebooks)"


def badges(repository: str, name: str) -> str:
    """The badges of one notebook, in Markdown.

    >>> badges("you/lab", "00_start").partition(" ")[0]
    '[![Open'
    """
    told = {"repository": repository, "branch": BRANCH, "name": name}
    return " ".join(f"[![{alt}]({picture})]({to.format(**told)})" for alt, (picture, to) in BADGES.items())


def hosted(book: Book, repository: str) -> nbformat.NotebookNode:
    """A notebook with the two cells that a host needs at its head; not run."""
    notebook = nbformat.reads(fresh(FOLDER / f"{book.name}.ipynb"), as_version=4)
    head = [
        nbformat.v4.new_markdown_cell(badges(repository, book.name), id="badges"),
        nbformat.v4.new_code_cell(INSTALL.format(repository), id="install"),
    ]
    notebook.cells = head + notebook.cells
    return notebook


def page(repository: str) -> str:
    """README of the branch: Binder for all, then each notebook with its badges."""
    rows = [f"| {book.plain} | {badges(repository, name)} |" for name, book in books().items()]
    return "\n".join(["# hybridlab", "", BINDER.format(repository), "", "| notebook | open |", "|---|---|", *rows, ""])


def write(folder: pathlib.Path, repository: str) -> list[pathlib.Path]:
    """Write all notebooks and their page into a folder; the files that were written."""
    folder.mkdir(parents=True)
    texts = {f"{name}.ipynb": nbformat.writes(hosted(book, repository)) for name, book in books().items()}
    texts["README.md"] = page(repository)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", metavar="OWNER/NAME", help="of the repository on GitHub")
    repository = parser.parse_args(arguments).repository
    if not REPOSITORY.fullmatch(repository):
        parser.error(f"{repository!r} names no repository on GitHub: give OWNER/NAME")
    folder = HOUSE / "build" / "colab"
    shutil.rmtree(folder, ignore_errors=True)
    files = write(folder, repository)
    print(f"{len(files)} files in {folder}: push them as the branch {BRANCH} of {repository}")


if __name__ == "__main__":
    main()
