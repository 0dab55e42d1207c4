"""AxoNN's layer, on the whole model: every factorisation of the ranks into x, y (tp), z (ZeRO's owners) and copies."""

import pytest
from few import first

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.labs.axonn.factorisations import SMALL, Grid, grids
from hybridlab.modes import grid_parallel
from hybridlab.modes.grid_parallel import GridParallel
from hybridlab.predict.bytes.traffic import along
from hybridlab.training.dry.one_rank import played
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gpt import Dropout

pytestmark = pytest.mark.ranks
GRIDS = [pytest.param(grid, marks=() if grid == (2, 2, 2, 1) else pytest.mark.long, id="·".join(map(str, grid)))
         for grid in grids(8)]  # fmt: skip


def across(report) -> int:
    """Bytes along x in the ledgers of all ranks."""
    return report.axes.get(("across", "x", "all_reduce"), (0, 0))[0]


def by_the_formula(shape, x, y, z, copies) -> float:
    """The closed formula's: three steps of two sequences on each of so many copies, in float64."""
    tokens, ranks = 2 * shape.context, x * y * z * copies
    return 3 * ranks * 8 * along(shape, tokens, y) * (x > 1)


def proved(*sizes, **more):
    """The proof of one factorisation: z ranks along dp share out what they gather for use."""
    grid = Grid(*sizes)
    return hl.check(grid.mesh, microbatches=1, **grid.options, **{"model": SMALL} | more)


@pytest.mark.parametrize("grid", GRIDS)
def test_every_factorisation_trains_as_one_device_does_and_every_byte_is_claimed(grid):
    report = proved(*grid)
    assert report.ok and report.largest_gap < 1e-11, report
    assert across(report) == by_the_formula(SMALL, *grid)


@pytest.mark.long
@pytest.mark.parametrize("style, kv_heads", [("llama", 4), ("gpt", 2), ("gpt", 1)])
def test_the_closed_formula_knows_other_blocks(style, kv_heads):
    shape = Shape(layers=2, width=32, heads=4, kv_heads=kv_heads, context=8, style=style)
    assert across(proved(2, 2, 1, 1, model=shape)) == by_the_formula(shape, 2, 2, 1, 1)


@pytest.mark.long
@pytest.mark.parametrize("schedule, chunks", [("1f1b", None), ("interleaved", 2), ("zb_h1", None)])
def test_it_stands_inside_a_pipeline(schedule, chunks):
    shape = Shape(layers=4, width=24, heads=4, context=8)
    report = hl.check(hl.Mesh(pp=2, x=2, tp=2), schedule, model=shape, **({"chunks": chunks} if chunks else {}))
    assert report.ok, report


def test_dropout_draws_for_the_features_that_a_rank_has(monkeypatch):
    job = job_of(hl.Mesh(x=2, tp=2), model=Shape(layers=1, width=8, heads=2, context=4, dropout=0.2))
    fitted, fit = [], GridParallel.fit
    monkeypatch.setattr(GridParallel, "fit", lambda *about: fitted.append(about[1]) or fit(*about))
    for rank in job.mesh.group(0, "x"):
        played(job, rank)
        drops = [one for one in fitted.pop().modules() if isinstance(one, Dropout)]
        assert drops and {one.feature for one in drops} == {4 * job.mesh.coordinates(rank)["x"]}


@pytest.mark.parametrize(
    "changes, more",
    [
        pytest.param({"kv_heads": 2}, {}, id="grouped queries", marks=pytest.mark.long),
        pytest.param(
            {"tied": True, "dropout": 0.2}, {"clip": 1.0, "optimizer": "adamw"}, id="dropout", marks=pytest.mark.long
        ),
        pytest.param({"width": 40}, {"sequence": True}, id="sequence", marks=pytest.mark.long),
        pytest.param({"style": "llama"}, {}, id="modern", marks=pytest.mark.long),
        pytest.param({}, {"dtype": "bfloat16"}, id="bfloat16", marks=pytest.mark.long),
        pytest.param({"style": "llama"}, {"dtype": "bfloat16"}, id="modern in bfloat16", marks=pytest.mark.long),
    ],
)
def test_it_goes_together_with_the_rest(changes, more):
    shape = Shape(**{"layers": 2, "width": 32, "heads": 4, "context": 8} | changes)
    report = hl.check(hl.Mesh(x=2, tp=2), model=shape, microbatches=2, **more)
    assert report.ok, report


@pytest.mark.long
@pytest.mark.parametrize("mesh", [hl.Mesh(x=2, tp=2), hl.Mesh(dp=2, x=2), hl.Mesh(cp=2)], ids=str)
def test_a_checkpoint_of_copies_goes_on_inside_a_stage(mesh, tmp_path):
    asked = {"model": Shape(layers=2, width=16, heads=4, context=8), "batch": 8, "dtype": "float64"}
    whole = hl.train(hl.Mesh(dp=2), steps=4, **asked)["losses"]
    hl.train(hl.Mesh(dp=2), steps=2, checkpoint=tmp_path, **asked)
    rest = hl.train(mesh, steps=4, checkpoint=tmp_path, resume=True, **asked)["losses"]
    assert rest == pytest.approx(whole[2:], rel=1e-12)


def forgotten():
    """A mutant: what one matrix makes for all is used as if it had entered."""
    grid_parallel.enter = lambda comm, x, axis: x


def one_summand():
    """A mutant: norms know their own features only."""
    grid_parallel.NormAlong._mean = lambda self, x: x.mean(-1, keepdim=True)


def not_added():
    """A mutant: every rank goes on with its own summand."""
    grid_parallel.all_reduce = lambda comm, x, axis, to: x


@pytest.mark.parametrize("mutant", first(1, (forgotten, one_summand, not_added)))
def test_a_mutant_is_caught(mutant):
    report = hl.check(hl.Mesh(x=2), model=SMALL, microbatches=1, sabotage=mutant)
    assert not report.ok and report.largest_gap > 1e-4


def test_what_cannot_be_cut_is_refused_in_a_sentence():
    for words, mesh, more in (
        ("no dimension of this model has that name", hl.Mesh(x=2), {"model": "conv"}),
        ("choose x up to 2", hl.Mesh(x=4), {"model": Shape(layers=1, width=2, heads=1, context=4)}),
    ):
        with pytest.raises(ValueError, match=words):
            hl.check(mesh, **more)
