"""A transformer with its head in pieces is the transformer: on one process, and on ranks with every mode. No mistake
passes."""

import pytest
import torch
from few import first, one_in
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.what.catalog import machine
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.recomputation import done_again
from hybridlab.training.checkpoints import checkpoint
from hybridlab.training.costs import costs_of
from hybridlab.training.make_job import job_of
from hybridlab.training.models import vocabulary_pieces
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.models.vocabulary_pieces import InPieces, Join, Piece, Pieced
from hybridlab.training.resume import Saving, stored_layout

NAME = "vocabulary_1f1b"
SMALL = {"layers": 4, "width": 16, "heads": 4, "context": 12}
SHAPES = {
    "gpt": Shape(**SMALL, dropout=0.1),
    "llama": Shape(**SMALL, style="llama", kv_heads=2, inner=24, vocabulary=259),
    "tied": Shape(**SMALL, tied=True, vocabulary=257),
    "qwen": Shape(**SMALL, style="llama", kv_heads=1, per_head=6, inner=24, tied=True),
    "latent": Shape(**SMALL, style="llama", latent=6, rotary=4, query_latent=10),
    "experts": Shape(**SMALL, experts=4, chosen=2, shared=1, inner=16),
    "headless": Shape(layers=2, width=16, heads=0, context=8),
    "documents": Shape(**SMALL, documents=(7, 3, 2)),
    "parallel": Shape(**SMALL, parallel=True),
    "skips": Shape(**SMALL, skips=True, tied=True),
}


def gathered(named: dict, tied: bool) -> dict:
    """Tensors by the names of the model as it is: pieces joined."""
    found = {name: x for name, x in named.items() if ".pieces." not in name}
    pieces = [x for name, x in named.items() if ".pieces." in name]
    return found | {"embed.token.weight" if tied else "head.scores.weight": torch.cat(pieces)}


# ---- on one process


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("name", one_in(4, SHAPES))
def test_a_model_in_pieces_is_the_model(name, number):
    """Its initial weights, its loss and every gradient, in float64."""
    model = Transformer(SHAPES[name]).for_proof()
    pieced = Pieced(model, number)
    whole, module = model.made(0, torch.float64), pieced.made(0, torch.float64)
    weights = dict(whole.named_parameters())
    same = gathered(dict(module.named_parameters()), model.shape.tied)
    assert {name: torch.equal(x, weights[name]) for name, x in same.items()} == dict.fromkeys(weights, True)
    tokens, targets = model.batch(0, 3)
    inputs, _ = pieced.batch(0, 3)
    assert all(map(torch.equal, inputs, (tokens, targets)))
    layers = dict(enumerate(pieced.layers(module)))
    losses = pieced.loss(in_sequence(layers, pieced.takes(module), {-1: inputs})[len(layers) - 1], targets)
    loss = model.loss(model.through(whole, tokens), targets)
    assert abs((losses - loss).item()) < 1e-10 * loss.item()
    loss.backward(), losses.backward()
    found = gathered({name: x.grad for name, x in module.named_parameters()}, model.shape.tied)
    for name, weight in weights.items():
        if weight.grad is not None and weight.grad.abs().max() > 1e-12:
            assert (found[name] - weight.grad).abs().max() < 1e-10 * weight.grad.abs().max(), name


@pytest.mark.parametrize("name", one_in(4, SHAPES))
def test_the_examples_between_its_layers_have_the_true_shapes(name):
    pieced = Pieced(Transformer(SHAPES[name]), 3)
    for dtype in (torch.float32, torch.bfloat16):
        module = pieced.made(0, dtype)
        layers = dict(enumerate(pieced.layers(module)))
        made = in_sequence(layers, pieced.takes(module), {-1: pieced.batch(0, 2)[0]})
        told = [(x.shape, x.dtype) for x in pieced.between(2, dtype)]
        assert told == [(made[number].shape, made[number].dtype) for number in range(len(layers))]


def test_the_numbers_of_a_piece_do_not_overflow(monkeypatch):
    """Scores of thousands: the largest is subtracted before exp, in a piece and in the join."""
    pieces, x = [Piece(1, range(2 * i, 2 * i + 2)) for i in range(2)], torch.full((1, 1, 1), 1000.0)
    for number, piece in enumerate(pieces):
        nn.init.constant_(piece.scores.weight, 1.0 + number)
    targets = torch.tensor([[3]])
    loss = lambda: Join()(*(piece((targets, targets), x) for piece in pieces)).item()
    assert loss() == pytest.approx(0.6931, abs=1e-3)
    monkeypatch.setattr(torch.Tensor, "logsumexp", lambda x, dim: x.exp().sum(dim).log())
    assert not loss() < float("inf")


def test_recomputation_leaves_the_pieces_alone():
    job = job_of(Mesh(pp=2), NAME, shape=SHAPES["gpt"], recompute="full")
    assert list(done_again(job)) == [1, 2, 3, 4] and [len(its) for its in job.bounds] == [3, 3, 1, 1, 1]


# ---- on ranks

DRAWN = [  # mesh, shape, further arguments of hl.check
    (Mesh(pp=4), "llama", {"microbatches": 5}),
    (Mesh(dp=2, pp=2), "tied", {"zero": 3}),
    (Mesh(pp=2), "halves", {}),
    (Mesh(pp=2), "gpt", {"recompute": "full", "accumulate": 2, "optimizer": "adamw", "rate": 0.01, "clip": 0.05}),
    (Mesh(pp=2), "llama", {}),
    (Mesh(pp=3), "latent", {"recompute": "selective", "microbatches": 2}),
    (Mesh(dp=2, pp=2), "tied", {"zero": 1}),
    (Mesh(dp=2, pp=2), "qwen", {"zero": 2, "offload": True}),
    (Mesh(dp=2, pp=2), "skips", {"sums": "buckets", "ahead": 2}),
    (Mesh(tp=2, pp=2), "llama", {}),
    (Mesh(pp=2, tp=2), "tied", {"scatter": True}),
    (Mesh(x=2, pp=2), "llama", {}),
    (Mesh(cp=2, pp=2), "tied", {"attend": "ring", "zigzag": True, "zero": 3}),
    (Mesh(cp=2, pp=2), "headless", {}),
    (Mesh(pp=2, ep=2), "experts", {"zero": 3}),
    (Mesh(pp=2), "parallel", {}),
    (Mesh(pp=2), "documents", {"cut": "parameters"}),
    (Mesh(pp=4), "qwen", {}),
    (Mesh(pp=2), "gpt", {"device_memory": 0.5}),
]


@pytest.mark.ranks
@pytest.mark.parametrize("mesh, shape, more", first(3, DRAWN))
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, mesh, shape, more):
    name = hl.schedule(NAME, mesh["pp"], 4, halves=True) if shape == "halves" else NAME
    report = bench.asked(mesh, schedule=name, shape=SHAPES.get(shape, SHAPES["llama"]), **more)
    assert report.ok and report.largest_gap < 1e-10, report


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_it_is_one_device_within_its_rounding(bench, dtype):
    report = bench.asked(Mesh(pp=2), schedule=NAME, shape=SHAPES["qwen"], dtype=dtype)
    assert report.ok, report


@pytest.mark.ranks
@pytest.mark.parametrize("p", first(1, [2, 4]))
def test_the_bytes_between_ranks_are_those_of_the_stream_and_of_two_numbers_per_token(bench, p):
    """For each microbatch p - 1 times, there and back: the stream of the blocks, its copy for a piece, two numbers."""
    rows, microbatches, steps, tokens, width = 2, 4, 3, 12, 16
    report = bench.asked(Mesh(pp=p), schedule=NAME, shape=SHAPES["llama"])
    numbers = (p - 1) * 2 * rows * tokens * (width + width + 2)
    assert report.bytes == {"messages between stages": (steps * microbatches * numbers * 8,) * 2}


# ---- mistakes


def target_of_another_piece():
    """A piece gives some score where the target is not its own."""

    def wrong(self, both, x_BTD):
        scores_BTV = self.scores(x_BTD)
        row_BT = (both[1] - self.span.start).clamp(0, len(self.span) - 1)
        return torch.stack([scores_BTV.logsumexp(2), scores_BTV.gather(2, row_BT[..., None])[..., 0]], 2)

    Piece.forward = wrong


def sums_of_logarithms():
    """The join adds the logarithms of the sums."""

    def wrong(self, *pieces_BT2):
        sums_BTP, targets_BTP = torch.stack(pieces_BT2, 3).unbind(2)
        return sums_BTP.sum(2) - targets_BTP.sum(2)

    Join.forward = wrong


def mean_of_the_pieces():
    """The join takes the mean of the targets' scores, of which only one is not 0."""

    def wrong(self, *pieces_BT2):
        sums_BTP, targets_BTP = torch.stack(pieces_BT2, 3).unbind(2)
        return sums_BTP.logsumexp(2) - targets_BTP.mean(2)

    Join.forward = wrong


def gradient_of_a_piece_lost():
    """The gradient of one piece does not reach the norm and the blocks."""
    whole = Piece.forward

    def wrong(self, both, x_BTD):
        return whole(self, both, x_BTD.detach() if self.span.start else x_BTD)

    Piece.forward = wrong


def token_of_another_piece():
    """A piece believes that its first token is the last one of the piece before it."""
    whole = Piece.__init__

    def wrong(self, width, span):
        whole(self, width, span)
        self.span = range(max(0, span.start - 1), span.stop - (span.start > 0))

    Piece.__init__ = wrong


def norm_of_each_piece():
    """Each piece has its own copy of the norm before the head, and nobody adds their gradients up."""
    layers, whole = InPieces.layers, Piece.forward

    def without_norm(self):
        self.head.norm.forward = lambda x: x
        return layers(self)

    InPieces.layers = without_norm
    Piece.forward = lambda self, both, x_BTD: whole(self, both, functional.layer_norm(x_BTD, x_BTD.shape[-1:]))


MISTAKES = [
    target_of_another_piece,
    sums_of_logarithms,
    gradient_of_a_piece_lost,
    mean_of_the_pieces,
    token_of_another_piece,
    norm_of_each_piece,
]


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", first(3, MISTAKES))
def test_a_mutant_is_caught(mutant):
    shape = SHAPES["gpt" if mutant is norm_of_each_piece else "llama"]
    report = hl.check(Mesh(pp=2), NAME, 2, shape=shape, steps=1, sabotage=mutant)
    assert not report.ok and report.largest_gap > 1e-6, report


@pytest.mark.ranks
def test_without_the_gradient_of_one_piece_the_loss_is_right():
    """A gradient that is lost where the stream fans out shows in gradients only."""
    asked = {"shape": SHAPES["llama"], "steps": 1, "microbatches": 2}
    wrong, right = (hl.check(Mesh(pp=2), NAME, sabotage=one, **asked) for one in (gradient_of_a_piece_lost, None))
    assert wrong.losses == right.losses and right.ok and not wrong.ok


# ---- refusals


@pytest.mark.parametrize(
    "mesh, more, words",
    [
        (Mesh(pp=2), {"model": "conv"}, "vocabulary_1f1b shards the head of a reference transformer"),
        (Mesh(pp=2), {"model": "multi_token"}, "this model has a different last layer"),
        (Mesh(pp=2, tp=2), {"sequence": True}, "the pieces of the head in vocabulary_1f1b read all of them"),
        (Mesh(pp=2, x=2), {"shape": SHAPES["tied"]}, "makes a tied one of pieces"),
        (Mesh(pp=2), {"driven": True}, "not a chain with one stage on each rank"),
        (Mesh(pp=8), {"shape": Shape(layers=4)}, "8 stages need at least 8 layers, but this model has 4"),
        (Mesh(pp=2), {"slices": 2}, "has no option 'slices'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(mesh, more, words):
    with pytest.raises(ValueError, match=words):
        job_of(mesh, NAME, **more)


def test_a_style_without_pieces_is_refused(monkeypatch):
    monkeypatch.delitem(vocabulary_pieces.STYLES, "gpt")
    with pytest.raises(ValueError, match="this model has a different last layer: give shape"):
        job_of(Mesh(pp=2), NAME, shape=Shape(layers=4, style="gpt"))


@pytest.mark.parametrize(
    "pieced, words",
    [(True, "a head of 1 piece.*use a schedule other than"), (False, "a head of 2 .*use pp=2 and")],
)
def test_a_checkpoint_with_another_number_of_pieces_is_refused_with_an_advice(pieced, words, monkeypatch, tmp_path):
    saved, resumed = (job_of(Mesh(pp=2), name) for name in (("1f1b", NAME) if pieced else (NAME, "1f1b")))
    shapes = {name: list(one.shape) for name, one in stored_layout(saved).named.items()}
    monkeypatch.setattr(Saving, "newest", tmp_path)
    monkeypatch.setattr(checkpoint, "record_of", lambda path: {"shapes": shapes, "notes": {}})
    with pytest.raises(ValueError, match=words):
        Saving(tmp_path, resume=True).refuse(resumed)


# ---- what a dry run and a command predict


def test_the_predicted_times_of_the_pieces_add_up_to_the_head():
    """And the step is shorter: no rank waits for the last one."""
    shape = Shape(layers=4, width=1024, heads=8, context=1024, vocabulary=50_000)
    jobs = [job_of(Mesh(pp=4), name, shape=shape, dtype="bfloat16") for name in ("1f1b", NAME)]
    plain, pieces = (costs_of(job, machine("a100")) for job in jobs)
    assert sum(pieces.F) == pytest.approx(sum(plain.F), rel=1e-6) and pieces.F[-1] == 0
    assert pieces.F[3] == pytest.approx(plain.F[0]) and len(set(pieces.F[4:8])) == 1
    lengths = [hl.simulate(job.schedule, costs).length for job, costs in zip(jobs, (plain, pieces))]
    assert lengths[1] < 0.8 * lengths[0]


def test_commands_take_its_name(capsys):
    assert main(["simulate", "--schedule", NAME, "--pp", "2", "--microbatches", "2"]) == 0
    assert NAME in capsys.readouterr().out
