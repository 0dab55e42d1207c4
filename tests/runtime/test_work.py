"""What a stage does when its turn comes, on one process: forwards, whole and split backwards, and forwards done again.

Two tensors travel from the first stage to the last one. One of them is of whole numbers, which have no gradient.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import hybridlab as hl
from hybridlab.core.when.action import Action
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.parts.replicated import AS_WEIGHTS, Policy, Replicated
from hybridlab.runtime.work import Ends, ModelWork
from hybridlab.training.make_job import job_of

DOUBLE, SINGLE, HALF = torch.float64, torch.float32, torch.bfloat16
ALONE = SimpleNamespace(rank=0, device=torch.device("cpu"), open=lambda *groups: None)
WAYS = ("whole", "split", "again")
INPUTS, TARGETS = torch.arange(12, dtype=DOUBLE).view(2, 2, 3) / 7, torch.ones(2, 2, dtype=DOUBLE)


class First(nn.Linear):
    """Some numbers, and which of them are positive."""

    def forward(self, x_BD):
        y_BF = super().forward(x_BD)
        return ((y_BF.tanh(), (y_BF > 0).long()),)


class Last(nn.Linear):
    """One score of each row, from both."""

    def forward(self, y_BF, positive_BF):
        return super().forward(y_BF * (1 + positive_BF)).squeeze(1)


def of(scores, targets):
    """The loss of one microbatch."""
    return (scores - targets).square().sum()


def made(dtype=DOUBLE, policy=AS_WEIGHTS):
    """(the stages, the work of both)."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stages = {0: First(3, 4, dtype=dtype), 1: Last(4, 1, dtype=dtype)}
    named = {s: {f"{s}.{name}": weight for name, weight in stage.named_parameters()} for s, stage in stages.items()}
    params = tuple(Param(name, tuple(weight.shape)) for its in named.values() for name, weight in its.items())
    weights = Replicated(ALONE, Layout(Mesh(), params), stages, named, program=[], early=False, policy=policy)
    rooms = {0: [torch.empty(2, 4, dtype=dtype), torch.empty(2, 4, dtype=torch.int64)]}
    work = ModelWork(weights, Ends({0}, {1: lambda targets: targets}), of, rooms, SimpleNamespace(), rows=(2, 0))
    work.load(list(INPUTS.to(dtype)), list(TARGETS.to(dtype)), tokens=4)
    weights.begin()
    return stages, work


def do(work, text, arrived=()):
    action = Action.parse(text)
    return list(work.bind(action, action)(arrived))


def sent(work, name, tensors):
    """The tensors as a message brings them: in room of their own."""
    return [tuple(there.copy_(x) for there, x in zip(work.room(0, name), tensors, strict=True))]


def trained(work, m, way):
    """One microbatch forward and backward."""
    (up,) = do(work, f"0{'C' if way == 'again' else 'F'}{m}")
    do(work, f"1F{m}", sent(work, "activation", up))
    (down,) = do(work, f"1{'I' if way == 'split' else 'B'}{m}")
    back = sent(work, "gradient", down)
    for text in {"whole": ["0B"], "split": ["0I", "1W", "0W"], "again": ["0R", "0B"]}[way]:
        do(work, f"{text}{m}", back)


@pytest.mark.parametrize("way", WAYS)
def test_stages_give_the_loss_and_the_gradients_of_the_whole_model(way):
    stages, work = made()
    for m in range(2):
        trained(work, m, way)
    alone, _ = made()
    losses = [of(alone[1](*alone[0](x)[0]), y) / 4 for x, y in zip(INPUTS, TARGETS)]
    sum(losses).backward()
    assert torch.equal(work.losses, torch.stack(losses).detach())
    for s in stages:
        for one, other in zip(stages[s].parameters(), alone[s].parameters()):
            assert torch.allclose(one.grad, other.grad, rtol=1e-14) and other.grad.any()


def test_a_stage_keeps_a_forward_until_its_backward_and_of_a_checkpointed_one_what_came_in():
    for kind, most in (("F", 2), ("C", 0)):
        _, work = made()
        left = [do(work, f"0{kind}{m}")[0] for m in range(2)]
        assert work.peak_live == most
        assert not any(x.requires_grad for one in left for x in one)


def test_a_gradient_travels_for_what_can_have_one():
    _, work = made()
    assert [x.dtype for x in work.room(0, "activation")] == [DOUBLE, torch.int64]
    assert [x.dtype for x in work.room(0, "gradient")] == [DOUBLE]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_in_few_bits_are_added_up_in_more(way):
    """However a backward is done: what a step gives the optimizer is the sum in float32 of what microbatches give."""

    def gradients(*microbatches):
        stages, work = made(HALF, Policy(sums=SINGLE, master=SINGLE))
        for m in microbatches:
            trained(work, m, way)
        work.weights.finish()
        return {name: share.grad for name, share in work.weights.shares.items()}

    both, one, other = gradients(0, 1), gradients(0), gradients(1)
    assert all(x.dtype == SINGLE and torch.equal(x, one[name] + other[name]) for name, x in both.items())
    assert any(not torch.equal(x, (one[name].to(HALF) + other[name].to(HALF)).float()) for name, x in both.items())


@pytest.mark.slow
def test_the_width_of_sums_and_of_what_is_updated_are_asked_for_one_by_one():
    for asked in ({"sum_dtype": "bfloat16"}, {"master_dtype": "bfloat16"}):
        job = job_of(Mesh(dp=2), dtype="bfloat16", **asked)
        assert {"sum_dtype": "float32", "master_dtype": "float32"} | asked == {
            name: job[name] for name in ("sum_dtype", "master_dtype")
        }


@pytest.mark.parametrize("verb", ["check", "run of a model", "train"])
def test_the_parent_of_ranks_is_told_what_to_import_before_they_start(monkeypatch, verb):
    """Else each rank imports it by itself: seconds, where there are more ranks than cores."""
    from hybridlab.training import check, run

    def started(mesh, hang_s=None):
        raise InterruptedError

    module, told = check if verb == "check" else run, []
    monkeypatch.setattr(module, "foresee", told.append)
    monkeypatch.setattr(module, "training_ranks", started)
    begin = {
        "check": lambda: check.check(Mesh(pp=2)),
        "run of a model": lambda: run.run(hl.schedule("1f1b", ranks=2, microbatches=2), work="model"),
        "train": lambda: run.train(Mesh(pp=2)),
    }
    with pytest.raises(InterruptedError):
        begin[verb]()
    assert told == [module.__name__]


def test_a_way_to_cut_that_nobody_knows_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="cut='halves' is not a known division into stages: choose one of .*time"):
        job_of(Mesh(pp=2), cut="halves").bounds
