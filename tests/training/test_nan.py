"""A training run that turns into nan ends within the step: told with rank, step, first tensor and last good checkpoint.

A nan is put in on one rank of eight: into a forward, a backward, a sum inside a stage, a sum of gradients, the
optimizer; on one that shares its stage, its weights and its copies with others.
"""

import re
import sys

import cloudpickle
import pytest
import torch

import hybridlab as hl
from hybridlab.modes import tensor_parallel
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.runtime.work import ModelWork
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.training.models.trees import mapped
from hybridlab.training.resume import Saving
from hybridlab.training.run import train
from hybridlab.world.talk.nans import FirstNan

cloudpickle.register_pickle_by_value(sys.modules[__name__])
CUBE, SICK, STEP = hl.Mesh(dp=2, pp=2, tp=2), 5, 2
ABOUT = dict(
    shape=hl.Shape(layers=4, width=16, heads=4, context=8), microbatches=2, batch=8, steps=4, optimizer="adamw"
)


def poisoned(x):
    return x.detach().clone().index_fill_(-1, torch.tensor([0]), float("nan"))


class Poison:
    """What puts a nan into one rank's `what`, in one step; patch is a pytest.MonkeyPatch."""

    def __init__(self, patch, comm):
        self.patch, self.sick, self.step = patch, comm.rank == SICK, -1
        played = loop.Trainer._played

        def noted(trainer, step):
            self.step = step
            return played(trainer, step)

        patch.setattr(loop.Trainer, "_played", noted)

    @property
    def due(self):
        return self.sick and self.step == STEP

    def forward(self):
        call = Replicated.call
        wrong = lambda module: lambda *x: mapped(lambda y: y * (float("nan") if self.due else 1.0), module(*x))
        self.patch.setattr(Replicated, "call", lambda weights, *which: wrong(call(weights, *which)))

    def backward(self):
        backward = ModelWork.backward

        def wrong(work, stage, microbatch, version, arrived):
            inputs, outputs = work.kept[stage, microbatch]
            if self.due and microbatch % 2:
                named = {name: weight for name, weight in work.weights.by_name.items() if "mlp.up.weight" in name}
                next(iter(named.values())).grad[0, 0] = float("nan")
            return backward(work, stage, microbatch, version, arrived)

        self.patch.setattr(ModelWork, "backward", wrong)

    def inside(self):
        leave = tensor_parallel.WholeStream.leave
        wrong = lambda stream, x: leave(stream, x * float("nan") if self.due else x)
        self.patch.setattr(tensor_parallel.WholeStream, "leave", wrong)

    def sums(self):
        take = Replicated._take
        wrong = lambda weights, names, flat: take(weights, names, poisoned(flat) if self.due else flat)
        self.patch.setattr(Replicated, "_take", wrong)

    def optimizer(self):
        step = torch.optim.AdamW.step

        def wrong(optimizer, *more):
            step(optimizer, *more)
            if self.due:
                optimizer.param_groups[0]["params"][0].data.view(-1)[0] = float("inf")

        self.patch.setattr(torch.optim.AdamW, "step", wrong)


def _poisoned(comm, where, job, saving):
    with pytest.MonkeyPatch.context() as patch:
        getattr(Poison(patch, comm), where)()
        return loop.train_on_rank(comm, job, saving=saving)


FIRST = {  # where: what is told, of rank 5: dp=1, pp=0, tp=1
    "forward": "the output of stage 0 in the forward of microbatch 2",
    "backward": r"this rank's partial gradient of blocks.\d.mlp.up.weight",
    "inside": r"the tensor of all_reduce \(.*\) along tp, for inside",
    "sums": "the gradient of .*",
    "optimizer": ".* after the update",
}

QUICK = ("forward", "sums")


@pytest.fixture(scope="module")
def pool():
    with hl.ranks(CUBE) as pool:
        yield pool


@pytest.mark.ranks
@pytest.mark.parametrize("where", [one if one in QUICK else pytest.param(one, marks=pytest.mark.long) for one in FIRST])
def test_the_rank_the_step_and_the_tensor_are_named_and_what_was_saved_stays(pool, tmp_path, where):
    job, saving = job_of(CUBE, **ABOUT), Saving(tmp_path, every=1)
    with pytest.raises(hl.RankError) as caught:
        pool.run(_poisoned, where, job, saving)
    error = caught.value
    assert (error.rank, error.kind) == (SICK, "FloatingPointError"), error
    said = rf"step {STEP}: {FIRST[where]} is not a number \(the first such tensor\); "
    assert re.match(said, error.message), error.message
    bad, good = tmp_path / "step-000002", tmp_path / "step-000001"
    kept = f"{bad} holds the weights that led to it: delete it to go on from {good}, the last good one"
    assert kept in str(error) and "\n" not in str(error)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000002"]


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1", "pipedream"])
def test_a_rate_that_is_too_large_ends_the_training(schedule):
    with pytest.raises(
        hl.RankError, match="FloatingPointError: step [0-9]: .* is not a number.*nothing was saved"
    ) as how:
        train(hl.Mesh(pp=2), schedule, 2, shape=ABOUT["shape"], steps=9, rate=1e18, optimizer="sgd", progress=False)
    assert how.value.kind == "FloatingPointError"


def test_large_numbers_are_numbers():
    """A sum without bounds is looked at once more, element by element."""
    nans, name = FirstNan(), lambda: "x"
    nans.decides(name, torch.tensor([3e38, 3e38, -1.0]))
    assert nans.well()
    nans.decides(name, torch.tensor([1.0, float("inf")]))
    assert not nans.well()
    nans.begin()
    assert nans.well() and nans.first() is None


def test_a_nan_comes_before_a_sum_without_bounds():
    nans = FirstNan()
    nans.made(lambda: "large", torch.tensor([3e38, 3e38]))
    nans.came(lambda: "nan", torch.tensor([float("nan")]))
    assert nans.first()[:2] == ("nan", True)
