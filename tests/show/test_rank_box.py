"""The box of ranks: every rank lights its own three groups, and only walls that they cross are red."""

import re
from collections import Counter
from itertools import pairwise

import pytest

import hybridlab as hl
from hybridlab.show.layouts.box_of_ranks import ERROR, box_still, box_svg
from hybridlab.show.layouts.step_in_box import LAYERS, MICROBATCHES, SUMS, in_all, moments

GROUP = re.compile(r'<g data-of="([^"]+)"( style="display:none")?>(.*?)</g>', re.DOTALL)
MESH = hl.Mesh(pp=3, dp=2, tp=2)


def groups(svg):
    """{ranks: (whether it is shown, its walls)} of all groups."""
    found = {
        tuple(map(int, ranks.split())): (not hidden, body.count(ERROR)) for ranks, hidden, body in GROUP.findall(svg)
    }
    return {ranks: told for ranks, told in found.items() if len(ranks) > 1}


def test_every_group_is_in_the_picture_and_only_those_of_the_chosen_rank_are_shown():
    for rank in range(MESH.size):
        drawn = groups(box_svg(MESH, rank, 4))
        assert drawn.keys() == {group for axis in ("pp", "dp", "tp") for group in MESH.groups(axis)}
        assert {group for group, (shown, _) in drawn.items() if shown} == {MESH.group(rank, a) for a in MESH.axes}


@pytest.mark.parametrize("mesh", [MESH, hl.Mesh(tp=2, dp=2, pp=3), hl.Mesh(pp=2, dp=2, tp=4)])
@pytest.mark.parametrize("per_node", [2, 4, 5, 64])
def test_a_wall_is_red_where_two_neighbours_of_a_group_are_on_different_nodes(mesh, per_node):
    for group, (_, walls) in groups(box_svg(mesh, 0, per_node)).items():
        crossed = sum(a // per_node != b // per_node for a, b in zip(group, group[1:]))
        assert walls == 2 * crossed, group  # fill and edge of each


def test_what_the_page_gets_and_what_is_stored():
    box = hl.pictures.box_of_ranks(MESH, rank=5, per_node=4)
    state, (data, _) = box.get_state()["data"], box._repr_mimebundle_()
    assert state["rank"] == 5 and len(state["told"]) == 12 and state["told"][5] == box.summary == data["text/plain"]
    assert state["told"][11] == (
        "rank 11: stage 2, copy 1, part 1. Pipeline 3, 7, 11, crosses nodes. Data group 9, 11. Tensor group 10, 11."
    )
    assert data["image/svg+xml"].startswith("<svg")


@pytest.mark.parametrize(
    "mesh", [MESH, hl.Mesh(tp=2, dp=2, pp=3), hl.Mesh(pp=4), hl.Mesh(dp=4), hl.Mesh(tp=8)], ids=str
)
def test_a_step_uses_each_axis_as_often_as_it_says(mesh):
    added, crossed = Counter(), Counter()
    for one in moments(mesh):
        assert bool(one.groups) != bool(one.hops)
        for group in one.groups:
            added[group] += one.times
        crossed.update(one.hops)
    per_rank = 2 * SUMS * LAYERS * MICROBATCHES
    wanted = {group: per_rank for group in mesh.groups("tp") if mesh["tp"] > 1}
    wanted |= {group: 1 for group in mesh.groups("dp") if mesh["dp"] > 1}
    assert dict(added) == wanted
    lines = [pair for line in mesh.groups("pp") for pair in pairwise(line)]
    assert dict(crossed) == {way: MICROBATCHES for a, b in lines for way in ((a, b), (b, a))}
    told = in_all(mesh)
    assert (f"added {per_rank} times" in told, f"crossed {2 * MICROBATCHES} times" in told, "added 1 time" in told) == (
        mesh["tp"] > 1, mesh["pp"] > 1, mesh["dp"] > 1,
    )  # fmt: skip


def test_a_microbatch_never_overtakes_itself():
    """Each hop of a microbatch comes after it has arrived, and all backwards after its forwards."""
    at = {}
    for number, one in enumerate(moments(hl.Mesh(pp=4))):
        for a, b in one.hops:
            at.setdefault((a, b), []).append(number)
    for m in range(MICROBATCHES):
        way = [at[a, a + 1][m] for a in range(3)] + [at[a + 1, a][m] for a in (2, 1, 0)]
        assert way == sorted(way) and len(set(way)) == len(way)


def test_only_the_page_gets_the_pieces_of_pipelines():
    hops = re.findall(r'data-hop="(\d+) (\d+)"', box_svg(MESH, 0, 4))
    assert len(hops) == 2 * 4 and "data-hop" not in box_still(MESH, 0, 4).svg


@pytest.mark.parametrize(
    "mesh, more, said",
    [
        (hl.Mesh(pp=2, cp=2), {}, "has cp: give a mesh without it"),
        (hl.Mesh(dp=65), {}, "give 64 at most"),
        (MESH, {"rank": 12}, "rank=12 is not in the mesh: choose from 0 to 11"),
        (MESH, {"per_node": 0}, "per_node=0 leaves nodes empty: give 1 or more"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(mesh, more, said):
    with pytest.raises(ValueError, match=said) as caught:
        hl.pictures.box_of_ranks(mesh, **more)
    assert "\n" not in str(caught.value)
