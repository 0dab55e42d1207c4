"""The numbers in the texts, held against the package: computed, set in code, or told with the reason.

A percentage, a fraction, or a number with a unit that stands in no list of tests/prose.py fails: none is only typed.
"""

import re
from functools import cache

import pytest
from prose import COMPUTED, SET, TOLD

from tools.course import HOUSE, books
from tools.slides import slides

PAGES = {"README": "README.md"} | {name: f"docs/{name}.md" for name in ("where", "python", "own-model", "modes")}
TEXTS = [*PAGES, "slides", *books()]
UNIT = r"%|units?|ms|[µμ]s|s|seconds?|minutes?|hours?|days|years|[kMGTP]i?B(?:/s)?|G|bytes|nats|times|slots|messages"
NUMBER = re.compile(
    rf"(?<![\w.·*/])(?<![−+·] )\d+(?:[.,]\d+)*(?:\s?%|\s(?:{UNIT})(?![\w*·(]))"  # not what ends a formula
    r"|(?<![\w.·*/])\d+(?:\.\d+)?/\d+(?![\w*·.])"
)
MINUTES = re.compile(  # the course says them itself
    r"★+\s\d+ minutes|(?<=\*\*Core\*\*) \d+ minutes|(?<=in a lecture:) \d+ minutes"
)


@cache
def text(name):
    """What a text says, on one line, without links and papers' numbers."""
    if name in books():
        whole = MINUTES.sub("", books()[name].prose)
    elif name in PAGES:
        whole = " ".join((HOUSE / PAGES[name]).read_text(encoding="utf-8").split())
    else:
        errata = (f"{one['prints']} | {one['read']}" for one in slides()["erratum"])
        whole = " | ".join([*(row["subject"] for row in slides()["row"]), *errata])
    return re.sub(r"\]\([^)]*\)|arXiv:[\d.]+", "]", whole)


def places(phrase, name):
    """Where a phrase stands in a text; not in the middle of a number."""
    return [found.span() for found in re.finditer(rf"(?<![\d.]){re.escape(phrase)}", text(name))]


def named(rows):
    return [f"{name}: {phrase}" for name, phrase, _ in rows]


@pytest.mark.parametrize("name, phrase, computed", COMPUTED, ids=named(COMPUTED))
@pytest.mark.long
def test_a_number_is_what_the_package_computes(name, phrase, computed):
    assert places(phrase, name), f"{name} does not say it any more"
    assert computed() == phrase


@pytest.mark.parametrize("name, phrase, code", SET, ids=named(SET))
def test_a_setting_is_that_of_the_code(name, phrase, code):
    assert places(phrase, name), f"{name} does not say it any more"
    if code.startswith(("labs/", "core/")):
        file, _, code = code.partition(": ")
        assert code in (HOUSE / "hybridlab" / file).read_text(encoding="utf-8")
    else:
        assert any(code in cell.source for cell in books()[name].cells if cell.cell_type == "code")


@pytest.mark.parametrize("name, phrase, why", TOLD, ids=named(TOLD))
def test_what_is_told_is_still_told(name, phrase, why):
    assert places(phrase, name) and why


@pytest.mark.parametrize("name", TEXTS)
def test_no_number_is_only_typed(name):
    known = [span for row in (*COMPUTED, *SET, *TOLD) if row[0] == name for span in places(row[1], name)]
    loose = [
        text(name)[max(found.start() - 30, 0) : found.end() + 20]
        for found in NUMBER.finditer(text(name))
        if not any(begin <= found.start() and found.end() <= end for begin, end in known)
    ]
    assert loose == [], "add them to tests/prose.py: computed, set in code, or told with the reason"


SEEN = ["27.3 %", "25%", "3/11", "60/33", "12 MB", "43.75 GB", "83.2 days", "1,024 bytes", "25 GB/s"]
FORMULAS = ["1/*N*", "(*p* − 1)", "*V*/12*lh*", "2Ψ/*p* bytes", "12 *h*", "a 4 × 4 matrix", "`0F0`"]


@pytest.mark.parametrize("said", SEEN)
def test_a_number_is_seen(said):
    assert NUMBER.search(f"it is {said}, they say").group() == said


@pytest.mark.parametrize("said", FORMULAS)
def test_a_formula_is_none(said):
    assert NUMBER.search(f"it is {said}, they say") is None
