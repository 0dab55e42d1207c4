"""Dry runs of every schedule, and of every pair of modes: all ranks together send what the formulas say."""

import pytest
from equality import asked, name_of, pairwise
from test_dry_run import assert_bytes_are_those_of_the_formulas

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh

pytestmark = pytest.mark.soak  # choosing the combinations takes a second, and all of them minutes
SCHEDULES = [name for name in hl.schedules() if name != "by_hand"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule(name):
    shape = Shape(layers=2, parallel=True) if name == "subgraph" else Shape(layers=16)
    assert_bytes_are_those_of_the_formulas(Mesh(pp=4), schedule=name, microbatches=8, shape=shape)


@pytest.mark.parametrize("one", [one for one in pairwise("texts") if one["order"] != "driven"], ids=name_of)
def test_every_combination(one):
    mesh, how = asked(one)
    assert_bytes_are_those_of_the_formulas(mesh, **how)
