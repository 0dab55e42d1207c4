"""Shards on two levels, and second copies of weights: equality, closed forms of bytes and memory, mutants."""

import sys
from collections import Counter
from types import SimpleNamespace

import cloudpickle
import equality
import pytest
import torch
from few import first, one_in

import hybridlab as hl
from hybridlab.core.dry import KINDS
from hybridlab.core.where.layout import Layout, Param
from hybridlab.modes.parts.two_levels import Secondary, TwoLevels
from hybridlab.modes.zero import shared
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.memory import MIXED, SINGLE, model_states
from hybridlab.predict.bytes.sharing import transfers
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.training.run import train
from hybridlab.world.processes.launch import RankError

cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(equality)

FOUR = hl.Mesh(dp=4)
SHAPE = hl.Shape(layers=3, width=16, heads=2, context=8)
ODD = hl.Shape(layers=3, width=9, heads=3, context=6, vocabulary=259)  # every share is padded
ROUTED = hl.Shape(layers=2, width=16, heads=2, context=8, experts=4, chosen=2, inner=16)
ADAM = {"optimizer": "adamw", "rate": 0.01}
LEVELS = [{"zero": zero, "owners": 2, "two_levels": True} for zero in (1, 2, 3)]
SECOND = {"zero": 3, "secondary": 2}


# ---- equal to one device, bytes as claimed


BESIDE = {  # the first two are quick
    "odd sizes": (FOUR, {"shape": ODD, "accumulate": 2, "clip": 0.1} | ADAM),
    "stages": (hl.Mesh(dp=4, pp=2), {"schedule": "1f1b"} | ADAM),
    "tied stages": (hl.Mesh(dp=4, pp=2), {"schedule": "interleaved", "shape": hl.Shape(layers=4, tied=True)}),
    "tp in sequence": (hl.Mesh(dp=4, tp=2), {"sequence": True, "clip": 0.05}),
    "tp": (hl.Mesh(tp=2, dp=4), {"recompute": "full"} | ADAM),
    "cp": (hl.Mesh(dp=2, cp=2), {"attend": "ring", "recompute": "selective"} | ADAM),
    "ep": (hl.Mesh(dp=2, ep=2), {"shape": ROUTED} | ADAM),
    "ep, some experts on two levels": (hl.Mesh(dp=4, ep=2), {"shape": ROUTED, "clip": 0.05}),
    "grid": (hl.Mesh(dp=4, x=2), {}),
    "muon": (FOUR, {"optimizer": "muon", "rate": 0.01}),
    "muon, tp": (hl.Mesh(dp=4, tp=2), {"optimizer": "muon", "rate": 0.01, "sequence": True}),
    "host": (FOUR, {"offload": True, "clip": 0.05} | ADAM),
    "early": (FOUR, {"sums": "each", "accumulate": 2}),
    "eight": (hl.Mesh(dp=8), ADAM),
}


@pytest.mark.ranks
@pytest.mark.parametrize("more", one_in(2, [*LEVELS, SECOND]), ids=lambda more: ",".join(map(str, more.values())))
@pytest.mark.parametrize("name", first(1, BESIDE))
def test_it_trains_as_one_device_and_sends_what_it_claims(bench, name, more):
    mesh, how = BESIDE[name]
    report = bench.asked(mesh, **{"schedule": "gpipe", "microbatches": 4, "shape": SHAPE} | how | more)
    assert report.ok, report
    assert report.largest_gap <= 1e-10
    sent = report.bytes["reductions and all-gathers of shards"]
    assert sent[0] == sent[1] > 0


# ---- bytes: groups, closed forms


def sent(comm, one, sabotage=None):
    """{(operation, ranks in its group, bytes): number} of the operations of a step."""
    with pytest.MonkeyPatch.context() as patch:
        if sabotage:
            sabotage(patch)
        trainer = loop.Trainer(comm, one)
        before = len(comm.ledger)  # not clear(): it numbers collectives anew while other ranks are still in the last
        trainer.step(0)
    rows = [row for row in comm.ledger.rows()[before:] if row["purpose"] == "shares"]
    return Counter((row["op"], row["group"], row["bytes"]) for row in rows)


def second_copy_is_never_read(patch):
    """Right numbers, and as many bytes; but every gather crosses the nodes."""
    right = Secondary._gather

    def gather(weights, pack):
        weights.current.discard(pack)
        return right(weights, pack)

    patch.setattr(Secondary, "_gather", gather)


@pytest.mark.ranks
@pytest.mark.parametrize("more", [*LEVELS, SECOND], ids=lambda more: ",".join(map(str, more.values())))
def test_every_operation_is_among_the_claimed_number_of_ranks(bench, more):
    """A ledger counts full tensors, so its sums do not tell a gather inside a node from one over all nodes."""
    one = job_of(FOUR, "gpipe", 3, shape=ODD, dtype="float64", **more)
    claims = [
        Counter((each.op, len(each.ranks), each.bytes) for pack in one.layout.packs
                for each in transfers(one.layout, pack, rank, one.widths, one.keeper.gathers(one, pack, rank)))
        for rank in range(4)
    ]  # fmt: skip
    assert bench.pool(FOUR).run(sent, one) == claims
    if more == SECOND:
        assert {group for op, group, _ in claims[0] if op == "all_gather"} == {2, 4}
        assert bench.pool(FOUR).run(sent, one, second_copy_is_never_read) != claims


def between(layout, widths, inside: int, gathers=None) -> float:
    """The bytes that one rank sends to other nodes in a step, if `inside` ranks are a node; rings cross at one rank."""
    found = transfers(layout, 0, 0, widths, gathers)
    crossing = lambda ranks: len({rank // inside for rank in ranks}) > 1
    return sum(one.sent for one in found if crossing(one.ranks))


@pytest.mark.parametrize("i, O", [(2, 2), (2, 8), (8, 64)])
def test_between_nodes_go_fewer_bytes_than_with_an_all_reduce_of_shards(i, O):
    n = i * O
    mesh, weight, widths = hl.Mesh(dp=n), Param("w", (1000 * n,), partial=("dp",)), MIXED._replace(gradient=4)
    plain = Layout(mesh, (weight,))
    hybrid, two, whole, second = (
        shared(plain, 3, owners, two_levels=two_levels, secondary=secondary)
        for owners, two_levels, secondary in ((i, False, 0), (i, True, 0), (n, False, 0), (n, False, i))
    )
    w, g, size = widths.value, widths.gradient, 1000 * n
    share = size / i * (O - 1) / O
    assert between(hybrid, widths, i) == pytest.approx(share * 2 * g)
    assert between(two, widths, i) == pytest.approx(share * (g + w)) == between(hybrid, widths, i) * 3 / 4
    for gathers in (2, 5):
        assert between(whole, widths, i, gathers) == pytest.approx(size * (n - 1) / n * (g + w * gathers))
        assert between(second, widths, i, gathers) == pytest.approx(size * (n - 1) / n * (g + w))  # once, not twice
    for layout in (hybrid, two, whole, second):
        layout.validate()


def test_memory_between_steps_is_three_closed_forms():
    """(w+g+o)/i; w/i + (g+o)/(i·O); w/(i·O) + w/i + (g+o)/(i·O): without a master copy, in which o has w too."""
    i, n, size = 8, 512, 512_000
    layout = Layout(hl.Mesh(dp=n), (Param("w", (size,), partial=("dp",)),))
    kept = lambda *more: [sum(model_states(shared(layout, 3, *more), rank).values()) / size for rank in (0, 77, 511)]
    w, g, o = SINGLE.value, SINGLE.gradient, SINGLE.states * SINGLE.master
    assert kept(i) == [(w + g + o) / i] * 3
    assert kept(i, ("dp",), True) == [w / i + (g + o) / n] * 3
    assert kept(n, ("dp",), False, i) == [w / n + w / i + (g + o) / n] * 3
    mixed = model_states(shared(layout, 3, i, two_levels=True), 5, MIXED)
    assert mixed == {"value": 2 * size / i, "optimizer": 12 * size / n, "gradient": 2 * size / n}


# ---- memory on ranks


def at_rest(comm, jobs):
    found = []
    for one in jobs:
        trainer = loop.Trainer(comm, one)
        trainer.step(0)
        found.append(loop.memory(trainer))
    return found


@pytest.mark.ranks
@pytest.mark.parametrize("dtype", first(1, ["bfloat16", "float64", "float32"]))
@pytest.mark.parametrize("mesh, shape", first(1, [(FOUR, ODD), (hl.Mesh(dp=4, ep=2), ROUTED)]), ids=["odd", "experts"])
def test_ranks_keep_what_the_formula_says(bench, mesh, shape, dtype):
    jobs = [
        job_of(mesh, "gpipe", 4, shape=shape, dtype=dtype, **ADAM, **more)
        for more in [*LEVELS, SECOND, {"zero": 3, "owners": 2}]
    ]
    homes = bench.pool(mesh).run(at_rest, jobs)
    for number, one in enumerate(jobs):
        widths = one.widths._replace(gradient=one.widths.master)  # the optimizer gets it in the dtype of its copy
        formula = [model_states(one.layout, rank, widths) for rank in range(mesh.size)]
        assert [home[number] for home in homes] == formula, one.choices
    assert len({str(home) for home in homes[0]}) == len(jobs)  # every form keeps something else


# ---- 512 ranks, dry


@pytest.mark.slow
def test_a_dry_rank_of_512_keeps_and_sends_the_closed_forms():
    """Ψ includes the padding of packs; in single precision there is no master copy."""
    i, n, rank = 8, 512, 77
    shape = hl.Shape(layers=4, width=64, heads=4, context=8, vocabulary=512)
    about = {"schedule": "gpipe", "microbatches": 1, "zero": 3, "optimizer": "adamw", "dtype": "float32"}
    forms = {  # weights, optimizer and gradients of Ψ; bytes of Ψ that leave a node, of gradients and of weights
        (i, False, 0): (1 / i, 1 / i, 1 / i, 2 / i * (n / i - 1) / (n / i), 0),
        (i, True, 0): (1 / i, 1 / n, 1 / n, 1 / i * (n / i - 1) / (n / i), 1 / i * (n / i - 1) / (n / i)),
        (n, False, i): (1 / n + 1 / i, 1 / n, 1 / n, (n - 1) / n, (n - 1) / n),
    }
    for (owners, two_levels, secondary), (w, o, g, gradients, weights) in forms.items():
        more = {"owners": owners, "two_levels": two_levels or None, "secondary": secondary or None}
        layout = job_of(hl.Mesh(dp=n), shape=shape, **about | more).layout
        size = sum(layout.piece(pack, rank) * layout[names[0]].owners for pack, names in layout.packs.items())
        assert 0 <= size - sum(layout.size(name, rank) for name in layout.named) < n * len(layout.packs)
        dry = hl.dry_run(hl.Mesh(dp=n), rank=rank, shape=shape, **about | more)
        kept = dict(zip(KINDS, dry.kept[-1].tolist()))
        assert [kept[what] for what in ("weights", "optimizer", "gradients")] == [
            4 * size * w,
            8 * size * o,
            4 * size * g,
        ]
        sent = Counter()
        for op, group, bytes in zip(*(dry.messages[what] for what in ("op", "group", "bytes"))):
            sent[op] += cost(op, group, bytes).bytes * (group > i)
        assert sent["all_gather"] == pytest.approx(4 * size * weights)
        assert sent.total() - sent["all_gather"] == pytest.approx(4 * size * gradients)
        gathers = sum(op == "all_gather" for op in dry.messages["op"])
        assert gathers > len(layout.packs), "some are gathered again, all of them inside"


# ---- checkpoints


@pytest.mark.ranks
@pytest.mark.parametrize("more", one_in(2, [*LEVELS, SECOND]), ids=lambda more: ",".join(map(str, more.values())))
def test_another_layout_goes_on_with_its_checkpoint(bench, tmp_path, more):
    about = {
        "batch": 16,
        "shape": ODD,
        "dtype": "float64",
        "clip": 0.5,
        "checkpoint": tmp_path,
        "progress": False,
    } | ADAM
    here = {"schedule": "gpipe", "microbatches": 2} | more
    with bench.lent():
        alone = train(hl.Mesh(pp=1), steps=4, **about | {"microbatches": 4, "checkpoint": None})["losses"]
        train(FOUR, steps=2, **about, **here)
        went_on = train(hl.Mesh(dp=2, pp=2), steps=3, resume=True, microbatches=4, zero=2, **about)["losses"]
        again = train(FOUR, steps=4, resume=True, **about, **here)["losses"]
    assert went_on + again == pytest.approx(alone[2:], rel=1e-10)


# ---- mutants


def sum_across_forgotten(patch):
    """Each rank keeps its share of the sums of its own group."""

    def added(weights, name, part):
        rank, groups = weights.comm.rank, weights.layout[name].groups
        weights.comm.reduce_scatter(part, weights.layout.across(name, rank))
        return part.chunk(groups)[weights.layout.share_number(name, rank) % groups].clone()

    patch.setattr(TwoLevels, "_added", added)


def stale_on_one_rank(patch):
    """The last rank takes part in the gather, and keeps the weights of the first step."""
    right = TwoLevels.publish

    def publish(weights):
        old = {pack: part.clone() for pack, part in weights.parts.items()}
        right(weights)
        if weights.comm.rank == 3:
            for pack, part in weights.parts.items():
                groups, own = weights._groups(pack), weights.pieces[pack].clone()
                part.copy_(old[pack])
                place = weights.layout.share_number(weights.layout.packs[pack][0], 3) % groups
                part.chunk(groups)[place].copy_(own)

    patch.setattr(TwoLevels, "publish", publish)


def share_of_the_other_group(patch):
    right = TwoLevels._added
    flip = lambda part, groups: torch.cat(part.chunk(groups)[::-1])
    patch.setattr(TwoLevels, "_added", lambda w, name, part: right(w, name, flip(part, w.layout[name].groups)))


def norm_counts_every_group(patch):
    """As before two levels, when each group had all shares: the norm adds the part, not the share."""
    right = loop.Trainer.gradient_norm
    groups = lambda trainer: max(param.groups for param in trainer.layout.params)
    patch.setattr(loop.Trainer, "gradient_norm", lambda trainer: right(trainer) * groups(trainer) ** 0.5)


def second_copy_of_the_first_step(patch):
    patch.setattr(Secondary, "publish", lambda weights: None)


def second_copy_of_another_rank(patch):
    right = Secondary._gather
    flip = lambda whole: torch.cat(whole.chunk(2)[::-1])

    def gather(weights, pack):
        message, again = right(weights, pack), pack in weights.current
        late = lambda: flip(message.wait()) if again else message.wait()
        return SimpleNamespace(wait=late, when_over=message.when_over)

    patch.setattr(Secondary, "_gather", gather)


MUTANTS = [
    *((sum_across_forgotten, more) for more in LEVELS),
    (stale_on_one_rank, LEVELS[2]),
    *((share_of_the_other_group, more) for more in LEVELS),
    (norm_counts_every_group, LEVELS[0] | {"clip": 0.05}),
    (second_copy_of_the_first_step, SECOND),
    (second_copy_of_another_rank, SECOND),
]


@pytest.mark.ranks
@pytest.mark.parametrize("mutant, more", one_in(3, MUTANTS), ids=lambda one: getattr(one, "__name__", ""))
def test_every_mutant_is_noticed(bench, mutant, more):
    about = {"schedule": "gpipe", "microbatches": 2, "shape": SHAPE, "steps": 3} | more
    assert bench.right(FOUR, **about)
    try:
        report = bench.asked(FOUR, sabotage=mutant, **about)
    except RankError as error:
        assert not any(word in str(error) for word in ("NameError", "AttributeError", "TypeError")), error
    else:
        assert not report.ok and "NOT equal" in str(report), report


@pytest.mark.ranks
def test_a_stale_rank_is_noticed_only_after_two_steps(bench):
    """So fewer steps would not prove a job on two levels."""
    about = {"schedule": "gpipe", "microbatches": 2, "shape": SHAPE} | LEVELS[2]
    assert bench.asked(FOUR, sabotage=stale_on_one_rank, **about | {"steps": 1}).ok
    assert not bench.asked(FOUR, sabotage=stale_on_one_rank, **about | {"steps": 2}).ok


# ---- what is refused


@pytest.mark.parametrize(
    "more, words",
    [
        ({"two_levels": True}, "two_levels=True has no effect without owners"),
        ({"zero": 1, "two_levels": True}, "two_levels=True has no effect without owners"),
        ({"zero": 2, "owners": 4, "two_levels": True}, "owners=4 of 4 ranks: give owners=2 or more, and dp a larger"),
        ({"zero": 1, "owners": 1, "two_levels": True}, "owners=1 of 4 ranks: give owners=2 or more, and dp a larger"),
        ({"zero": 1, "owners": 3, "two_levels": True}, "3 ranks cannot share"),
        ({"secondary": 2}, "secondary=2 has no effect without zero"),
        ({"zero": 2, "secondary": 2}, "give zero=3 without two_levels, or leave out secondary"),
        (LEVELS[2] | {"secondary": 2}, "give zero=3 without two_levels, or leave out secondary"),
        ({"zero": 3, "secondary": 3}, "secondary=3 cannot divide the 4 owners"),
        ({"zero": 3, "secondary": 4}, "give a divisor between 1 and 4"),
    ],
)
def test_levels_that_have_no_effect_are_refused(more, words):
    with pytest.raises(ValueError, match=words):
        job_of(FOUR, "gpipe", 2, shape=SHAPE, **more)
