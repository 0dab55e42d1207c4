"""Copies of experts with everything that experts go with: every pair of modes, on real ranks."""

import pytest
from equality import asked, name_of, pairwise

pytestmark = pytest.mark.long  # choosing the pairs takes ten seconds, also where none of them is run
LENDING = [one for one in pairwise("texts") if one["model"] == "experts" and one["dispatch"] == "all_to_all"]
LENDING = [one for one in LENDING if "ep" in one["axes"].split() or one["fold"]]


@pytest.mark.ranks
@pytest.mark.parametrize("one", LENDING, ids=map(name_of, LENDING))
def test_it_trains_as_one_device_does(bench, one):
    mesh, about = asked(one)
    report = bench.asked(mesh, **about, expert_copies={0: 1})
    assert report.ok, report
