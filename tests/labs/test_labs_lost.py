"""Notebook 40: how often to save where ranks are lost, and the axes of a layer in a table."""

import pytest

import hybridlab as hl
from hybridlab.labs import hybrid
from hybridlab.training.dry.dry_layer import dry_layer

TIMES = (1 / 4, 1, 4)  # Young's interval


@pytest.mark.slow
@pytest.mark.parametrize("save", [10, 60])
def test_youngs_interval_is_the_best_and_its_two_costs_are_equal(save):
    """√(2δ/M) together, each a half; at another interval they are no longer equal, and cost more."""
    young = (2 * save * hybrid.BETWEEN) ** 0.5
    found = {times: hybrid.saving(save, times * young) for times in TIMES}
    assert all(sum(parts) == pytest.approx(1) for parts in found.values())
    saves, lost, _, training = found[1]
    closed = (2 * save / hybrid.BETWEEN) ** 0.5
    assert saves / training == pytest.approx(lost / training, rel=0.2) == pytest.approx(closed / 2, rel=0.2)
    assert max(found, key=lambda times: found[times][3]) == 1


JOBS = {
    "five axes": (hl.Mesh(dp=2, pp=2, cp=2, ep=2, tp=2), {"model": hl.Shape(experts=4), "zero": 1}),
    "grid": (hl.Mesh(dp=2, tp=2, x=2), {"zero": 3}),
    "folded": (hl.Mesh(ep=2, tp=2), {"model": hl.Shape(experts=4), "fold": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_the_table_has_a_row_for_each_axis_of_the_mesh(name):
    """The axis x had none."""
    mesh, about = JOBS[name]
    layer = dry_layer(mesh, **about)
    rows = hybrid.axes(layer).rows
    assert {row[0] for row in rows} == {f"{axis}={length}" for axis, length in mesh.axes.items() if length > 1}
    for axis, _, travels, *_ in rows:
        counts = [int(word) for word in travels.replace(",", "").split() if word.isdigit()]
        assert sum(counts) == sum(one.count for one in layer.along(axis.partition("=")[0])) > 0


@pytest.mark.slow
def test_a_picture_follows_the_ranks_that_are_chosen():
    shown = hybrid.gone()
    assert "12 ranks, 18 microbatches, predicted: length 38 units" in shown.summary
    shown.choose(first=2)
    assert "length 62 units" in shown.summary, "two of one stage"
    shown.choose(second="none", name="zb_h1")
    assert "rerouted zb_h1" in shown.summary and "length 29 units" in shown.summary
    shown.choose(first="none")
    assert "length 21 units" in shown.summary
