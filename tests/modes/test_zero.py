"""Sums of gradients in their three forms, and ZeRO in its three stages: on real ranks, with mutants of each.

That they train as one device does is for `test_equality`; here stand equality bit for bit, bytes at rest, the order
and the time of sums, dtypes, refusals, and the mistakes that people have made with shares.
"""

import sys
from dataclasses import replace
from types import SimpleNamespace

import cloudpickle
import equality
import pytest
import torch
from few import first, one_in

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import Layout
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.data_parallel import FORMS
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.modes.zero import Sharded
from hybridlab.predict.bytes.memory import model_states
from hybridlab.runtime.work import ModelWork
from hybridlab.scheduling.sums import without_sums
from hybridlab.training import loop, reference, resume
from hybridlab.training.check import check
from hybridlab.training.job import Job
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gpt import GPT, Dropout
from hybridlab.world.processes.launch import RankError

pytestmark = pytest.mark.ranks
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(equality)

TWO, FOUR = Mesh(dp=2), Mesh(dp=4)
SHAPE = Shape(layers=3, width=16, heads=2, context=8)
ODD = Shape(layers=3, width=9, heads=3, context=6, vocabulary=259)  # 8001 parameters: every share is padded


def job(mesh, schedule="gpipe", microbatches=3, shape=SHAPE, dtype="float64", **more):
    return job_of(mesh, schedule, microbatches, shape=shape, dtype=dtype, **more)


# ---- bit for bit


def trained(comm, one):
    trainer = loop.Trainer(comm, one)
    losses = trainer.gradients(0)[0]
    gradients = {name: share.grad.clone() for name, share in trainer.parameters.items()}
    trainer.update()
    losses += [loss for step in range(1, one.steps) for loss in trainer.step(step)[0]]
    return losses, gradients, {name: share.detach().clone() for name, share in trainer.parameters.items()}


def cut_for(layout, rank, whole):
    """Of every whole tensor, the share that a rank owns."""
    return {name: x.flatten()[layout.share(name, rank)] for name, x in whole.items()}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    "mesh, shape", first(1, [(TWO, SHAPE), (FOUR, SHAPE), (TWO, ODD)]), ids=["two", "four", "padded"]
)
def test_shares_are_plain_data_parallelism_bit_for_bit(bench, mesh, shape, stage):
    """Gradients are so always. The optimizer rounds once or twice for an element, as it stands inside a vector of the
    processor or behind the last whole one: weights whose shares begin anywhere differ by last bits, the others not."""
    more = dict(schedule="looped_bfs", chunks=shape.layers) if stage == 3 else {}
    for optimizer in ("sgd", "adamw"):
        plain, shared = (
            job(mesh, shape=shape, sums="buckets", optimizer=optimizer, rate=0.01, zero=z, **more) for z in (0, stage)
        )
        assert list(plain.layout.packs.values()) == list(shared.layout.packs.values())
        whole, parts = (bench.pool(mesh).run(trained, one) for one in (plain, shared))
        for rank, ((losses, *wholes), (its, *shares)) in enumerate(zip(whole, parts)):
            gradients, weights = (cut_for(shared.layout, rank, whole) for whole in wholes)
            assert all(torch.equal(g.flatten(), gradients[name]) for name, g in shares[0].items())
            if shape == SHAPE:
                assert its == losses
                assert all(torch.equal(w.flatten(), weights[name]) for name, w in shares[1].items())
            else:
                assert its == pytest.approx(losses, rel=1e-14)
                close = dict(rtol=0, atol=1e-12 if optimizer == "adamw" else 1e-15)
                assert all(torch.allclose(w.flatten(), weights[n], **close) for n, w in shares[1].items())


# ---- bytes at rest


def at_rest(comm, jobs):
    found = []
    for one in jobs:
        trainer = loop.Trainer(comm, one)
        trainer.step(0)
        found.append(loop.memory(trainer))
    return found


def widths(one):
    wide = one.widths.master  # a gradient is given to the optimizer in the dtype of what it updates
    return one.widths._replace(gradient=wide)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_what_ranks_keep_between_two_steps_is_what_the_formula_says(bench, dtype):
    stages = [dict(zero=z) for z in (0, 1, 2, 3)] + [dict(zero=z, owners=2) for z in (1, 3)]
    jobs = [job(FOUR, shape=ODD, dtype=dtype, optimizer="adamw", **stage) for stage in stages]
    homes = bench.pool(FOUR).run(at_rest, jobs)
    for number, one in enumerate(jobs):
        formula = [model_states(one.layout, rank, widths(one)) for rank in range(4)]
        assert [home[number] for home in homes] == formula, one["zero"]
    assert len({str(home) for home in homes[0]}) == 6  # every stage keeps something else


def held(comm, one):
    """The most stages whose whole weights are there, or on their way, at a time; and those there after a step."""
    trainer, most = loop.Trainer(comm, one), []
    weights = trainer.weights
    open_now = lambda: {
        stage
        for stage in weights.named
        for pack in weights._packs(stage)
        if weights.values[pack].untyped_storage().nbytes() or pack in weights.gathering
    }

    def looked(do):
        def done(*arguments):
            home = do(*arguments)
            most.append(len(open_now()))
            return home

        return done

    for name in ("unshard", "arrive", "reshard"):
        setattr(weights, name, looked(getattr(weights, name)))
    trainer.step(0)
    return max(most), len(open_now())


@pytest.mark.parametrize("active", first(1, [1, 2, 3]))
def test_stage_three_holds_so_many_whole_stages_and_none_at_rest(bench, active):
    assert bench.pool(TWO).run(held, job(TWO, zero=3, active=active)) == [(active, 0)] * 2


# ---- when and in what order sums are sent


def summed(comm, one):
    """Bytes and begins of the sums of one step, and when its last backward ended."""
    with pytest.MonkeyPatch.context() as patch:
        with_small_packs(patch)
        trainer, before = loop.Trainer(comm, one), len(comm.ledger)
        _, times = trainer.step(0)
    rows = [row for row in comm.ledger.rows()[before:] if row["purpose"] in ("sums", "shares")]
    last = max(t[2] for action, t in zip(trainer.player.program, times.tolist()) if action.kind == "B")
    return [row["bytes"] for row in rows], [row["begin_ns"] - last for row in rows]


SMALL_PACKS = (16_000, 30_000)  # bytes


def with_small_packs(patch):
    from hybridlab.modes import data_parallel

    patch.setattr(data_parallel, "FIRST_BYTES", SMALL_PACKS[0])
    patch.setattr(data_parallel, "PACK_BYTES", SMALL_PACKS[1])


@pytest.mark.parametrize("accumulate", first(1, [1, 3]))
@pytest.mark.parametrize("form", FORMS)
def test_one_sum_for_each_pack_in_one_order_inside_the_backward_or_behind_it(bench, monkeypatch, form, accumulate):
    with_small_packs(monkeypatch)  # here, as on the ranks: everybody makes the layout
    one = job(TWO, sums=form, accumulate=accumulate)
    number = len(one.layout.packs)
    assert number == len(one.layout.params) if form != "buckets" else 3 < number < len(one.layout.params) / 2
    homes = bench.pool(TWO).run(summed, one)
    sizes = [8 * one.layout.piece(pack, 0) for pack in sorted(one.layout.packs)]
    for bytes_, begins in homes:
        assert bytes_ == sizes  # accumulated: summed in the last play only
        assert all(begin > 0 for begin in begins) if form == "after" else all(begin < 0 for begin in begins)


@pytest.mark.long
def test_sums_that_go_early_are_the_same_bit_for_bit(bench):
    after, each = (bench.pool(TWO).run(trained, job(TWO, sums=form)) for form in ("after", "each"))
    for (losses, _, weights), (its, _, others) in zip(after, each):
        assert its == losses and all(torch.equal(weights[name], others[name]) for name in weights)


# ---- weights without a gradient, tied weights


def with_an_idle_layer(patch):
    """A model whose second block has an MLP that nobody asks."""
    right = GPT.__init__

    def made(model, *arguments, **more):
        right(model, *arguments, **more)
        model.blocks[1].mlp.forward = torch.zeros_like

    patch.setattr(GPT, "__init__", made)


def against_alone(comm, one, change=None):
    """The worst difference of this rank's gradients from those of one process, which this rank computes as well."""
    with pytest.MonkeyPatch.context() as patch:
        if change:
            change(patch)
        trainer = loop.Trainer(comm, one)
        trainer.gradients(0)
        alone = reference.OneDevice(one)
        alone.gradients(0)
        whole = alone.gradient()
        flat = lambda name: whole[name].flatten()[one.layout.share(name, comm.rank)]
        gaps = [float((share.grad.flatten() - flat(name)).abs().sum()) for name, share in trainer.parameters.items()]
        idle = [name for name, share in trainer.parameters.items() if not share.grad.any() and share.numel()]
        return max(gaps), idle


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_weight_without_a_gradient_has_a_zero_and_keeps_nobody_waiting(bench, form, stage):
    for accumulate in (1, 2):
        one = job(TWO, zero=stage, sums=form, accumulate=accumulate)
        homes = bench.pool(TWO).run(against_alone, one, with_an_idle_layer)
        assert max(gap for gap, _ in homes) < 1e-12
        assert any("blocks.1.mlp.up.weight" in idle for _, idle in homes)


@pytest.mark.parametrize("stage", one_in(3, [0, 1, 2, 3]))
def test_a_tied_weight_has_the_gradients_of_both_its_ends(bench, stage):
    one = job(TWO, zero=stage, shape=replace(SHAPE, tied=True))
    assert max(gap for gap, _ in bench.pool(TWO).run(against_alone, one)) < 1e-12


# ---- dtypes


def dtypes(comm, one, sabotage=None):
    with pytest.MonkeyPatch.context() as patch:
        if sabotage:
            sabotage(patch)
        trainer = loop.Trainer(comm, one)
        trainer.gradients(0)
        rows = [row for row in comm.ledger.rows() if row["op"] in ("all_reduce", "reduce_scatter")]
        sent = sum(row["bytes"] for row in rows if row["purpose"] in ("sums", "shares"))
        trainer.update()
        weights, shares = trainer.weights.by_name, trainer.parameters
        kinds = [
            sorted({str(x.dtype) for x in them})
            for them in (weights.values(), shares.values(), (share.grad for share in shares.values()))
        ]
        moved = any(not torch.equal(s, s.bfloat16().float()) for s in shares.values())
        own = lambda name: weights[name].flatten()[one.layout.share(name, comm.rank)]
        published = one["zero"] == 3 or all(torch.equal(own(n), s.flatten().bfloat16()) for n, s in shares.items())
        return kinds, sent, moved, published


@pytest.mark.parametrize("stage", one_in(3, [0, 1, 2, 3]))
def test_half_precision_computes_and_single_precision_adds_up_and_remembers(bench, stage):
    one = job(TWO, shape=ODD, dtype="bfloat16", zero=stage)
    layout = one.layout
    elements = sum(layout[names[0]].owners * layout.piece(pack, 0) for pack, names in layout.packs.items())
    for kinds, sent, moved, published in bench.pool(TWO).run(dtypes, one):
        assert kinds == [["torch.bfloat16"], ["torch.float32"], ["torch.float32"]]
        assert sent == 4 * elements and moved and published


# ---- refusals


def refused(comm, jobs):
    try:
        loop.Trainer(comm, jobs[comm.rank])
    except ValueError as error:
        return str(error)


def test_a_program_that_never_sums_is_refused(bench):
    for stage in (0, 1):
        one = job(TWO, zero=stage)
        deaf = replace(one, schedule=without_sums(one.schedule))
        told = bench.pool(TWO).run(refused, [deaf, deaf])
        assert all("no action reduces the gradient of " in text and "REDUCE_GRAD" in text for text in told)


@pytest.mark.parametrize("other", [dict(sums="buckets"), dict(zero=1), dict(shape=ODD)], ids=str)
def test_ranks_with_different_layouts_are_refused(bench, other):
    told = bench.pool(TWO).run(refused, [job(TWO), job(TWO, **other)])
    assert told == [f"rank {1 - r} has a different layout from rank {r}: give all ranks the same job" for r in (0, 1)]


def test_there_are_three_stages_and_owners_divide_the_replicas():
    with pytest.raises(ValueError, match="there is no ZeRO stage 4: choose 0, 1, 2 or 3"):
        job(FOUR, zero=4)
    with pytest.raises(ValueError, match=r"3 ranks cannot share .*choose one of \[1, 2, 4\]"):
        job(FOUR, zero=1, owners=3)
    with pytest.raises(ValueError, match="zero=1 shards over data-parallel ranks, but dp=1 has only one"):
        job(Mesh(pp=2), zero=1)


# ---- mutants of what checks compare


def mean_for_sum_of_shares(patch):
    right = Sharded._take
    patch.setattr(Sharded, "_take", lambda w, names, piece, *whole: right(w, names, piece / 2, *whole))


def copies_counted_in_the_norm(patch):
    patch.setattr(Layout, "counts", lambda layout, name, rank, among=None: layout.box(name, rank) is not None)


def norm_of_the_first_part_alone(patch):
    right = Layout.counts
    first = lambda layout, rank: layout.mesh.coordinates(rank)["tp"] == 0
    patch.setattr(
        Layout, "counts", lambda layout, name, rank, *among: first(layout, rank) and right(layout, name, rank, *among)
    )


def gathered_in_another_order(patch):
    right, flip = Sharded._gather, lambda whole: whole.view(2, -1).flip(0).reshape(-1)

    def gather(weights, pack):
        message = right(weights, pack)
        return SimpleNamespace(wait=lambda: flip(message.wait()), when_over=message.when_over)

    patch.setattr(Sharded, "_gather", gather)


def padding_in_front(patch):
    right = Sharded._started

    def started(weights, pack, names, flat):
        held = sum(weights.by_name[name].numel() for name in names)
        return right(weights, pack, names, flat.roll(flat.numel() - held))

    patch.setattr(Sharded, "_started", started)


def weights_of_the_first_step_for_ever(patch):
    right, once = Sharded.arrive, set()

    def arrive(weights, pack):
        if pack in once:
            weights.gathering.pop(pack).wait()
        else:
            right(weights, pack)
            once.add(pack)

    patch.setattr(Sharded, "arrive", arrive)
    patch.setattr(Sharded, "_let_go", lambda weights, pack: None)


def not_gathered_again_for_the_backward(patch):
    right, begin = Sharded.arrive, Replicated.begin
    there = set()

    def arrive(weights, pack):
        right(weights, pack)
        if pack in there:
            weights.values[pack].zero_()
        there.add(pack)

    patch.setattr(Sharded, "arrive", arrive)
    patch.setattr(Sharded, "begin", lambda weights: (there.clear(), begin(weights))[1])


def share_of_another_owner(patch):
    right = Sharded._started
    flip = lambda flat: flat.view(2, -1).flip(0).reshape(-1)
    patch.setattr(Sharded, "_started", lambda w, pack, names, flat: right(w, pack, names, flip(flat)))


def second_sum_of_hybrid_forgotten(patch):
    patch.setattr(Layout, "twins", lambda layout, name, rank: (rank,))


def second_sum_of_hybrid_over_all(patch):
    patch.setattr(Layout, "twins", Layout.summed)


def clipped_by_the_norm_of_its_shares(patch):
    right = Job.clipped
    own = lambda gradients: sum(float(g.square().sum()) for g in gradients) ** 0.5
    patch.setattr(Job, "clipped", lambda one, gradients, norm: right(one, gradients, lambda: own(gradients)))


def every_replica_drops_the_same_rows(patch):
    right = Dropout.kept

    def kept(site, *shape):
        site.draws.row %= 6  # sequences of a replica: 3 microbatches of 2
        return right(site, *shape)

    patch.setattr(Dropout, "kept", kept)


def every_step_drops_the_same(patch):
    right = Dropout.kept

    def kept(site, *shape):
        site.draws.step = 0
        return right(site, *shape)

    patch.setattr(Dropout, "kept", kept)


def further_plays_drop_the_same_rows(patch):
    right = ModelWork.load
    patch.setattr(ModelWork, "load", lambda work, *batch: right(work, *batch[:3]))


def publish_forgotten(patch):
    patch.setattr(Sharded, "publish", lambda weights: None)
    patch.setattr(Replicated, "publish", lambda weights: None)


def published_before_the_update(patch):
    def update(trainer):
        trainer.weights.publish()
        trainer.optimizer.step()

    patch.setattr(loop.Trainer, "update", update)


def pack_sent_at_its_first_gradient(patch):
    def made(weights, stage, pack, homes, weight):
        if sum(weights.left[home] for home in homes) == 1:
            weights._send(pack)

    patch.setattr(Replicated, "_made", made)


def pack_sent_by_the_first_backward(patch):
    right = Replicated.arm
    patch.setattr(Replicated, "arm", lambda w, last: (right(w, last), w.left.update(dict.fromkeys(w.left, -2)))[0])


def every_share_at_the_start_of_its_piece(patch):
    right = Sharded._inside
    patch.setattr(Sharded, "_inside", lambda w, name: (0, right(w, name)[1] - right(w, name)[0]))


def tied_ends_not_added(patch):
    right, place = Layout.summed, lambda layout, rank: layout.mesh.coordinates(rank)["pp"]
    alike = lambda layout, name, rank: tuple(
        other for other in right(layout, name, rank) if place(layout, other) == place(layout, rank)
    )
    patch.setattr(Layout, "summed", alike)


def losses_of_all_ranks(patch):
    everywhere = lambda trainer, losses: trainer.comm.all_reduce(losses.clone()).tolist()
    patch.setattr(loop.Trainer, "_everywhere", everywhere)


def share_of_the_optimizer_too_long(patch):
    """Every rank updates its share alone, and takes those of others as they were."""
    right = Sharded._gather

    def gather(weights, pack):
        old = weights.values[pack].clone()
        message = right(weights, pack)

        def wait():
            message.wait()
            weights._own(pack, old).copy_(weights.pieces[pack])
            return old

        return SimpleNamespace(wait=wait, when_over=message.when_over)

    patch.setattr(Sharded, "_gather", gather)


TP, PP = Mesh(dp=2, tp=2), Mesh(dp=2, pp=2)
MUTANTS = [
    (mean_for_sum_of_shares, TWO, dict(zero=1)),
    (copies_counted_in_the_norm, TWO, dict(zero=0)),
    (copies_counted_in_the_norm, FOUR, dict(zero=1, owners=2)),
    (norm_of_the_first_part_alone, TP, dict(zero=1)),
    (gathered_in_another_order, TWO, dict(zero=1)),
    (gathered_in_another_order, TWO, dict(zero=3)),
    (padding_in_front, TWO, dict(zero=1, shape=ODD)),
    (weights_of_the_first_step_for_ever, TWO, dict(zero=3)),
    (not_gathered_again_for_the_backward, TWO, dict(zero=3)),
    (share_of_another_owner, TWO, dict(zero=2)),
    (second_sum_of_hybrid_forgotten, FOUR, dict(zero=1, owners=2)),
    (second_sum_of_hybrid_over_all, FOUR, dict(zero=2, owners=2)),
    (clipped_by_the_norm_of_its_shares, TWO, dict(zero=1, clip=0.05)),
    (every_replica_drops_the_same_rows, TWO, dict(shape=replace(SHAPE, dropout=0.1))),
    (every_step_drops_the_same, TWO, dict(zero=1, shape=replace(SHAPE, dropout=0.1))),
    (further_plays_drop_the_same_rows, TWO, dict(accumulate=2, shape=replace(SHAPE, dropout=0.1))),
    (publish_forgotten, TWO, dict(zero=1)),
    (published_before_the_update, TWO, dict(zero=2)),
    (pack_sent_at_its_first_gradient, TWO, dict(sums="buckets")),
    (pack_sent_by_the_first_backward, TWO, dict(sums="each")),
    (every_share_at_the_start_of_its_piece, TWO, dict(zero=1)),
    (tied_ends_not_added, PP, dict(shape=replace(SHAPE, tied=True))),
    (losses_of_all_ranks, TP, dict(zero=0)),
    (share_of_the_optimizer_too_long, TWO, dict(zero=1)),
]


@pytest.mark.long
@pytest.mark.parametrize("mutant, mesh, more", MUTANTS, ids=[f"{m.__name__}-{n}" for n, (m, *_) in enumerate(MUTANTS)])
def test_every_mutant_is_noticed(bench, mutant, mesh, more):
    arguments = dict(schedule="gpipe", microbatches=3) | {"shape": SHAPE} | more
    assert bench.right(mesh, **arguments)
    try:
        report = bench.asked(mesh, sabotage=mutant, **arguments)
    except RankError as error:  # noticed by the ranks themselves, and not because the mutant is no program
        assert not any(word in str(error) for word in ("NameError", "AttributeError", "TypeError")), error
    else:
        assert not report.ok and "NOT equal" in str(report), report


def test_masters_that_are_not_published_are_noticed(bench):
    for stage in (0, 1):
        one = job(TWO, dtype="bfloat16", zero=stage)
        assert not any(published for *_, published in bench.pool(TWO).run(dtypes, one, publish_forgotten))


# ---- going on from pieces


def gone_on(comm, one, wrong=None):
    """Whether three steps in a row end as two do whose state a new trainer takes over for the third."""
    first, second = loop.Trainer(comm, one), loop.Trainer(comm, one)
    for step in (0, 1):
        first.step(step)
    pieces = {name: {kind: x.clone() for kind, x in kinds.items()} for name, kinds in resume.pieces(first).items()}
    if wrong:
        pieces = wrong(pieces)
    resume.restore(second, pieces)
    second.weights.publish()
    first.step(2), second.step(2)
    return all(torch.equal(x, second.parameters[name]) for name, x in first.parameters.items())


def state_of_another_share(pieces):
    return {
        name: {kind: x.flip(0) if kind == "exp_avg" and x.numel() else x for kind, x in kinds.items()}
        for name, kinds in pieces.items()
    }


def steps_forgotten(pieces):
    return {n: {kind: x if x.dim() else torch.ones_like(x) for kind, x in kinds.items()} for n, kinds in pieces.items()}


@pytest.mark.long
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_trainer_with_the_pieces_of_another_goes_on_as_it_does(bench, stage):
    one = job(TWO, zero=stage, optimizer="adamw", rate=0.01)
    assert bench.pool(TWO).run(gone_on, one) == [True, True]
    for wrong in (state_of_another_share, steps_forgotten):
        assert False in bench.pool(TWO).run(gone_on, one, wrong)


ROUTED = Shape(layers=2, width=16, heads=2, context=8, experts=4, chosen=2, inner=16)
BESIDE = [  # copies are not along dp alone; the first is quick
    (Mesh(cp=2), {"zero": 1, "optimizer": "adamw", "rate": 0.01}),
    (Mesh(ep=2), {"zero": 2, "shape": ROUTED}),
    (Mesh(cp=2), {"zero": 3}),
    (Mesh(dp=2, cp=2), {"zero": 3}),
    (Mesh(dp=2, cp=2), {"zero": 2, "owners": 2}),
    (Mesh(cp=2, pp=2, tp=2), {"zero": 1, "clip": 0.1}),
    (Mesh(dp=2, ep=2), {"zero": 3, "shape": ROUTED}),
    (Mesh(dp=2, ep=2, pp=2), {"zero": 2, "shape": ROUTED}),
    (Mesh(cp=2, ep=2), {"zero": 2, "shape": ROUTED}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    [pytest.param(*one, id=str(one[0]), marks=[pytest.mark.long] * (place > 0)) for place, one in enumerate(BESIDE)],
)
def test_all_that_see_other_data_share(mesh, more):
    report = check(mesh, **more)
    assert report.ok and report.largest_gap < 1e-11, report


def test_experts_are_shared_by_fewer_than_all_else():
    layout = job_of(Mesh(dp=2, ep=2), zero=1, shape=ROUTED).layout
    router, expert = layout["blocks.0.mlp.router.weight"], layout["blocks.0.mlp.experts.up.weight"]
    assert (router.over, router.owners) == (("dp", "ep"), 4) and (expert.over, expert.owners) == (("dp",), 2)
    assert layout.sharers(router.name, 1) == (0, 1, 2, 3) and layout.sharers(expert.name, 1) == (1, 3)


@pytest.mark.parametrize("mesh, more", [(Mesh(pp=2), {}), (Mesh(dp=2), {"owners": 4})])
def test_there_must_be_somebody_to_share_with(mesh, more):
    with pytest.raises(ValueError, match="dp=1 has only one|more than the 2 data-parallel ranks"):
        job_of(mesh, zero=1, **more)


def _left_whole(comm, job):
    """The bytes of gradients that a rank still has when its backward has ended."""
    trainer = loop.Trainer(comm, job)
    trainer.gradients(0)
    every = (*trainer.weights.by_name.values(), *trainer.parameters.values())
    storages = [weight.grad.untyped_storage() for weight in every if weight.grad is not None]
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


@pytest.mark.ranks
@pytest.mark.parametrize("stage, copies", [(1, 2), (2, 1), (3, 1)])
def test_from_stage_2_on_no_rank_keeps_a_whole_gradient(bench, stage, copies):
    one = job(TWO, zero=stage)
    kept = bench.pool(TWO).run(_left_whole, one)
    weights = sum(torch.Size(record.shape).numel() for record in one.records)
    assert sum(kept) == pytest.approx(copies * 8 * weights, rel=0.05)
