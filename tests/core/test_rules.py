"""Rules {dim: axis}: what they cut, what they refuse, and that what is partial follows."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.core.where.layout import Cut, Layout, Param, even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import cuts, joined, placed, sizes_of

W = Param("w", (8, 12), dims="F D")
CUBE = Mesh(x=2, y=2, z=3)


def boxes(param, mesh):
    each = [Layout(mesh, (param,)).box(param.name, rank) for rank in range(mesh.size)]
    return {tuple(range(span.start, span.stop) for span in box) for box in each}


def with_rules(param, rules, mesh=CUBE, **more):
    changed = placed(param, rules, mesh, sizes_of([param], {"N": 2}), **more)
    return Param(param.name, param.shape, dims=param.dims, **changed)


@pytest.mark.slow
@given(st.permutations("xyz"), st.sampled_from([("F", "D"), ("D", "F")]), st.integers(0, 3))
@settings(max_examples=30)
def test_boxes_tile_the_parameter_whatever_the_rules(axes, letters, number):
    """Each letter gets an axis or a product; every element lives in one box, and equal boxes are copies."""
    one, other = letters
    tables = [{}, {one: axes[0]}, dict(zip(letters, axes)), {one: axes[0], other: "+".join(axes[1:])}]
    param = with_rules(W, tables[number])
    Layout(CUBE, (param,)).validate()
    found = boxes(param, CUBE)
    assert len(found) == math.prod(CUBE.length(axis) for axis in tables[number].values())
    elements = [(i, j) for rows, columns in found for i in rows for j in columns]
    assert sorted(elements) == [(i, j) for i in range(8) for j in range(12)]


def test_a_product_counts_its_last_axis_fastest():
    param = with_rules(W, {"D": "z+x"})
    assert [Layout(CUBE, (param,)).box("w", CUBE.rank(x=x, z=z))[1].start for z in range(3) for x in (0, 1)] == [
        0, 2, 4, 6, 8, 10,
    ]  # fmt: skip


def test_groups_of_a_joined_dim_stay_whole():
    heads = Param("q", (6, 4), dims="NH D")
    assert placed(heads, {"N": "x"}, CUBE, {"N": 2}) == {"shard": {"x": Cut(0, even(6, 2, whole=3))}}
    few = placed(heads, {"N": "z"}, Mesh(z=4), {"N": 2}, copied="N")
    assert few == {"shard": {"z": Cut(0, ((0, 3), (0, 3), (3, 6), (3, 6)))}, "partial": ("z",)}


@pytest.mark.parametrize(
    "rules, data, partial",
    [
        ({"F": "x"}, (), ()),
        ({"F": "x"}, ("x",), ()),  # cut there: each rank has all of its own gradient
        ({"F": "x"}, ("y",), ("y",)),
        ({"F": "x+y"}, ("y", "z"), ("z",)),
        ({"E": "x"}, ("x",), ("x",)),  # no dim of this one
        ({}, ("x", "w"), ("x",)),  # nobody else along w
    ],
)
def test_partial_follows_from_who_sees_different_data(rules, data, partial):
    assert placed(W, rules, CUBE, {}, data).get("partial", ()) == partial


def test_what_is_illegal_is_said():
    with pytest.raises(ValueError, match=r"w \(F D\) would be sharded twice along x: leave out the rule for D"):
        placed(W, {"F": "x", "D": "x"}, CUBE, {})
    with pytest.raises(ValueError, match="would be sharded twice along y: leave out the rule for D"):
        placed(W, {"F": "x+y", "D": "y"}, CUBE, {})
    with pytest.raises(ValueError, match="one shards F along x, but two shards it along y: leave one of them out"):
        joined([("one", {"F": "x"}), ("two", {"F": "y"})])
    with pytest.raises(ValueError, match="F is 8 in w, but 9 in v: give the two dimensions different names"):
        sizes_of([W, Param("v", (9,), dims="F")], {})
    with pytest.raises(ValueError, match="v has shape \\(9,\\), but its dims 'F D' name 2 dimensions"):
        sizes_of([Param("v", (9,), dims="F D")], {})
    with pytest.raises(
        ValueError, match="q has a dimension NH, whose number of groups N is not known: give the size of N"
    ):
        sizes_of([Param("q", (9,), dims="NH")], {})


def test_an_axis_of_one_rank_cuts_nothing():
    assert list(cuts("F D", {"F": "x", "D": "w"}, Mesh(x=1))) == []
    assert placed(W, {"F": "x"}, Mesh(x=1), {}) == {}
