"""Multi-token prediction: what it computes, by hand; modes train it as one device does; what is refused."""

import pytest
import torch
from few import one_in
from torch.nn import functional

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import tensor_parallel
from hybridlab.training.make_job import job_of
from hybridlab.training.models import multi_token as model
from hybridlab.training.models.modern import Modern
from hybridlab.training.models.multi_token import WEIGHT, MultiToken, both_loss, multi_token

SHAPE = Shape(layers=2, width=16, heads=4, context=8, style="llama", inner=24)
PP2, PP4 = Mesh(pp=2), Mesh(pp=4)


def made(shape=SHAPE):
    return MultiToken(shape, seed=3, dtype=torch.float64)


def tokens(rows=3):
    inputs, targets = multi_token(SHAPE).batch(0, rows)
    return inputs.long(), targets.long()


def test_without_its_further_block_it_is_the_modern_transformer():
    whole, plain = made(), Modern(SHAPE, seed=3, dtype=torch.float64)
    inputs, _ = tokens()
    assert torch.equal(whole(inputs)[:, :8], plain(inputs))
    more = dict(whole.named_parameters()).keys() - dict(plain.named_parameters()).keys()
    assert more and all(name.startswith("blocks.2.") for name in more)


def test_the_loss_is_that_of_the_next_token_and_a_part_of_the_one_behind():
    """Position by position: from what the blocks made of i and the embedding of i + 1, token i + 2 is predicted."""
    whole, (inputs, targets) = made(), tokens()
    further, head = whole.blocks[2], whole.head
    stream = whole.embed(inputs)
    for block in whole.blocks[:2]:
        stream = block(stream)
    rows, total = inputs.shape[0], 0.0
    for row in range(rows):
        both = [torch.cat([further.norm(stream[row, i]), further.next_norm(whole.embed.token(inputs[row, i + 1]))])
                for i in range(7)]  # fmt: skip
        guessed = head.scores(head.norm(further.block(further.joined(torch.stack(both))[None])))[0]
        total += WEIGHT * sum(functional.cross_entropy(guessed[i], targets[row, i + 1]) for i in range(7))
        scores = head.scores(head.norm(stream[row]))
        total += sum(functional.cross_entropy(scores[i], targets[row, i]) for i in range(8))
    torch.testing.assert_close(both_loss(whole(inputs), targets), total, rtol=1e-12, atol=0)


def test_no_position_knows_the_token_that_it_predicts():
    """Whatever comes behind position i + 1 changes nothing in what `further` says at i."""
    whole, (inputs, _) = made(), tokens(rows=1)
    other = inputs.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 256
    before, after = (whole(one)[0, 8:] for one in (inputs, other))
    assert torch.equal(before[:4], after[:4]) and not torch.equal(before[4], after[4])


@pytest.mark.parametrize("more", ({"skips": True}, {"parallel": True}, {"documents": (3, 5)}, {"experts": 4}))
def test_a_shape_with_what_it_has_not_is_refused(more):
    with pytest.raises(ValueError, match="leave out skips, parallel, documents and experts"):
        multi_token(Shape(layers=2, width=16, heads=4, context=8, style="llama", **more))


@pytest.mark.parametrize(
    "mesh, more, said",
    [
        (Mesh(tp=2), {"sequence": True}, "shards the positions T, but no dimension of this model has that name"),
        (Mesh(cp=2), {}, "shards the positions T, but no dimension of this model has that name"),
        (Mesh(x=2), {}, "shards the width D"),
    ],
)
def test_what_would_cut_positions_or_the_width_is_refused(mesh, more, said):
    with pytest.raises(ValueError, match=said):
        job_of(mesh, model="multi_token", **more)


@pytest.mark.slow
def test_a_proof_reads_the_whole_vocabulary_and_a_training_the_text():
    plain = multi_token(SHAPE)
    assert len(plain.for_proof().batch(0, 64)[0].unique()) > 2 * len(plain.batch(0, 64)[0].unique())
    assert plain.batch(0, 2)[0].tolist() != plain.batch(0, 2, unseen=True)[0].tolist()


CASES = [
    (PP4, {"schedule": "zb_h1"}),
    (PP2, {"schedule": "interleaved", "chunks": 2}),
    (Mesh(dp=2, pp=2), {"zero": 1, "optimizer": "adamw", "clip": 1.0}),
    (Mesh(dp=2), {"zero": 3}),
    (Mesh(pp=2, tp=2), {"recompute": "full"}),
]


@pytest.mark.ranks
@pytest.mark.parametrize("mesh, more", one_in(3, CASES))
def test_modes_train_it_as_one_device_does_and_every_byte_is_claimed(bench, mesh, more):
    report = bench.asked(mesh, model="multi_token", dtype="float64", **more)
    assert report.ok and report.largest_gap <= 1e-10 and not report.untouched, report


@pytest.mark.ranks
def test_the_embedding_crosses_every_border_beside_the_stream(bench):
    of = lambda name: bench.asked(PP2, model=name, dtype="float64").bytes["messages between stages"]
    assert of("multi_token") == tuple(2 * each for each in of("modern"))


@pytest.mark.ranks
def test_counting_features_before_positions_is_caught(bench, monkeypatch):
    """Of 31 positions in place of 32, the formula by features had nothing left: 31 // 32."""
    by_layer = tensor_parallel._by_layer

    def whole_features(job):
        T, D = job.sizes.get("T", 32), 32
        return {layer: [(kind, letter, row // (T * D) * T * D, wanted) for kind, letter, row, wanted in its]
                for layer, its in by_layer(job).items()}  # fmt: skip

    monkeypatch.setattr(tensor_parallel, "_by_layer", whole_features)
    assert not bench.asked(Mesh(tp=2), model="multi_token", dtype="float64").ok


@pytest.mark.parametrize("name", ["joined", "next"])
def test_a_mistake_in_what_is_known_is_another_loss(name, monkeypatch):
    """One device and all modes run the same model, so a wrong one is equal to itself: only its definition tells."""
    inputs, targets = tokens()
    right = both_loss(made()(inputs), targets)
    if name == "joined":
        monkeypatch.setattr(model.Further, "forward", lambda self, x, token: self.block(self.joined(
            torch.cat([self.next_norm(token[:, 1:]), self.norm(x[:, :-1])], 2))))  # fmt: skip
    else:
        monkeypatch.setattr(model.Further, "forward", lambda self, x, token: self.block(self.joined(
            torch.cat([self.norm(x[:, :-1]), self.next_norm(token[:, :-1])], 2))))  # fmt: skip
    assert not torch.allclose(both_loss(made()(inputs), targets), right)
