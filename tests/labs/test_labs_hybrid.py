"""Notebook 40: the grid of ranks shows what the layout says, every byte is foreseen."""

import itertools
import re

import pytest
from few import first

import hybridlab as hl
from hybridlab.core.where.layout import Cut, Layout, Param, even
from hybridlab.labs.hybrid import grid as hybrid
from hybridlab.labs.hybrid import tasks as hybrid_tasks
from hybridlab.labs.hybrid.traffic import between_nodes, by_axis, counted
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.transfer import Transfer
from hybridlab.show.layouts.grid_of_ranks import grid_of_ranks, leaving, refusal
from hybridlab.show.paper.style import STYLE

CUBE = hl.Mesh(dp=2, pp=2, tp=2)

# --- the picture ------------------------------------------------------------------------------------------------


def small(**mesh):
    """A layout of one matrix, cut by tp, held by the first stage, shared at rest along dp."""
    mesh = hl.Mesh(**mesh)
    weight = Param("w", (8, 6), shard={"tp": Cut(0, even(8, mesh["tp"]))}, at={"pp": (0,)}, partial=("dp",),
                   owners=mesh["dp"], rest=1)  # fmt: skip
    return Layout(mesh, (weight,)).validate()


def rectangles(svg, colour):
    """(width, height) of all rectangles filled with a colour, without the legend's squares."""
    found = re.findall(rf'width="([\d.]+)" height="([\d.]+)" fill="{colour}"', svg)
    return [(float(w), float(h)) for w, h in found if (w, h) != ("14", "14")]


def test_every_rank_that_holds_something_shows_its_slice_and_its_share():
    still = grid_of_ranks(small(dp=2, pp=2, tp=2))
    boxes, shares = rectangles(still.svg, STYLE["curves"][0]), rectangles(still.svg, STYLE["ink"])
    assert len(boxes) == len(shares) == 4, "the ranks of stage 0"
    assert {high for _, high in boxes} == {27.0}, "half of the rows"
    assert {high for _, high in shares} == {13.5}, "half of the box"


def test_ranks_that_add_have_the_same_letter():
    svg = grid_of_ranks(small(dp=2, pp=2, tp=2)).svg
    assert [svg.count(f"adds: {letter}<") for letter in "abc"] == [2, 2, 0]
    assert "adds: " not in grid_of_ranks(small(pp=2, tp=2)).svg


def test_each_rank_stands_on_its_sheet_and_in_its_node():
    svg = grid_of_ranks(small(dp=3, pp=2), per_node=2).svg
    titles = re.findall(r"<title>(rank \d+: [^<]*)</title>", svg)
    assert sorted(titles) == sorted(f"rank {r}: dp {r // 2}, pp {r % 2}" for r in range(6) for _ in "12")
    assert all(f">node {node}<" in svg for node in range(3)) and ">node 3<" not in svg


@pytest.mark.parametrize("axes, out", [(dict(dp=2, tp=4), 0), (dict(tp=4, dp=2), 2), (dict(pp=2, tp=2, dp=2), 0)])
def test_tensor_groups_that_leave_their_node_are_outlined_as_errors(axes, out):
    mesh = hl.Mesh(**axes)
    assert len(leaving(mesh, 4)) == out
    still = grid_of_ranks(small(**axes), per_node=4)
    ranks = {rank for group in leaving(mesh, 4) for rank in group}
    legend = int(out > 0)
    assert still.svg.count(f'stroke="{STYLE["error"]}"') == legend + 2 * len(ranks)
    assert still.svg.count("✕") == legend + len(ranks)
    assert f"{out} of {len(mesh.groups('tp'))} tensor groups cross nodes" in still.summary


def test_the_words_say_what_the_layout_says():
    told = grid_of_ranks(small(dp=2, pp=2, tp=2), rank=5).summary
    assert "rank 5 at dp 1, pp 0, tp 1; its groups: dp 1, 5; pp 5, 7; tp 4, 5" in told
    assert "computes with rows 4–7 and columns 0–5, owns elements 12–23 of these 24 between steps" in told
    assert "reduces its gradient with ranks 1, 5" in told
    assert "this rank holds no part of it" in grid_of_ranks(small(dp=2, pp=2), rank=1).summary


SHAPES = dict(dp=16), dict(pp=16), dict(tp=16), dict(dp=4, tp=4), dict(pp=2, dp=8), dict(dp=1)


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("per_node", [None, 1, 2, 4, 8])
def test_nothing_is_drawn_outside_the_sheet(axes, per_node):
    mesh = hl.Mesh(**axes)
    weight = Param("w", (16, 16), shard={"tp": Cut(0, even(16, mesh["tp"]))})
    svg = grid_of_ranks(Layout(mesh, (weight,)), per_node=per_node).svg
    wide, tall = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    for x, y, w, h in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg):
        assert float(x) + float(w) <= wide and float(y) + float(h) <= tall


def test_a_layout_is_drawn_by_the_same_verb_as_a_timeline():
    layout = small(dp=2, tp=2)
    assert hl.draw(layout).svg == hl.draw(layout, "w").svg == grid_of_ranks(layout).svg
    with pytest.raises(ValueError, match="no parameter 'v': choose one of w"):
        hl.draw(layout, "v")


def test_a_refusal_is_a_picture_too():
    still = refusal("make it 1 < 2")
    assert "1 &lt; 2" in still.svg and still.summary == "refused: make it 1 < 2"


# --- the controls -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_controls_redraw_and_refuse():
    grid = hybrid.explorer(dp=2, pp=1, tp=2, order="dp pp tp", per_node=2, rank=3)
    assert "rank 3 at dp 1, pp 0, tp 1" in grid.summary and "0 of 2 tensor groups" in grid.summary
    grid.choices["order"].value = "tp dp pp"
    assert "2 of 2 tensor groups cross" in grid.summary
    grid.choices["tp"].value = 3
    assert "tp=3 cannot share out heads=8" in grid.summary
    grid.choices["tp"].value = 16
    assert "= 32 ranks: make it 16 or fewer" in grid.summary
    grid.choices["tp"].value = 1
    assert grid.summary.startswith("refused: ") and "has no rank 3: choose one up to 1" in grid.summary
    assert grid._picture.value == grid.still.svg


@pytest.mark.long
def test_without_a_kernel_the_picture_stands_in():
    grid = hybrid.explorer()
    bundle = grid._repr_mimebundle_()
    assert bundle["image/svg+xml"] == grid.still.svg and bundle["text/plain"] == grid.summary


def test_every_parameter_on_the_menu_exists():
    layout = hybrid.job(hl.Mesh(pp=2)).layout
    assert set(hybrid.PARAMETERS) <= set(layout.named)


@pytest.mark.slow
def test_curves_have_a_point_for_every_loss_and_begin_where_they_do():
    figure = hybrid.curves({"one": [3.0, 2.0, 1.0], "two": [1.5]}, {"two": 2})
    assert [list(trace.x) for trace in figure.data] == [[0, 1, 2], [2]]


# --- bytes ------------------------------------------------------------------------------------------------------

TASKS = [
    (hl.Mesh(dp=2, tp=2), {"zero": 2, "sums": "each"}),
    (hl.Mesh(pp=2, tp=2), {"schedule": "interleaved", "chunks": 2, "accumulate": 2}),
]


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("mesh, more", TASKS)
def test_the_ledger_is_foreseen_axis_by_axis(mesh, more):
    from hybridlab.training.run import train

    ledger = train(mesh, steps=2, shape=hybrid.SHAPE, **more)["timeline"].ledger
    assert counted(ledger, steps=2) == by_axis(hybrid.job(mesh, **more))


def test_bytes_that_leave_a_node_are_counted_on_the_ring():
    message = lambda *ranks: Transfer("activations", "pp", "isend", ranks, 10)
    assert message(3, 4).between(4) == 10 and message(2, 3).between(4) == 0
    ring = Transfer("gradients", "dp", "all_reduce", (0, 2, 4, 6), 100)
    assert ring.between(4) == 2 * cost("all_reduce", 4, 100).bytes, "from 2 to 4, and from 6 back to 0"
    assert ring.between(8) == 0 and ring.between(2) == 4 * cost("all_reduce", 4, 100).bytes
    assert ring.counted == 400 and ring.wire == 4 * cost("all_reduce", 4, 100).bytes
    assert message(3, 4).wire == 10


@pytest.mark.long
def test_the_order_of_the_axes_moves_bytes_and_does_not_make_any():
    orders = [hybrid.job(hybrid.mesh_of(" ".join(order), dp=2, pp=2, tp=2)) for order in
              itertools.permutations(("dp", "pp", "tp"))]  # fmt: skip
    assert len({str(sorted(sum_of_axes(job).items())) for job in orders}) == 1
    outside = {tuple(job.mesh.axes): sum(between_nodes(job, 2).values()) for job in orders}
    assert max(outside, key=outside.get)[-1] != "tp" and min(outside, key=outside.get)[-1] == "tp"


def sum_of_axes(job):
    return {f"{axis} {op}": size for (axis, op), size in by_axis(job).items()}


@pytest.mark.slow
@pytest.mark.parametrize("axes", first(1, [dict(dp=2, pp=2, tp=2), dict(pp=2, dp=2, tp=4), dict(tp=4, pp=2, dp=2)]))
@pytest.mark.parametrize("per_node", [1, 2, 4, 16])
def test_between_nodes_goes_a_part_of_what_is_sent(axes, per_node):
    _, *rows = hybrid.table(hybrid.job(hl.Mesh(**axes), zero=1), per_node)
    number = lambda text: int(text.replace(",", ""))
    for row in rows:
        assert 0 <= number(row[4]) <= number(row[3])
        assert per_node > 1 or row[4] == row[3]
        assert per_node < 16 or number(row[4]) == 0


@pytest.mark.slow
def test_the_table_ends_with_the_sum():
    heading, *rows, last = hybrid.table(hybrid.job(CUBE, zero=1), per_node=4)
    number = lambda text: int(text.replace(",", ""))
    assert len({len(row) for row in (heading, *rows, last)}) == 1
    assert number(last[3]) == sum(number(row[3]) for row in rows)


@pytest.mark.long
@pytest.mark.ranks
def test_the_forgotten_sum_is_caught_where_it_matters(bench):
    mesh, asked = hl.Mesh(dp=2, tp=2), dict(shape=hybrid.SHAPE, zero=1, sequence=True)
    right, lost = bench.asked(mesh, **asked), hl.check(mesh, **asked, sabotage=hybrid.forget_the_tensor_sum)
    assert right.ok and not lost.ok
    assert ": equal to one device" in hybrid.proof(right) and ": not equal to one device" in hybrid.proof(lost)
    assert "gap below 1e-11" in hybrid.proof(right) and "gap below" not in hybrid.proof(lost)
    wrong = {name for name in lost.wrong if name.startswith("gradient")}
    layout = hybrid.job(hl.Mesh(dp=2, tp=2), zero=1, sequence=True).layout
    assert wrong == {f"gradient {name}" for name in layout.named if len(layout.summed(name, 0)) == 4}


# --- what students build ----------------------------------------------------------------------------------------


def test_groups_of_a_grid_are_those_of_the_mesh():
    from hybridlab.labs.hybrid.trial import Grid

    for grid in (Grid(2, 2, 2), Grid(3, 2, 1), Grid(1, 2, 3)):
        for rank in range(grid.ranks):
            stage, copy, part = grid.place(rank)
            assert rank == (stage * grid.d + copy) * grid.t + part
            assert all(rank in group for group in grid.groups(rank))


def test_what_is_off_in_a_step_is_told():
    from hybridlab.labs.hybrid.trial import Did, Grid, judge

    grid = Grid(2, 2, 2)
    did = lambda **more: [Did(grid.groups(rank), **{"gap": 0.0} | more) for rank in range(8)]
    assert judge(grid, did()) == ""
    assert "own rows" in judge(grid, did(gap=0.1, alone=0.0)) and "1/2 of" in judge(grid, did(gap=0.1, mean=0.0))
    assert "a collective takes 8 ranks" in judge(grid, did(widest=8)) and "two tensors" in judge(
        grid, did(gap=float("inf"))
    )
    last_only = did()
    last_only[:4] = [Did(grid.groups(rank), gap=0.5) for rank in range(4)]
    assert "only a partial sum" in judge(grid, last_only)
    assert "three lists" in judge(grid, [Did([[0]])])


def test_shards_of_a_stage_add_up_to_its_gradient():
    """The reference of a step: by all rows what its halves add up to, cut as the ranks hold it."""
    import torch

    from hybridlab.labs.hybrid.rank import one_process, shards

    whole, *halves = (one_process(2, rows) for rows in (slice(None), slice(0, 6), slice(6, 12)))
    for stage, one, other in zip(whole, *halves):
        for name, parts in zip(stage, zip(one, other)):
            assert torch.allclose(name, sum(parts))
    parts = [shards(whole[0], part, 3) for part in range(3)]
    assert torch.equal(torch.cat([A for A, _ in parts]), whole[0][0])
    assert torch.equal(torch.cat([B for _, B in parts], dim=1), whole[0][1])


def test_the_largest_difference_is_found_wherever_it_is():
    import torch

    from hybridlab.labs.hybrid.in_torch import furthest, two_layers

    class Sharded(torch.Tensor):
        full_tensor = torch.Tensor.clone

    model, whole = two_layers(), two_layers()
    for one, other in zip(model.parameters(), whole.parameters()):
        other.grad = torch.ones_like(other)
        one.grad = torch.ones_like(one).as_subclass(Sharded)
    assert furthest(model, whole) == 0
    whole[2].bias.grad[3] = 4
    assert furthest(model, whole) == 3


# --- exercises --------------------------------------------------------------------------------------------------


def test_the_given_builder_passes_the_test_of_its_author():
    """With p = t = d = 2 a step of d is a step of t."""
    given = lambda p, t, d: [
        tuple(range(first, first + d * t, d)) for s in range(p) for first in range(s * d * t, s * d * t + t)
    ]
    right = lambda p, t, d: hl.Mesh(pp=p, dp=d, tp=t).groups("dp")
    assert given(2, 2, 2) == list(right(2, 2, 2)) and given(1, 4, 2) != list(right(1, 4, 2))


@pytest.mark.long
def test_no_design_that_fits_sends_less_than_the_best():
    """Every grid of sixteen ranks, in every order of its axes."""
    powers, best = (1, 2, 4, 8, 16), hybrid_tasks.bill(*hybrid_tasks.BEST)
    assert best[0] <= hybrid_tasks.CAP
    tried = set()
    for dp, pp, tp in itertools.product(powers, repeat=3):
        for order in itertools.permutations(("dp", "pp", "tp")) if dp * pp * tp == 16 else ():
            axes = {axis: {"dp": dp, "pp": pp, "tp": tp}[axis] for axis in order}
            mesh = hl.Mesh(**{axis: length for axis, length in axes.items() if length > 1})
            if mesh in tried:
                continue
            tried.add(mesh)
            try:
                fullest, out = hybrid_tasks.bill(mesh, 2 if dp > 1 else 0)
            except ValueError:
                continue
            assert fullest > hybrid_tasks.CAP or out > best[1] or mesh == hybrid_tasks.BEST[0], mesh


@pytest.mark.long
def test_the_question_of_the_notebook_has_its_answer():
    fast, slow = (sum(between_nodes(hybrid.job(hl.Mesh(**axes)), 4).values()) for axes in
                  (dict(pp=2, dp=2, tp=4), dict(tp=4, pp=2, dp=2)))  # fmt: skip
    assert round(slow / fast, 1) == 6.4
