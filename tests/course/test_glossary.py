"""The glossary: each word is taught where it says, and a letter has one meaning in a notebook, the table's."""

import re
from functools import cache

import pytest

from tools.course import HOUSE, books, tables

NOTATION, WORDS, _ = tables((HOUSE / "docs" / "glossary.md").read_text(encoding="utf-8"))
BOOKS = {book.number: book for book in books().values()}
ITALIC = re.compile(r"(?<![*\w])\*(t?[A-Za-z])\*(?!\*)|([αβηΨπ]|μ(?!s))")
# What a letter must be where it counts these things: "*m* microbatches".
COUNTS = {"microbatches": "mM", "stages": "p", "sequences": "bB", "positions": "s", "chunks": "v", "parameters": "Ψ"}

every_book = pytest.mark.parametrize("number", BOOKS)


@cache
def letters(number):
    """The letters that stand in italics in a notebook's text; Greek ones as they are."""
    return {one or greek for one, greek in ITALIC.findall(re.sub(r"`[^`]*`", "", BOOKS[number].prose))}


def meanings(number):
    """(letter, meaning) for each row of the notation that speaks of a notebook."""
    for symbols, meaning, *_, where in NOTATION[1:]:
        if (number in where) != where.startswith("all"):
            yield from ((symbol, meaning) for symbol in symbols.split(", "))


@every_book
def test_a_letter_has_one_meaning_in_a_notebook(number):
    declared = [letter for letter, _ in meanings(number)]
    assert len(set(declared)) == len(declared)
    assert letters(number) <= set(declared), "add it to the notation in docs/glossary.md"


@every_book
def test_letters_count_what_the_notation_says(number):
    prose = BOOKS[number].prose
    for thing, right in COUNTS.items():
        assert set(re.findall(rf"(?<!at least )(?<![*\w])\*(\w)\* {thing}\b", prose)) <= set(right), thing


@pytest.mark.parametrize("row", [row for row in NOTATION[1:] if row[-1][0].isdigit()], ids=lambda row: row[0])
def test_a_meaning_of_few_notebooks_is_used_there(row):
    for number in row[-1].split():
        assert number not in BOOKS or letters(number) & set(row[0].split(", "))


@pytest.mark.parametrize("row", WORDS[1:], ids=lambda row: row[0])
def test_a_word_is_taught_where_the_glossary_says(row):
    term, meaning, _, korean, number = row
    assert meaning and korean
    if number in BOOKS:
        said = " ".join([BOOKS[number].prose, *(cell.source for cell in BOOKS[number].cells)])
        assert term.lower() in said.lower()


def test_no_word_and_no_korean_term_stands_twice():
    for column in (0, 3):
        assert len({row[column] for row in WORDS[1:]}) == len(WORDS) - 1


def test_korean_is_written_in_korean_unless_it_is_a_name():
    latin = [row[0] for row in WORDS[1:] if not re.search("[가-힣]", row[3])]
    assert latin == ["GPipe", "ZeRO"]
