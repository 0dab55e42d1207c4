"""The course shows pictures: in the stored notebooks there are at least as many figures as tables."""

import re
from collections import Counter

import pytest

from tools.course import books

TABLE = re.compile(r"<table\b|^\s*\|.*\|\s*\n\s*\|[\s:|-]+\|\s*$", re.MULTILINE)


def kind(data: dict) -> str:
    """What an output shows, by what it is: "figure" if it is drawn, "table" if it has cells only, or "".

    >>> kind({"image/svg+xml": "<svg/>", "text/html": "<table>"}), kind({"text/html": "<figure><svg/></figure>"})
    ('figure', 'figure')
    >>> kind({"text/html": "<table><tr>"}), kind({"text/markdown": "| a |\\n|---|"}), kind({"text/plain": "1"})
    ('table', 'table', '')
    """
    rich = "".join(data.get(mime, "") for mime in ("text/html", "text/markdown"))
    if any(mime.startswith("image/") for mime in data) or "<svg" in rich:
        return "figure"
    return "table" if TABLE.search(rich) else ""


def shown(cells) -> Counter:
    """How many outputs of cells are of each kind; the text cells of a notebook do not count."""
    return Counter(kind(output.get("data", {})) for cell in cells for output in cell.get("outputs", ()))


def test_there_are_at_least_as_many_figures_as_tables():
    counted = sum((shown(book.cells) for book in books().values()), Counter())
    assert counted["figure"] >= counted["table"] > 0


@pytest.mark.parametrize("call", ["labs.compare(", "labs.reveal(", "labs.machines("])
def test_predictions_guesses_and_machines_are_figures(call):
    cells = [cell for book in books().values() for cell in book.cells if cell.cell_type == "code"]
    last = [cell for cell in cells if call in cell.source]
    assert len(last) > 20 and {kind(cell.outputs[-1].data) for cell in last} == {"figure"}
