"""Copies that step alone, and seldom exchange their updates: equal to a replay, to one device in a special case, and to
torch's own local SGD; bytes by the closed form; mistakes that others have made with the outer step; checkpoints.
"""

import math
import sys

import cloudpickle
import equality
import pytest
import torch
from few import first

import hybridlab as hl
from hybridlab.modes.parts.apart import Apart
from hybridlab.runtime.work import ModelWork
from hybridlab.training import loop
from hybridlab.training import reference as on_one
from hybridlab.training.make_job import job_of
from hybridlab.training.replay_copies import Copies
from hybridlab.training.resume import pieces, stored_layout

pytestmark = pytest.mark.ranks
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(equality)

SHAPE = hl.Shape(layers=2, width=16, heads=2, context=8)
ADAM = {"optimizer": "adamw", "rate": 1e-2}
STREAM = {"sync_every": 4, "fragments": 2, "sync_delay": 1, "mix": 0.5, "steps": 10}
MEAN = {"outer_rate": 1.0, "outer_momentum": 0.0}
TWO = hl.Mesh(dp=2)
CASES = [
    (TWO, {}),
    (TWO, ADAM | STREAM),
    (hl.Mesh(dp=2, pp=2), ADAM | {"sync_every": 3, "fragments": 3, "sync_delay": 2, "mix": 0.25, "steps": 7}),
    (hl.Mesh(dp=2, tp=2), {"sequence": True, "clip": 0.5}),
    (hl.Mesh(tp=2, dp=2), ADAM | {"clip": 0.5, "sync_every": 1}),
    (TWO, {"accumulate": 2}),
    (hl.Mesh(dp=4), ADAM | STREAM | MEAN),
    (hl.Mesh(pp=2), ADAM),  # one copy: a look ahead
    (hl.Mesh(dp=2, pp=2), {"shape": hl.Shape(layers=2, width=16, heads=2, context=8, tied=True)}),
    (hl.Mesh(dp=2, pp=2), {"schedule": "chimera"}),
    (hl.Mesh(dp=2, pp=2), {"schedule": "zb_h1", "driven": True} | ADAM),
    (hl.Mesh(dp=2, pp=2), {"schedule": "vocabulary_1f1b", "shape": hl.Shape(layers=4, width=16, heads=2, context=8)}),
    (hl.Mesh(dp=2, cp=2), ADAM),
    (hl.Mesh(dp=2, x=2), ADAM),
    (hl.Mesh(dp=2, tp=2), {"optimizer": "muon", "rate": 1e-2}),
    (hl.Mesh(dp=2, ep=2), {"of_experts": True}),
    (TWO, {"shape": hl.Shape(layers=2, width=16, heads=2, context=8, dropout=0.1)} | STREAM),
    (TWO, {"shape": None, "model": "conv", "batch": 16}),  # each copy has its own running averages
    (TWO, {"dtype": "bfloat16"}),
]


def asked(**more):
    """The arguments of a check in which copies step alone."""
    if more.pop("of_experts", False):
        more["shape"] = hl.Shape(layers=2, width=16, heads=2, context=8, experts=4, chosen=2)
    return {"shape": SHAPE, "sums": "local", "steps": 5} | more


@pytest.mark.parametrize("mesh, more", first(4, CASES), ids=str)
def test_copies_that_step_alone_are_those_of_a_replay(bench, mesh, more):
    report = bench.asked(mesh, **asked(**more))
    assert report.ok and report.reference == "a replay of its copies on one device", report
    assert report.largest_gap <= (1e-10 if more.get("dtype") != "bfloat16" else 2e-2)
    assert "equal to a replay of its copies" in str(report)


# ---- special cases


def trained(comm, job):
    trainer = loop.Trainer(comm, job)
    losses = [loss for step in range(job.steps) for loss in trainer.step(step)[0]]
    return losses, {name: share.detach().clone() for name, share in trainer.parameters.items()}


def test_a_mean_after_every_step_of_sgd_is_plain_data_parallelism_and_one_device(bench):
    """A proof without a replay: θ - mean(rate·g) is θ - rate·mean(g)."""
    job = job_of(TWO, shape=SHAPE, dtype="float64", sums="local", sync_every=1, steps=4, **MEAN)
    plain = job_of(TWO, shape=SHAPE, dtype="float64", steps=4)
    (alone,) = bench.pool(hl.Mesh(pp=1)).run(on_one.alone_on_rank, plain)
    for one in (plain, job):
        for losses, weights in bench.pool(TWO).run(trained, one):
            assert max(abs(a - b) for a, b in zip(losses, alone["losses"], strict=True)) <= 1e-12
            assert max(float((weights[name] - x).abs().max()) for name, x in alone["weight"].items()) <= 1e-12


def by_torch(comm, job):
    """torch's post-local SGD: DDP whose hook reduces over a group of one rank, and its averager of models."""
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    from hybridlab.training.first_weights import whole_of
    from hybridlab.training.models.gpt import token_loss

    module = whole_of(job)
    ddp = torch.nn.parallel.DistributedDataParallel(module)
    alone, _ = torch.distributed.new_subgroups(group_size=1)
    ddp.register_comm_hook(hook.PostLocalSGDState(None, alone, start_localSGD_iter=0), hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=job["sync_every"], warmup_steps=job["sync_every"] - 1)
    optimizer = PostLocalSGDOptimizer(torch.optim.AdamW(module.parameters(), lr=job.rate, weight_decay=0.0), averager)
    each = len(job.schedule.replica_of) // comm.size
    for step in range(job.steps):
        inputs, targets = job.batch(step)
        mine = slice(comm.rank * each, (comm.rank + 1) * each)
        optimizer.zero_grad()
        loss = token_loss(ddp(torch.cat(inputs[mine])), torch.cat(targets[mine])) / job.tokens
        loss.backward()
        optimizer.step()
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


@pytest.mark.parametrize("every", first(1, [2, 3]))
def test_local_sgd_is_that_of_torch(bench, every):
    job = job_of(TWO, shape=SHAPE, dtype="float64", sums="local", sync_every=every, steps=6, **MEAN, **ADAM)
    theirs = bench.pool(TWO).run(by_torch, job)
    for (_, weights), its in zip(bench.pool(TWO).run(trained, job), theirs):
        gaps = {name: float((weights[name] - x).abs().max()) for name, x in its.items()}
        assert max(gap for name, gap in gaps.items() if "k.bias" not in name) <= 1e-10, gaps  # a gradient of noise
    apart = [(theirs[0][name] - theirs[1][name]).abs().max() for name in theirs[0]]
    assert (max(apart) > 1e-6) == (job.steps % every > 0)


# ---- bytes


@pytest.mark.parametrize("copies, every", [(2, 2), (3, 3)])
def test_a_copy_sends_in_h_steps_what_plain_data_parallelism_sends_in_one(bench, copies, every):
    report = bench.asked(hl.Mesh(dp=copies), **asked(sync_every=every, steps=2 * every, dtype="float32"))
    number = sum(math.prod(param.shape) for param in job_of(TWO, shape=SHAPE).records)
    assert report.axes == {("moves", "dp", "all_reduce"): (2 * copies * 4 * number,) * 2}, "twice, on every rank"
    closed = 2 * number * 4 * (copies - 1) / copies / every
    assert hl.bytes.sent_per_step(number, copies, every) == pytest.approx(closed)


# ---- mutants


def momentum_reset(patch):
    take = Apart._take_step

    def reset(weights, mean):
        for name in mean:
            weights.momenta[name].zero_()
        take(weights, mean)

    patch.setattr(Apart, "_take_step", reset)


def sign_turned(patch):
    move = Apart._move
    patch.setattr(Apart, "_move", lambda weights, name: -move(weights, name))


def own_for_mean(patch):
    """Every copy takes its own move; the bytes are sent for nothing."""
    sent = Apart._sent

    def own(weights, fragment):
        sent(weights, fragment).wait()
        return {name: weights._move(name) for name in weights._names(fragment)}

    patch.setattr(Apart, "_sent", own)


def sum_for_mean(patch):
    mean = Apart._mean
    patch.setattr(Apart, "_mean", lambda one, q: {name: x * len(one.copies) for name, x in mean(one, q).items()})


def momentum_not_nesterov(patch):
    """θ_old - rate·v, with the same v."""
    take = Apart._take_step

    def plain(weights, mean):
        ahead = {}
        for name, move in mean.items():
            speed = weights.outer.momentum * weights.momenta[name] + move
            ahead[name] = weights.outer.rate * (move + weights.outer.momentum * speed - speed)
        take(weights, mean)
        for name, off in ahead.items():
            weights.anchors[name].add_(off)
            with torch.no_grad():
                weights.shares[name].add_(off)

    patch.setattr(Apart, "_take_step", plain)


def anchor_not_moved(patch):
    """The copy goes on from the new weights, but its next move is counted from the oldest."""
    take = Apart._take_step

    def stays(weights, mean):
        before = {name: weights.anchors[name].clone() for name in mean}
        take(weights, mean)
        for name, old in before.items():
            weights.anchors[name].copy_(old)

    patch.setattr(Apart, "_take_step", stays)


def state_of_adam_averaged(patch):
    update = loop.Trainer.update

    def averaged(trainer):
        update(trainer)
        for its in trainer.optimizer.state.values():
            for kind in ("exp_avg", "exp_avg_sq"):
                its[kind].copy_(trainer.report.all_reduce(its[kind].clone(), "dp") / trainer.comm.mesh["dp"])

    patch.setattr(loop.Trainer, "update", averaged)


def divided_by_the_tokens_of_all(patch):
    load = ModelWork.load
    patch.setattr(
        ModelWork, "load", lambda work, inputs, targets, tokens, *more: load(work, inputs, targets, 2 * tokens, *more)
    )


def used_at_once(patch):
    """The mean is used in the step in which its all-reduce begins."""
    stepped = Apart.stepped

    def soon(weights, step):
        now = weights.outer.rounds
        weights.outer = weights.outer._replace(rounds=now._replace(delay=0))
        stepped(weights, step)

    patch.setattr(Apart, "stepped", soon)


def mixed_the_other_way(patch):
    stepped = Apart.stepped

    def other(weights, step):
        kept, weights.outer = weights.outer, weights.outer._replace(mix=1 - weights.outer.mix)
        stepped(weights, step)
        weights.outer = kept

    patch.setattr(Apart, "stepped", other)


MUTANTS = [
    (momentum_reset, ADAM),
    (state_of_adam_averaged, ADAM),
    (sign_turned, ADAM),
    (own_for_mean, ADAM),
    (sum_for_mean, ADAM),
    (momentum_not_nesterov, ADAM),
    (anchor_not_moved, ADAM),
    (divided_by_the_tokens_of_all, {}),
    (used_at_once, ADAM | STREAM),
    (mixed_the_other_way, ADAM | STREAM | {"mix": 0.25}),
]


@pytest.mark.parametrize("mutant, more", MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_a_mistake_with_the_outer_step_is_noticed(bench, mutant, more):
    assert bench.right(TWO, **asked(**more))
    report = bench.asked(TWO, sabotage=mutant, **asked(**more))
    assert report.wrong and all(counted == formula for counted, formula in report.bytes.values()), report


def test_a_check_says_if_no_step_follows_an_outer_step(bench):
    assert "no step follows one" in str(bench.asked(TWO, **asked(sync_every=5)))
    assert "no step follows one" not in str(bench.asked(TWO, **asked(sync_every=4)))


# ---- checkpoints


@pytest.mark.parametrize(
    "mesh, more",
    first(1, [(hl.Mesh(dp=2, pp=2), STREAM | {"sync_delay": 3}), (TWO, {}), (TWO, {"model": "conv", "shape": None})]),
    ids=str,
)
def test_copies_go_on_bit_for_bit_also_while_an_exchange_is_under_way(kept, tmp_path, mesh, more):
    about = asked(**ADAM, **more) | {"dtype": "float64", "progress": False, "clip": 1.0, "microbatches": 2}
    del about["steps"]
    whole = hl.train(mesh, steps=9, **about)
    half = hl.train(mesh, steps=4, checkpoint=tmp_path, **about)
    rest = hl.train(mesh, steps=9, checkpoint=tmp_path, resume=True, **about)
    assert half["losses"] + rest["losses"] == whole["losses"]
    one, other = (its["model"].state_dict() for its in (whole, rest))
    assert all(torch.equal(other[name], x) for name, x in one.items())
    assert hl.weights(tmp_path).keys() == one.keys(), "of the first copy"
    longer = {"steps": 12, "checkpoint": tmp_path, "resume": True} | about
    with pytest.raises(ValueError, match="saved with sync_every=.* but this run has sync_every=9: make them equal"):
        hl.train(mesh, **longer | {"sync_every": 9})
    without = {name: x for name, x in longer.items() if name not in ("sums", *STREAM) or name == "steps"}
    with pytest.raises(ValueError, match="saved with sums=local.* but this run has sums of gradients: make them equal"):
        hl.train(mesh, **without)


def kept_by_ranks(comm, job):
    trainer = loop.Trainer(comm, job)
    for step in range(job.steps):
        trainer.step(step)
    return {name: sorted(kinds) for name, kinds in pieces(trainer).items()}, loop.memory(trainer)


def test_a_checkpoint_has_every_copy_and_the_state_of_the_outer_step(bench):
    job = job_of(TWO, shape=SHAPE, sums="local", steps=2, **ADAM)
    (one, memory), (other, _) = bench.pool(TWO).run(kept_by_ranks, job)
    assert set(other) == {f"copy.1.{name}" for name in one}
    kinds = ["anchor", "exp_avg", "exp_avg_sq", "outer_momentum", "step", "value"]
    assert all(its == kinds for its in (*one.values(), *other.values()))
    assert stored_layout(job).named.keys() == one.keys() | other.keys()
    assert memory["optimizer"] == 4 * memory["value"] == hl.bytes.model_states(job.layout, 0, job.widths)["optimizer"]


def test_copies_rest_where_they_are_trained():
    job = job_of(hl.Mesh(tp=2, dp=2), shape=SHAPE, sums="local", **ADAM)
    layout = stored_layout(job)
    rests = {param.at["dp"] for param in layout.params if param.name.startswith("copy.1.")}
    assert rests == {(1,)} and all("tp" not in param.at for param in layout.params)
    assert {param.at["dp"] for param in layout.params if not param.name.startswith("copy.")} == {(0,)}


def test_an_outer_step_leaves_the_first_weights_of_a_replay_as_they_were():
    """`moves` counts from them."""
    copies = Copies(job_of(TWO, shape=SHAPE, sums="local", sync_every=1, dtype="float64"))
    was = {name: weight.clone() for name, weight in copies.devices[0].first.items()}
    copies.gradients(0)
    copies.update(0)
    assert all(torch.equal(copies.devices[0].first[name], weight) for name, weight in was.items())


# ---- refusals


@pytest.mark.parametrize(
    "mesh, more, words",
    [
        (TWO, {"zero": 1}, "keeps all weights in every copy: leave out zero"),
        (TWO, {"offload": True}, "leave out offload"),
        (TWO, {"sync_delay": 2}, "sync_delay=2 is too long: give less than sync_every"),
        (TWO, {"sync_every": 9, "fragments": 5}, "fragments=5 is too many: give at most sync_every=9 and the 4 layers"),
        (TWO, {"mix": 1.0}, "mix=1.0 is not possible: give"),
        (TWO, {"sums": "each", "mix": 0.5}, "mix=0.5 has no effect without sums=local: give both"),
        (hl.Mesh(pp=2), {"schedule": "pipedream"}, "pipedream updates every stage independently: leave out sums=local"),
    ],
)
def test_a_combination_that_cannot_be_is_refused_by_name(mesh, more, words):
    with pytest.raises(ValueError, match=words):
        job_of(mesh, **asked(**more))
