"""From a slide to its answer: docs/slides.toml against the notebooks, the page docs/slides.md and the errata."""

import re

import pytest

from hybridlab.predict.papers import sc21
from tools import sheet
from tools.course import HOUSE, books, recap
from tools.slides import slides, unasked

ANSWERS = [(name, row["subject"], answer) for row in slides()["row"] for name, answer in row["answers"].items()]
PAGE = (HOUSE / "docs" / "slides.md").read_text(encoding="utf-8")


def plain(text):
    """Text for comparing: no asterisks, no case, one space between words."""
    return " ".join(text.replace("*", "").split()).lower()


def said(name):
    """All that a notebook shows: its text, its code, its outputs as text."""
    parts = []
    for cell in books()[name].cells:
        outputs = cell.get("outputs", ())
        parts += [cell.source, *(one.get("text", "") for one in outputs)]
        parts += [str(one.data.get("text/plain", "")) for one in outputs if "data" in one]
    return plain(" ".join(parts))


def rows_about(subject):
    """The rows of the page about a subject, one for each deck that has it, with the lines that go on with them."""
    return re.findall(rf"^\| \*\*.*\*\* · {re.escape(subject)} \|.*(?:\n\|  \|.*)*", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("name, subject, answer", ANSWERS, ids=[f"{name}: {row}" for name, row, _ in ANSWERS])
def test_a_row_is_answered_or_to_come(name, subject, answer):
    rows = rows_about(subject)
    if name not in books():
        assert rows and all(f"{name} (to come)" in row for row in rows)
        return
    assert rows and all(f"[{name}](../notebooks/{name}.ipynb)" in row for row in rows)
    assert answer["must"] and [phrase for phrase in answer["must"] if plain(phrase) not in said(name)] == []
    assert set(answer.get("recap", ())) <= {one.name for one in recap(books()[name])}


def test_every_deck_is_answered_and_every_row_has_a_slide():
    decks = set(slides()["decks"])
    assert set().union(*(row["slides"] for row in slides()["row"])) == decks
    assert all(titles for row in slides()["row"] for titles in row["slides"].values())


def test_what_a_notebook_says_of_a_slide_is_found_from_the_slide():
    """A row of a recap that quotes a slide stands with a row of the table; papers may stay beyond the slides."""
    quoted = re.compile("slide|lecture(?!.*paper)")
    lost = [(name, row.name) for name, row in unasked() if row.said and quoted.search(row.by)]
    assert lost == [], "name it under recap in docs/slides.toml"


@pytest.mark.parametrize("one", slides()["erratum"], ids=lambda one: f"{one['deck']}: {one['prints']}")
def test_an_erratum_is_told_in_a_notebook(one):
    titles = [titles for row in slides()["row"] for titles in row["slides"].get(one["deck"], ())]
    assert one["slide"] in titles
    if one["notebook"] in books():
        assert plain(one["phrase"]) in said(one["notebook"])


@pytest.mark.parametrize("one", slides()["claim"], ids=lambda one: one["claims"])
def test_a_claim_is_answered_and_its_section_found(one):
    titles = [titles for row in slides()["row"] for titles in row["slides"].get(one["deck"], ())]
    assert one["slide"] in titles and one["answer"] in PAGE
    assert plain(one["phrase"]) in said(one["notebook"])


def test_communication_is_less_than_a_fifth_of_the_ten_rows_and_a_third_of_a_step_across_nodes():
    assert all(row.step.communication < 0.2 for row in sc21.table())
    (across,) = [row for row in sc21.figure(15) if (row.plan.t, row.batch) == (32, 128)]
    assert across.step.communication == pytest.approx(1 / 3, abs=0.02)


def test_no_slide_has_a_blank_row_and_each_has_a_section_to_show():
    """The section is in the notebook under that anchor; rows that go on with a slide repeat nothing."""
    lines = [line for line in PAGE.partition("## Appendix")[0].splitlines() if line.startswith("| **")]
    assert len(lines) >= len(slides()["row"])
    for line in lines:
        _, _, says, *told, show, _, _ = re.split(r"(?<!\\)\|", line)
        assert says.strip() and any(one.strip() for one in told), line
        for name, anchor in re.findall(r"notebooks/(\w+)\.ipynb#(\S+)\)", show) or [(None, None)]:
            heads = [sheet.text(cell.source) for cell in books()[name].cells if cell.cell_type == "markdown"]
            assert any(f' id="{anchor}"' in head for head in heads), line
