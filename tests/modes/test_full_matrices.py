"""Muon, whose update of an element depends on a full matrix: equal to one device in every layout, bytes, mutants."""

import math
from functools import cached_property

import pytest
import torch
from few import first
from torch.utils.flop_counter import FlopCounterMode

import hybridlab as hl
from hybridlab.core.where.dealing import deal
from hybridlab.core.where.layout import Cut, Layout, Param
from hybridlab.core.where.packs import packed
from hybridlab.modes import full_matrices
from hybridlab.modes.parts.newton_schulz import newton_schulz
from hybridlab.modes.zero import Sharded
from hybridlab.predict.bytes.memory import Widths, model_states
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.training.muon import Muon

SIZES = dict(layers=2, width=16, heads=4, context=8)
SHAPE = hl.Shape(**SIZES)
EXPERTS = hl.Shape(**SIZES, experts=5, chosen=2, shared=1, inner=16)
MUON = dict(optimizer="muon", rate=0.02, microbatches=2)

# ---- the function


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (3, 5, 7)], ids=str)
def test_singular_vectors_stay_and_singular_values_are_near_one(shape):
    x = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    inside = u.mT @ newton_schulz(x) @ v.mT
    values = inside.diagonal(dim1=-2, dim2=-1)
    assert ((0.3 < values) & (values < 1.3)).all()  # 0.7 to 1.2 where the matrix is not nearly singular
    assert (inside - torch.diag_embed(values)).abs().max() < 1e-12


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(16, 32), (32, 16)], ids=str)
def test_sums_of_gram_matrices_are_enough_but_blocks_are_not(shape, dim):
    """The note's example: blocks of rows or columns, each updated alone, are another matrix."""
    x = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole, parts = newton_schulz(x), x.chunk(2, dim)
    alone = torch.cat([newton_schulz(part) for part in parts], dim)
    assert (alone - whole).norm() / whole.norm() > 0.1
    partial = iter(_partial_sums(parts, wide=dim == 1))
    mine = newton_schulz(parts[0], lambda one: one + next(partial), wide=dim == 1)
    assert (mine - whole.chunk(2, dim)[0]).abs().max() < 1e-13


def _partial_sums(parts, wide):
    """What the second rank sends: both are played together, so that each has the sums of the other."""
    a, b, c = 3.4445, -4.7750, 2.0315
    turn = (lambda x: x) if wide else (lambda x: x.mT)
    norms = [part.square().sum((-2, -1), keepdim=True) for part in parts]
    yield norms[1]
    xs = [turn(part) / sum(norms).sqrt() for part in parts]
    while True:
        grams = [x @ x.mT for x in xs]
        yield grams[1]
        gram = sum(grams)
        xs = [a * x + (b * gram + c * gram @ gram) @ x for x in xs]


@pytest.mark.parametrize("m, n", [(8, 8), (8, 24), (24, 8)])
def test_it_takes_20_m_m_n_and_10_m_m_m_operations(m, n):
    with FlopCounterMode(display=False) as counted:
        newton_schulz(torch.randn(m, n))
    m, n = sorted((m, n))
    assert counted.get_total_flops() == 20 * m * m * n + 10 * m**3


def test_steps_are_those_of_torch_whose_matrices_are_rounded_to_bfloat16():
    chance = torch.Generator().manual_seed(2)
    first = torch.randn(24, 40, generator=chance)
    ours, theirs = (torch.nn.Parameter(first.clone()) for _ in range(2))
    update = lambda x: 0.2 * math.sqrt(40) * newton_schulz(x)
    muons = [
        Muon([{"params": [ours], "update": [update], "weight_decay": 0.1}], lr=0.02),
        torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(3):
        gradient = torch.randn(24, 40, generator=chance)
        for weight, muon in zip((ours, theirs), muons):
            weight.grad = gradient.clone()
            muon.step()
    off = (ours - theirs).norm() / (ours - first).norm()
    assert 0 < off < 0.02  # 2⁻⁸ is one rounding of bfloat16


# ---- which parameters, and their owners


def test_dims_and_not_names_tell_the_hidden_matrices():
    job = job_of(hl.Mesh(dp=1), model=EXPERTS, **MUON)
    kinds = {name.split(".", 2)[-1] for name in full_matrices.of_muon(job)}
    attention = {f"attention.{one}.weight" for one in ("q", "k", "v", "out")}
    assert kinds == attention | {f"mlp.experts.{one}.weight" for one in ("up", "down")} | {
        f"mlp.shared.0.{one}.weight" for one in ("up", "down")
    }


def test_each_matrix_has_one_owner_and_pieces_are_equal():
    """Sizes 12 and 4 × 3 of three matrices and two biases on two owners."""
    sizes = {"a": (3, 4), "b": (2, 2), "c": (2, 2), "d": (2, 2)}
    params = [Param(name, shape, partial=("dp",), owners=2, rest=1, whole=True) for name, shape in sizes.items()]
    params.append(Param("bias", (5,), partial=("dp",), owners=2, rest=1))
    layout = packed(Layout(hl.Mesh(dp=2), tuple(params)), dict.fromkeys("abcd", (0,)) | {"bias": (0,)}, limits=(0, 0))
    layout.validate()
    assert layout.dealt == {"a": 0, "b": 1, "c": 1, "d": 1}
    pack = layout["a"].pack
    assert len(layout.packs) == 2 and layout.piece(pack, 0) == 12 and layout.piece(layout["bias"].pack, 0) == 3
    starts = {name: layout.offset(name, 0) for name in layout.packs[pack]}
    assert sorted(starts.values()) == [0, 12, 16, 20]
    for name in sizes:
        shares = [layout.share(name, rank) for rank in (0, 1)]
        assert sorted(share.stop - share.start for share in shares) == [0, math.prod(sizes[name])]
        assert [layout.owns(name, rank) for rank in (0, 1)] == [share.stop > share.start for share in shares]


def test_ranks_with_smaller_boxes_deal_alike():
    """Along tp the second rank has less of each matrix: the first of both has the largest box all the same."""
    cut = lambda rows: {"tp": Cut(0, ((0, rows - 1), (rows - 1, rows)))}
    params = (Param("a", (5, 2), cut(5), partial=("dp",)), Param("b", (3, 2), cut(3), partial=("dp",)))
    layout = Layout(hl.Mesh(dp=2, tp=2), params).with_params(lambda one: {"owners": 2, "rest": 1, "whole": True})
    assert all(layout.owns("a", rank) == (rank < 2) and layout.owns("b", rank) == (rank >= 2) for rank in range(4))


def test_the_largest_hand_is_small():
    sizes = {str(place): size for place, size in enumerate([7, 7, 6, 6, 5, 5, 4, 4, 4])}  # Graham's worst case: 11/9
    held = [0] * 3
    for name, owner in deal(sizes, 3).items():
        held[owner] += sizes[name]
    assert sum(held) == 48 and max(held) <= 16 * 4 / 3


# ---- equal to one device

EXACT = {
    "dp": (hl.Mesh(dp=2), SHAPE, {}),
    "zero 1": (hl.Mesh(dp=2), SHAPE, {"zero": 1}),
    "tp": (hl.Mesh(tp=2), SHAPE, {}),
    "tp, gram": (hl.Mesh(tp=2), SHAPE, {"muon": "gram"}),
    "dp tp, zero 1": (hl.Mesh(dp=2, tp=2), SHAPE, {"zero": 1, "decay": 0.1, "clip": 0.05}),
    "zero 2": (hl.Mesh(dp=2), SHAPE, {"zero": 2, "accumulate": 2}),
    "zero 3": (hl.Mesh(dp=2), SHAPE, {"zero": 3}),
    "hybrid": (hl.Mesh(dp=4), SHAPE, {"zero": 3, "owners": 2}),
    "pp": (hl.Mesh(pp=2), SHAPE, {}),
    "pp dp, zero 1": (hl.Mesh(pp=2, dp=2), SHAPE, {"zero": 1}),
    "both ways": (hl.Mesh(pp=2), SHAPE, {"schedule": "chimera"}),
    "cp, zero 1": (hl.Mesh(cp=2), SHAPE, {"zero": 1}),
    "grid": (hl.Mesh(x=2), SHAPE, {}),
    "grid tp, zero 1": (hl.Mesh(dp=2, x=2, tp=2), SHAPE, {"zero": 1}),
    "ep": (hl.Mesh(ep=2), EXPERTS, {}),
    "ep dp, zero 1": (hl.Mesh(dp=2, ep=2), EXPERTS, {"zero": 1}),
    "ep tp, gram": (hl.Mesh(ep=2, tp=2), EXPERTS, {"muon": "gram"}),
    "copied heads": (hl.Mesh(tp=4), hl.Shape(**SIZES, style="llama", kv_heads=1, inner=24), {}),
    "copied heads, gram": (hl.Mesh(tp=4), hl.Shape(**SIZES, style="llama", kv_heads=1, inner=24), {"muon": "gram"}),
    "latents": (hl.Mesh(dp=2), hl.Shape(**SIZES, style="llama", latent=6, rotary=4), {"zero": 3}),
    "asynchronous": (hl.Mesh(pp=2), SHAPE, {"schedule": "pipedream"}),
    "host": (hl.Mesh(dp=2), SHAPE, {"zero": 1, "offload": True}),
    "stored on hosts": (hl.Mesh(dp=2), SHAPE, {"zero": 3, "offload": True, "owners": 1}),
    "some dims named": (hl.Mesh(tp=2), "multi_token", {}),
    "tp, blocks": (hl.Mesh(tp=2), SHAPE, {"muon": "blockwise"}),
    "dp x tp, blocks, zero 1": (hl.Mesh(dp=2, x=2, tp=2), SHAPE, {"muon": "blockwise", "zero": 1, "clip": 0.05}),
    "ep tp, blocks, zero 3": (hl.Mesh(ep=2, tp=2, dp=2), EXPERTS, {"muon": "blockwise", "zero": 3}),
    "copied heads, blocks": (
        hl.Mesh(tp=4),
        hl.Shape(**SIZES, style="llama", kv_heads=1, inner=24),
        {"muon": "blockwise"},
    ),
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", first(5, EXACT))
def test_every_layout_equals_one_device_and_its_bytes_the_formula(bench, name):
    mesh, model, more = EXACT[name]
    report = bench.asked(mesh, model=model, **MUON | more)
    assert report.ok and report.largest_gap <= 1e-10, report
    assert ("blocks of matrices" in report.reference) == ("blocks" in name)


@pytest.mark.ranks
def test_blocks_are_another_optimizer_that_sends_nothing(bench):
    """With full matrices, one device gets different weights from ranks that update blocks; gradients are equal."""
    report = bench.asked(hl.Mesh(tp=2), model=SHAPE, muon="blockwise", **MUON)
    assert report.reference == "one device that updates the same blocks of matrices (tp=2)"
    assert "messages of blocks" not in report.bytes and not any(what == "matrices" for what, *_ in report.axes)
    report = bench.asked(hl.Mesh(tp=2), model=SHAPE, sabotage=on_blocks, **MUON)
    found = {name: gap for name, gap in report.gaps.items() if "k.bias" not in name}  # its gradient is noise
    gaps = {kind: max(gap for name, gap in found.items() if name.startswith(kind)) for kind in ("grad", "weight")}
    assert not report.ok and gaps["grad"] < 1e-10 < 1e-2 < gaps["weight"]
    assert hl.check(hl.Mesh(dp=2), model=SHAPE, muon="blockwise", **MUON).reference == "one device", "nothing is cut"


def on_blocks(patch):
    patch.setattr(full_matrices, "gathered", blockwise)


@pytest.mark.ranks
@pytest.mark.parametrize("dtype", first(1, ["float32", "bfloat16"]))
def test_other_dtypes_are_within_their_noise(bench, dtype):
    assert bench.asked(hl.Mesh(dp=2, tp=2), model=SHAPE, zero=1, dtype=dtype, **MUON).ok


# ---- mutants


def ranks_only(where, name, value):
    return lambda patch: patch.setattr(where, name, value)


def norm_of_the_block(patch):
    def wrong(x, summed=lambda one: one, wide=None):
        calls = iter(range(99))
        return newton_schulz(x, lambda one: summed(one) if next(calls) else one, wide)

    patch.setattr(full_matrices, "newton_schulz", wrong)


def always_wide(patch):
    def wrong(x, summed=lambda one: one, wide=None):
        if x.shape[-2] != x.shape[-1]:  # else the Gram matrices of the parts could not even be added
            return newton_schulz(x, summed, wide)
        return newton_schulz(x, summed, True)

    patch.setattr(full_matrices, "newton_schulz", wrong)


def embedding_too(patch):
    right = full_matrices.is_hidden_matrix
    wrong = lambda param, scores: right(param, scores) or param.name == "embed.token.weight"
    patch.setattr(full_matrices, "is_hidden_matrix", wrong)


def matrices_not_published(patch):
    def publish(weights):
        for pack in weights.pieces:
            if not weights.layout[weights.layout.packs[pack][0]].whole:
                weights.values[pack].copy_(weights._gather(pack).wait())

    patch.setattr(Sharded, "publish", torch.no_grad()(publish))


def factor_of_the_block(patch):
    right = full_matrices.update_of

    def wrong(job, name, comm=None):
        update = right(job, name, comm)
        if comm is None:
            return update
        box = [span.stop - span.start for span in job.layout.box(name, comm.rank)]
        off = math.sqrt(max(box[-2:]) / max(job.layout[name].shape[-2:]))
        return lambda part: off * update(part)

    patch.setattr(full_matrices, "update_of", wrong)


def first_part_kept(patch):
    box = Layout.box
    patch.setattr(full_matrices, "gathered", lambda part, param, layout, comm: _kept(part, param, layout, comm, box))


def _kept(part, param, layout, comm, box):
    for axes, cut in full_matrices._cuts(param).items():
        part = full_matrices._joined(part, axes, cut, comm)
    return newton_schulz(part)[tuple(slice(0, span.stop - span.start) for span in box(layout, param.name, comm.rank))]


def blockwise(part, *_):
    return newton_schulz(part)


MUTANTS = {
    "the momentum is gathered after its block was updated": (
        hl.Mesh(tp=2),
        {},
        ranks_only(full_matrices, "gathered", blockwise),
    ),
    "the norm of the block": (hl.Mesh(tp=2), {"muon": "gram"}, norm_of_the_block),
    "rows are cut, and X Xᵀ is added up": (hl.Mesh(tp=2), {"muon": "gram", "model": hl.Shape(
        layers=1, width=16, heads=2, context=8, inner=32)}, always_wide),
    "the owner's new matrices are not gathered": (hl.Mesh(dp=2), {"zero": 1}, matrices_not_published),
    "an embedding is taken for a hidden matrix": (hl.Mesh(dp=2), {}, embedding_too),
    "the factor is that of the block": (hl.Mesh(tp=2), {}, factor_of_the_block),
    "every rank keeps the first part": (hl.Mesh(tp=2), {}, first_part_kept),
}  # fmt: skip


@pytest.mark.ranks
@pytest.mark.parametrize("name", first(3, MUTANTS))
def test_each_mistake_is_noticed(bench, name):
    mesh, more, sabotage = MUTANTS[name]
    about = MUON | {"model": SHAPE} | more
    assert bench.right(mesh, **about)
    report = bench.asked(mesh, sabotage=sabotage, **about)
    assert not report.ok
    real = [name for name in report.gaps if name.startswith("gradient") and "k.bias" not in name]  # that one is noise
    assert max(report.gaps[name] for name in real) <= 1e-10


def on_flat_shares(patch):
    """The naive form: ZeRO's pieces end anywhere, and each rank orthogonalises its piece of a matrix."""
    patch.setattr(Layout, "dealt", cached_property(lambda layout: {}))
    Layout.dealt.__set_name__(Layout, "dealt")
    row = lambda share: newton_schulz(share.view(1, -1)).view(share.shape) if share.numel() else share
    right = full_matrices.update_of
    wrong = lambda job, name, comm=None: row if comm else right(job, name)
    patch.setattr(full_matrices, "update_of", wrong)


@pytest.mark.ranks
def test_flat_shares_have_equal_gradients_and_other_weights(bench, monkeypatch):
    on_flat_shares(monkeypatch)
    report = bench.asked(hl.Mesh(dp=2), model=SHAPE, zero=1, sabotage=on_flat_shares, **MUON)
    gaps = {kind: max(gap for name, gap in report.gaps.items() if name.startswith(kind)) for kind in ("grad", "weight")}
    assert not report.ok and gaps["grad"] < 1e-10 < 1e-2 < gaps["weight"]


# ---- bytes and memory


def test_owners_of_matrices_send_as_much_as_plain_copies():
    """Where matrices can be dealt evenly: 2Ψ(d-1)/d, and a gather or Gram matrices inside the stage."""
    plain, dealt = (job_of(hl.Mesh(dp=2), model=SHAPE, zero=zero, **MUON) for zero in (0, 1))
    sent = lambda job: sum(one.sent for one in job.keeper.transfers(job) if 0 in one.ranks)
    names = full_matrices.of_muon(dealt)
    whole = [pack for pack, its in dealt.layout.packs.items() if its[0] in names]
    assert sum(2 * dealt.layout.piece(pack, 0) for pack in whole) == sum(dealt.layout.size(one, 0) for one in names)
    assert 0 <= sent(dealt) - sent(plain) <= 4 * len(dealt.layout.packs)  # odd biases are padded by one


@pytest.mark.parametrize("t", [2, 4])
def test_gathers_and_gram_matrices_send_their_closed_forms(t):
    found = {}
    for way in ("gather", "gram"):
        job = job_of(hl.Mesh(tp=t), model=SHAPE, muon=way, **MUON)
        (mode,) = (mode for mode in job.modes if mode.purpose == "matrices")
        found[way] = sum(one.sent for one in mode.transfers(job))
    d, matrices_of = SIZES["width"], SIZES["layers"]
    weights = matrices_of * 12 * d * d
    assert found["gather"] == 4 * weights * (t - 1) / t
    assert found["gram"] == matrices_of * 6 * 4 * (5 * d * d + 1) * 2 * (t - 1) / t  # the side left is d in all six


@pytest.mark.ranks
@pytest.mark.parametrize("zero", first(2, [1, 0, 2, 3]))
def test_state_is_one_number_for_each_element_of_a_matrix(bench, zero):
    job = job_of(hl.Mesh(dp=2), model=SHAPE, zero=zero, **MUON)
    for rank, counted in enumerate(bench.pool(job.mesh).run(_memory, job)):
        assert counted == model_states(job.layout, rank, job.widths)
    adam = job_of(hl.Mesh(dp=1), model=SHAPE, optimizer="adamw", microbatches=2)
    muon = job_of(hl.Mesh(dp=1), model=SHAPE, **MUON)
    less = (
        model_states(adam.layout, 0, adam.widths)["optimizer"] - model_states(muon.layout, 0, muon.widths)["optimizer"]
    )
    assert less == 4 * sum(muon.layout.size(name, 0) for name in full_matrices.of_muon(muon))
    assert Widths().matrix == 1


def _memory(comm, job):
    trainer = loop.Trainer(comm, job)
    trainer.step(0)
    trainer.weights.begin()
    counted = loop.memory(trainer)
    trainer.gradients(1)
    return counted | {"gradient": loop.memory(trainer)["gradient"]}


# ---- saved, resumed, refused


@pytest.mark.ranks
def test_momentum_is_resumed_under_another_layout(kept, tmp_path):
    learn = lambda mesh, steps, **more: hl.train(
        mesh, steps=steps, shape=SHAPE, batch=8, dtype="float64", progress=False,
        **MUON | {"microbatches": 8 // 2 // mesh["dp"]} | more,
    )["losses"]  # fmt: skip
    alone = learn(hl.Mesh(pp=1), 6)
    learn(hl.Mesh(dp=2, tp=2), 3, zero=1, checkpoint=tmp_path)
    for mesh, more in ((hl.Mesh(dp=2), {"zero": 3}), (hl.Mesh(tp=2), {"muon": "gram"})):
        here = tmp_path / str(mesh["dp"])
        here.mkdir()
        (newest,) = (one for one in tmp_path.iterdir() if one.is_dir() and "step" in one.name)
        (here / newest.name).symlink_to(newest)
        assert learn(mesh, 6, checkpoint=here, resume=True, **more) == pytest.approx(alone[3:], rel=1e-10)


@pytest.mark.ranks
def test_blocks_are_resumed_under_the_same_cuts_only(kept, tmp_path):
    about = dict(shape=SHAPE, batch=8, dtype="float64", progress=False, muon="blockwise", checkpoint=tmp_path)
    about |= MUON | {"microbatches": 4}
    whole = hl.train(hl.Mesh(tp=2), steps=4, **about | {"checkpoint": None})["losses"]
    hl.train(hl.Mesh(tp=2), steps=2, **about)
    with pytest.raises(
        ValueError, match="saved with optimizer=muon in blocks of tp=2, but this run has optimizer=muon"
    ):
        hl.train(hl.Mesh(pp=2), steps=4, resume=True, **about)
    with pytest.raises(ValueError, match="muon='blockwise' updates different blocks after the change: choose 'gather'"):
        hl.reshard(hl.Mesh(tp=2), to=hl.Mesh(pp=2), shape=SHAPE, muon="blockwise", **MUON)
    rest = hl.train(hl.Mesh(dp=2, tp=2), steps=4, resume=True, zero=1, **about | {"microbatches": 2})["losses"]
    assert rest == pytest.approx(whole[2:], rel=1e-10)


REFUSED = [
    (dict(model="conv", mesh=hl.Mesh(dp=2)), "finds no hidden matrix"),
    (dict(mesh=hl.Mesh(tp=2), offload=True), "leave out offload"),
    (dict(mesh=hl.Mesh(tp=2), muon="flat"), "there is no muon 'flat': choose one of gather, gram, blockwise"),
    (dict(mesh=hl.Mesh(tp=2), muon="gram", optimizer="adamw"), "give optimizer='muon' too"),
]


@pytest.mark.parametrize("given, words", REFUSED)
def test_what_cannot_be_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        job_of(**MUON | {"model": SHAPE} | given)
