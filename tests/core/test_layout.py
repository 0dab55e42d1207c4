"""The layout: over random meshes and records, every element lives somewhere and counts once, and ranks agree on it."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridlab.core.where.layout import Cut, Layout, Param, even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.packs import packed

quick = settings(max_examples=15, suppress_health_check=list(HealthCheck))


@st.composite
def layouts(draw):
    """Random layouts as the modes make them: stages along pp, boxes along tp (or copies), shares along dp, packs."""
    axes = draw(st.permutations(["dp", "pp", "tp"]))
    lengths = {"dp": draw(st.sampled_from([1, 2, 3, 4])), "pp": draw(st.sampled_from([1, 2])),
               "tp": draw(st.sampled_from([1, 2, 4]))}  # fmt: skip
    mesh = Mesh(**{axis: lengths[axis] for axis in axes if lengths[axis] > 1 or draw(st.booleans())})
    owners = draw(st.sampled_from([n for n in range(1, mesh["dp"] + 1) if mesh["dp"] % n == 0]))
    rest = draw(st.sampled_from([1, 2, 3])) if owners > 1 else 0
    params = []
    for number in range(draw(st.integers(1, 5))):
        shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=2)))
        stages = draw(st.sets(st.integers(0, mesh["pp"] - 1), min_size=1, max_size=2))
        shard, partial = {}, ("dp", "pp")
        if mesh["tp"] > 1 and draw(st.booleans()):
            dim = draw(st.integers(0, len(shape) - 1))
            different = draw(st.sampled_from([n for n in (1, 2, 4) if mesh["tp"] % n == 0]))
            spans = [span for span in even(shape[dim], different) for _ in range(mesh["tp"] // different)]
            shard = {"tp": Cut(dim, tuple(spans))}
            partial += ("tp",) if different < mesh["tp"] else ()
        elif draw(st.booleans()):
            partial += ("tp",)
        at = {"pp": tuple(sorted(stages))} if "pp" in mesh.axes else {}
        params.append(Param(f"w{number}", shape, shard, at, partial, owners=owners, rest=rest))
    layout = Layout(mesh, tuple(params))
    homes = {param.name: param.at.get("pp", (0,)) for param in params}
    limits = draw(st.sampled_from([(0, 0), (40, 160), (float("inf"), float("inf"))]))
    return packed(layout, homes, limits, draw(st.sampled_from([2, 8]))).validate()


def elements(layout, name, rank, part=None):
    """The numbers, in the whole parameter, of the elements of a rank's box, or of a share of it."""
    shape = layout[name].shape
    box = np.arange(np.prod(shape)).reshape(shape)[layout.box(name, rank)].reshape(-1)
    return box if part is None else box[part]


def each(layout):
    return [(name, rank) for rank in range(layout.mesh.size) for name in layout.held(rank)]


# ---- elements


@pytest.mark.slow
@given(layouts())
@quick
def test_every_element_is_counted_exactly_once(layout):
    for name in layout.named:
        counted = [elements(layout, name, rank, layout.share(name, rank))
                   for rank in range(layout.mesh.size) if layout.counts(name, rank)]  # fmt: skip
        assert sorted(np.concatenate(counted)) == list(range(np.prod(layout[name].shape)))


@pytest.mark.long
@given(layouts())
@quick
def test_shares_partition_their_box(layout):
    for name, rank in each(layout):
        sharers = layout.sharers(name, rank)
        assert len(sharers) == layout[name].owners and rank in sharers
        assert [layout.share_number(name, other) for other in sharers] == list(range(len(sharers)))
        parts = [layout.share(name, other) for other in sharers]
        assert [layout.share(name, rank, number) for number in range(len(sharers))] == parts
        assert sorted(np.concatenate([elements(layout, name, rank, part) for part in parts])) == sorted(
            elements(layout, name, rank)
        )
        assert all(a.stop <= b.start or a.start == a.stop or b.start == b.stop for a, b in zip(parts, parts[1:]))


@pytest.mark.slow
@given(layouts())
@quick
def test_pieces_of_a_pack_hold_its_shares_and_the_padding_is_at_the_end(layout):
    for pack, names in layout.packs.items():
        for rank in range(layout.mesh.size):
            if layout.box(names[0], rank) is None:
                continue
            owners, piece = layout[names[0]].owners, layout.piece(pack, rank)
            sizes = [layout.size(name, rank) for name in names]
            assert [layout.offset(name, rank) for name in names] == [sum(sizes[:i]) for i in range(len(sizes))]
            assert sum(sizes) <= owners * piece < sum(sizes) + owners
            owner = np.repeat(np.arange(owners), piece)  # of every place in the buffer
            for name in names:
                at = np.arange(layout.size(name, rank))
                mine = owner[layout.offset(name, rank) + at] == layout.share_number(name, rank)
                assert list(at[mine]) == list(at[layout.share(name, rank)])


@pytest.mark.long
@given(layouts())
@quick
def test_what_a_rank_keeps_is_its_pieces(layout):
    param = layout.params[0]
    for rank in range(layout.mesh.size):
        packs = {layout[name].pack for name in layout.held(rank)}
        share = sum(layout.piece(pack, rank) for pack in packs)
        rest = {"optimizer": 1, "gradient": 2, "value": 3}
        kept = {what: share if param.rest >= level else share * param.owners for what, level in rest.items()}
        whole = {name: slice(0, layout.size(name, rank)) for name in layout.held(rank)}
        shares = [layout.share(name, rank) if param.rest else whole[name] for name in whole]
        owned = sum(share.stop - share.start for share in shares)
        kept |= {"owned": owned, "whole": owned * param.whole, "alone": share * (param.rest == 3)}
        assert layout.elements(rank) == kept


# ---- who meets whom


@given(layouts())
@quick
@pytest.mark.long
def test_meetings_are_symmetric_and_every_member_agrees(layout):
    for name, rank in each(layout):
        for meet in (layout.same_box, layout.summed, layout.sharers, layout.copies, layout.twins):
            ranks = meet(name, rank)
            assert rank in ranks and list(ranks) == sorted(set(ranks))
            assert {meet(name, other) for other in ranks} == {ranks}, meet
        box = layout.box(name, rank)
        assert layout.same_box(name, rank) == tuple(
            other for other in range(layout.mesh.size) if layout.box(name, other) == box
        )


@pytest.mark.long
@given(layouts())
@quick
def test_meetings_lie_in_one_another(layout):
    for name, rank in each(layout):
        same, summed = set(layout.same_box(name, rank)), set(layout.summed(name, rank))
        sharers, copies = set(layout.sharers(name, rank)), set(layout.copies(name, rank))
        assert summed <= same and sharers <= same and copies <= same
        assert sharers & copies == {rank}
        assert set(layout.twins(name, rank)) == copies & summed
        assert sharers <= summed  # replicas see different data
        assert len(summed) == len(sharers) * len(layout.twins(name, rank))  # a sum in two steps misses nobody
        assert {other for one in sharers for other in layout.twins(name, one)} == summed


@pytest.mark.slow
@given(layouts())
@quick
def test_every_meeting_of_two_or_more_is_a_group_that_all_open(layout):
    meets = (layout.summed, layout.sharers, layout.twins)
    met = {ranks for one in each(layout) for meet in meets if len(ranks := meet(*one)) > 1}
    assert set(layout.groups) == met and layout.groups == sorted(layout.groups)


def test_who_holds_nothing_meets_nobody():
    """A parameter of the first stage, shared out among copies: the second stage's ranks open no group for it."""
    mesh = Mesh(pp=2, dp=2)
    one = Param("w", (4,), {}, {"pp": (0,)}, ("dp",), owners=2, rest=1)
    assert Layout(mesh, (one,)).groups == [tuple(rank for rank in range(4) if mesh.coordinates(rank)["pp"] == 0)]


# ---- peers, held against the definition: ranks looked at one by one


@pytest.mark.slow
@given(layouts(), st.booleans())
@quick
def test_peers_are_the_ranks_that_hold_the_same(layout, product):
    if product:  # the first parameter is cut along a product of axes
        axes = "+".join(layout.mesh.axes)
        cut = Cut(0, even(layout.params[0].shape[0], layout.mesh.size))
        change = {"shard": {axes: cut} if axes else {}, "at": {}}
        layout = layout.with_params(lambda param: change if param == layout.params[0] else {})
    mesh, every = layout.mesh, range(layout.mesh.size)
    for name, rank in each(layout):
        param, box = layout[name], layout.box(name, rank)
        same = tuple(other for other in every if layout.box(name, other) == box)
        along = mesh.group(rank, param.partial)
        dp = mesh.group(rank, "dp")
        here = dp.index(rank) // param.owners * param.owners
        assert layout.same_box(name, rank) == same
        assert layout.summed(name, rank) == tuple(other for other in same if other in along)
        assert layout.sharers(name, rank) == dp[here : here + param.owners]
        copies = tuple(o for o in same if mesh.place(o, "dp") % param.owners == layout.share_number(name, rank))
        assert layout.copies(name, rank) == copies
        assert layout.twins(name, rank) == tuple(other for other in copies if other in along)
        assert layout.size(name, rank) <= param.largest


@pytest.mark.slow
def test_a_layout_of_thousands_of_ranks_takes_no_longer_than_its_records():
    """3 072 ranks, 1 200 parameters: groups are found pattern by pattern, not name by name and rank by rank."""
    mesh, cut = Mesh(dp=32, pp=12, tp=8), Cut(0, even(64, 8))
    layer = [Param("w", (64, 8), {"tp": cut}), Param("b", (8,), partial=("tp",))] * 6
    params = [
        replace(one, name=f"{number}.{i}", at={"pp": (number // 8,)}, partial=("dp", *one.partial), owners=32, rest=1)
        for number in range(96) for i, one in enumerate(layer)
    ]  # fmt: skip
    begin = time.process_time()
    layout = packed(Layout(mesh, tuple(params)), {one.name: one.at["pp"] for one in params}).validate()
    groups = layout.groups
    assert time.process_time() - begin < 1
    assert len(layout.params) == 1152 and {len(group) for group in groups} == {8, 32, 256}


# ---- the mesh


@given(st.permutations(["dp", "pp", "tp", "cp"]), st.tuples(*[st.integers(1, 3)] * 4))
@quick
def test_lines_are_the_ranks_that_play_one_schedule(axes, lengths):
    mesh = Mesh(**dict(zip(axes, lengths)))
    assert list(mesh.played.axes) == [axis for axis in axes if axis in ("dp", "pp")]
    lines = {mesh.line(rank) for rank in range(mesh.size)}
    assert sorted(rank for line in lines for rank in line) == list(range(mesh.size))
    assert len(lines) == mesh["tp"] * mesh["cp"] and {len(line) for line in lines} == {mesh.played.size}
    assert mesh.inside == tuple(axis for axis in axes if axis in ("tp", "cp") and mesh[axis] > 1)
    for line in lines:
        for seat, rank in enumerate(line):
            place = mesh.coordinates(rank)
            assert mesh.played.coordinates(seat) == {axis: place[axis] for axis in axes if axis in ("dp", "pp")}
            assert mesh.rank(**place) == rank and mesh.place(rank, "tp+cp") == mesh.place(line[0], "tp+cp")


# ---- refusals

W = Param("w", (6, 4), partial=("dp",))


@pytest.mark.parametrize(
    "mesh, params, message",
    [
        (Mesh(tp=2), [replace(W, shard={"tp": Cut(0, ((0, 3),))})], "w has 1 spans along tp=2: give 2 of them"),
        (
            Mesh(tp=2),
            [replace(W, shard={"tp": Cut(0, ((0, 3), (4, 6)))})],
            "w has spans that end at 3 and begin at 4 along tp",
        ),
        (
            Mesh(tp=2),
            [replace(W, shard={"tp": Cut(0, ((0, 4), (3, 6)))})],
            "w has spans that end at 4 and begin at 3 along tp",
        ),
        (
            Mesh(tp=2),
            [replace(W, shard={"tp": Cut(0, ((0, 3), (3, 5)))})],
            "w has length 6, but its spans along tp end at 5",
        ),
        (Mesh(tp=2), [replace(W, shard={"tp": Cut(1, even(6, 2))})], "w has length 4, but its spans along tp end at 6"),
        (Mesh(pp=2), [replace(W, at={"pp": ()})], "w is stored at pp=(), but pp has 2 places"),
        (Mesh(pp=2), [replace(W, at={"pp": (1, 2)})], "w is stored at pp=(1, 2), but pp has 2 places"),
        (
            Mesh(dp=6),
            [replace(W, owners=4)],
            "4 ranks cannot share w: dp=6 must be divisible by their number; choose one of [1, 2, 3, 6]",
        ),
        (
            Mesh(dp=2),
            [W, replace(W, name="v", owners=2)],
            "w, v have different owners or are reduced over different ranks: put them in separate packs",
        ),
        (
            Mesh(tp=2, ep=2),
            [replace(W, shard={"tp": Cut(0, even(6, 2)), "ep": Cut(0, even(6, 2))})],
            "dim 0 of w is sharded along tp and along ep: shard it once, along the product 'tp+ep'",
        ),
        (
            Mesh(tp=2, ep=2),
            [replace(W, shard={"tp": Cut(0, even(6, 2)), "tp+ep": Cut(1, even(4, 4))})],
            "w is sharded twice along tp: leave one of the two out",
        ),
        (Mesh(tp=2, ep=2), [replace(W, shard={"tp+ep": Cut(0, even(6, 2))})], "w has 2 spans along tp+ep=4"),
        (Mesh(dp=2), [W, replace(W, name="v", rest=1)], "w, v have different owners or are reduced over different"),
        (Mesh(dp=2), [W, replace(W, name="v", partial=())], "w, v have different owners or are reduced over"),
        (
            Mesh(pp=2),
            [replace(W, at={"pp": (0,)}), replace(W, name="v", at={"pp": (1,)})],
            "w, v have different owners",
        ),
    ],
)
def test_layouts_with_holes_are_refused_in_a_sentence(mesh, params, message):
    with pytest.raises(ValueError) as refused:
        Layout(mesh, tuple(params)).validate()
    assert message in str(refused.value)


@pytest.mark.slow
@given(layouts(), st.data())
@quick
def test_a_span_too_short_is_refused(layout, data):
    cut = [param for param in layout.params if param.shard]
    if not cut:
        return
    param = data.draw(st.sampled_from(cut))
    axis, (dim, spans) = next(iter(param.shard.items()))
    last = max(high for _, high in spans)
    short = tuple((low, high - (high == last)) if high > low else (low, high) for low, high in spans)
    holed = layout.with_params(lambda one: {"shard": {axis: Cut(dim, short)}} if one.name == param.name else {})
    with pytest.raises(ValueError, match=param.name):
        holed.validate()


# ---- fingerprints


@given(layouts(), layouts())
@quick
@pytest.mark.long
def test_layouts_are_equal_where_their_fingerprints_are(a, b):
    assert (a == b) == (a.fingerprint == b.fingerprint)
    again = Layout(Mesh(**a.mesh.axes), tuple(replace(param) for param in a.params))
    assert again == a and again.fingerprint == a.fingerprint and hash(again) == hash(a)


CHANGES = {
    "name": {"name": "other"},
    "shape": {"shape": (7, 4)},
    "pack": {"pack": 9},
    "owners": {"owners": 2},
    "rest": {"rest": 2},
    "partial": {"partial": ()},
    "at": {"at": {"pp": (0,)}},
    "shard": {"shard": {"tp": Cut(0, even(6, 2))}},
    "the same shares in another order": {"shard": {"tp": Cut(0, even(6, 2)[::-1])}},
}


def test_every_field_and_the_order_of_everything_is_in_the_fingerprint():
    mesh, other = Mesh(dp=2, pp=2, tp=2), Mesh(tp=2, pp=2, dp=2)
    one = Layout(mesh, (W, replace(W, name="v", pack=1)))
    others = [Layout(mesh, (replace(W, **change), one.params[1])) for change in CHANGES.values()]
    others += [Layout(mesh, one.params[::-1]), Layout(other, one.params), Layout(mesh, one.params[:1])]
    prints = [layout.fingerprint for layout in [one, *others]]
    assert len(set(prints)) == len(prints)


def test_a_record_is_found_by_its_name_and_its_pattern_has_no_order():
    one = Param("w", (4, 4), at={"pp": (0,), "tp": (1,)})
    other = Param("w", (4, 4), at={"tp": (1,), "pp": (0,)})
    assert {one: 1}[one] == 1 and hash(one) == hash(other) and one.pattern == other.pattern
