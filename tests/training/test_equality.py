"""Every pair of modes joined: each combination trains as one device does, loss, gradients, norm, weights, bytes.

`equality` chooses the combinations; `equality_soak.py` draws others from the whole table of legal ones.
"""

import itertools
import pathlib
import re

import equality
import pytest
from accelerator import matrix

pytestmark = pytest.mark.long  # many cases, and choosing them takes a second
TABLES = equality.TABLES
FOUND = {  # a mesh keeps its ranks
    name: sorted(equality.pairwise(name), key=lambda one: str(equality.mesh_of(one))) for name in TABLES
}
CROWD = 8  # ranks: they take two thirds of the time, and wait for the soak
COMBINATIONS = [
    pytest.param(one, marks=[pytest.mark.soak] if equality.mesh_of(one).size == CROWD else [])
    for found in FOUND.values() for one in found
]  # fmt: skip


@pytest.mark.parametrize("what", TABLES)
def test_every_legal_pair_of_choices_meets(what):
    table = TABLES[what]
    legal = set().union(*(equality.pairs_of(one, equality.BOUND) for one in equality.cores(table)))
    met = set().union(*(equality.pairs_of(one, equality.FACTORS) for one in FOUND[what]))
    free = [(a, b) for a, b in itertools.combinations(table, 2) if b in equality.FREE]
    every = {((a, x), (b, y)) for a, b in free for x in table[a] for y in table[b]}
    assert {pair for pair in met if equality.wanted(what, pair)} == {
        pair for pair in legal | every if equality.wanted(what, pair)
    }
    names = [equality.name_of(one) for one in FOUND[what]]
    assert len(set(names)) == len(names) < 125


@pytest.mark.parametrize("what", TABLES)
def test_every_choice_asks_for_another_job(what):
    for one in FOUND[what]:
        for name, choices in TABLES[what].items():
            others = [one | {name: choice} for choice in choices if choice != one[name]]
            for other in filter(equality.legal, others):
                assert str(equality.asked(other)) != str(equality.asked(one)), (name, other[name], one[name])


def test_the_readme_counts_the_kinds_of_jobs():
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    kinds = f"{len(matrix.jobs())} kinds of jobs"
    assert f"| {kinds}" in readme or re.search(rf"\(`make test-gpu`\) \| \d+ of {kinds}", readme)


@pytest.mark.ranks
@pytest.mark.parametrize("one", COMBINATIONS, ids=equality.name_of)
def test_joined_modes_are_one_device(bench, one):
    report = bench.check(one)
    assert report.ok and report.largest_gap < 1e-11, report
