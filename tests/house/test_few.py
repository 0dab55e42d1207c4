"""Of many cases a few run with `make test`, and none is lost."""

import re

import pytest
from few import first, one_in

from tools.later import FILE, function_of, listed

ROOT = FILE.parents[1]
CASES = [1, (2, "b"), pytest.param(3, id="three", marks=pytest.mark.ranks), 4, 5]


def seen(cases):
    return [(one.values, one.id, {mark.name for mark in one.marks}) for one in cases]


def test_the_first_are_as_they_were_and_the_others_are_long():
    assert seen(first(1, CASES)) == [
        ((1,), None, set()),
        ((2, "b"), None, {"long"}),
        ((3,), "three", {"ranks", "long"}),
        ((4,), None, {"long"}),
        ((5,), None, {"long"}),
    ]


def test_one_in_so_many_begins_with_the_first():
    assert [marks for *_, marks in seen(one_in(2, CASES))] == [set(), {"long"}, {"ranks"}, {"long"}, set()]


def test_a_case_that_waits_belongs_to_a_test_that_is_still_there():
    waiting = listed(FILE.read_text(encoding="utf-8"))
    assert {*waiting.values()} == {"slow", "long"}
    for case in waiting:
        path, _, name = function_of(case).partition("::")
        name = name.rpartition(".")[2]  # of an example, the function that it explains
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"\b(def|class) {name}\b", text) or path.endswith(f"/{name}.py"), f"{case}: run make later"
