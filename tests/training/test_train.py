"""The reference model, its stages, and the text; on one process."""

import hashlib
import pickle
import time

import numpy as np
import pytest
import torch

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.scheduling.lower import lower
from hybridlab.scheduling.registry import schedule
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.sharded import sharded
from hybridlab.training.data.text import Text
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.gpt import GPT, token_loss
from hybridlab.training.models.graph import graph_of
from hybridlab.training.models.model import Model
from hybridlab.training.models.sampling import sample
from hybridlab.training.reference import alone_on_rank
from hybridlab.training.stages import Links, cut, names_of, seconds_of_layers, stages_of
from hybridlab.world.processes.launch import RankError, ranks

SMALL = Shape(layers=3, width=12, heads=3, context=8)


@pytest.mark.parametrize("shape", [SMALL, Shape(), Shape(layers=1, width=6, heads=1, context=5, vocabulary=11)])
def test_parameters_are_counted_by_formula(shape):
    assert sum(p.numel() for p in GPT(shape).parameters()) == shape.parameters


def test_the_model_is_the_same_from_the_same_seed():
    one, two, other = GPT(SMALL, seed=1), GPT(SMALL, seed=1), GPT(SMALL, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    assert not torch.equal(one.embed.token.weight, other.embed.token.weight)


def test_attention_looks_back_only():
    model = GPT(SMALL, dtype=torch.float64)
    tokens = torch.randint(0, 256, (2, 8), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5:] = 7
    assert torch.allclose(model(tokens)[:, :5], model(changed)[:, :5], atol=1e-12)
    assert not torch.allclose(model(tokens)[:, 5:], model(changed)[:, 5:])


def test_attention_equals_the_written_out_formula():
    attention = GPT(SMALL, dtype=torch.float64).blocks[0].attention
    x_BTD = torch.randn(2, 8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    heads = [project(x_BTD).view(2, 8, 3, 4).permute(0, 2, 1, 3) for project in (attention.q, attention.k, attention.v)]
    scores = heads[0] @ heads[1].transpose(2, 3) / 2  # the square root of the head width, 4
    scores.masked_fill_(torch.ones(8, 8).triu(1).bool(), float("-inf"))
    y_BTD = (scores.softmax(-1) @ heads[2]).permute(0, 2, 1, 3).reshape(2, 8, 12)
    assert torch.allclose(attention(x_BTD), attention.out(y_BTD), atol=1e-12)


def test_an_untrained_model_guesses_bytes():
    tokens, targets = (torch.from_numpy(a.copy()) for a in Text.of().batch(0, 4, 8))
    loss = token_loss(GPT(SMALL)(tokens), targets) / targets.numel()
    assert abs(loss.item() - torch.log(torch.tensor(256.0)).item()) < 0.1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_stages_in_sequence_are_the_model(count):
    model = GPT(SMALL, dtype=torch.float64)
    tokens = torch.randint(0, 256, (2, 8))
    arrived, stages = ((tokens,),), stages_of(model_of(SMALL), model, cut(SMALL, count))
    for stage in stages:
        arrived = stage(*(x for edge in arrived for x in edge))
    assert torch.equal(arrived, model(tokens))
    names = [name for names in names_of(model, stages) for name in names]
    assert names == [name for name, _ in model.named_parameters()]


def test_a_tied_weight_stands_in_both_its_stages():
    shape = Shape(layers=2, width=8, heads=2, context=4, tied=True)
    model = GPT(shape)
    first, last = names_of(model, stages_of(model_of(shape), model, cut(shape, 2)))
    assert set(first) & set(last) == {"embed.token.weight"}
    assert first["embed.token.weight"] is last["embed.token.weight"]


def test_skips_travel_directly_or_with_the_chain():
    shape = Shape(layers=8, skips=True)
    assert shape.skipping == {8: 1, 7: 2, 6: 3}
    links = Links.of(cut(shape, 4), graph_of(10, shape.skipping, {}))
    assert links.crossing == {(0, 1): (2,), (1, 2): (4, 3), (2, 3): (6,), (0, 3): (2, 1)}
    assert links.skips == ((0, 3),) and links.into(3) == [(6,), (2, 1)] and links.out_of(1) == [(4, 3)]


def test_a_model_without_heads_is_an_mlp_and_looks_at_no_neighbour():
    model = GPT(Shape(layers=3, width=8, heads=0, context=4), dtype=torch.float64)
    tokens = torch.tensor([[1, 2, 3, 4]])
    changed = torch.tensor([[9, 2, 3, 4]])
    assert torch.equal(model(tokens)[:, 1:], model(changed)[:, 1:])


@pytest.mark.slow
def test_cuts():
    assert cut(Shape(layers=4), 4) == (range(0, 2), range(2, 3), range(3, 4), range(4, 6))
    assert cut(Shape(layers=4), 2, by=[0, 4]) == (range(0, 1), range(1, 6))
    heavy_ends = cut(Shape(layers=4, width=8, heads=2, vocabulary=4096), 3, by="parameters")
    assert heavy_ends == (range(0, 1), range(1, 5), range(5, 6))
    timed = cut(Shape(layers=4), 2, by="time")
    assert [*timed[0], *timed[1]] == list(range(6))
    with pytest.raises(ValueError, match="5 stages need at least 5 layers, but this model has 4"):
        cut(Shape(layers=4), 5)


@pytest.mark.slow
def test_a_layer_takes_as_long_as_its_forward_and_its_backward():
    class Slowly(torch.autograd.Function):
        forward = staticmethod(lambda ctx, x: x.clone())

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(0.01)
            return gradient

    class Slow(torch.nn.Linear):
        def forward(self, x):
            return Slowly.apply(super().forward(x))

    data = lambda step, rows: (torch.ones(rows, 2), torch.ones(rows, 2))
    model = Model(torch.nn.Sequential(torch.nn.Linear(2, 2), Slow(2, 2)), lambda y, target: (y - target).sum(), data)
    quick, slow = seconds_of_layers(model, repeat=3)
    assert quick < 0.01 <= slow


def test_what_leaves_each_layer_is_named_by_its_weights():
    assert job_of(Mesh(pp=2), shape=SMALL).leaving == ["B T D"] * 4 + ["B T V"]


@pytest.mark.slow
def test_what_passes_a_module_is_found_with_one_row():
    passed = job_of(Mesh(pp=2), shape=SMALL).passed
    row, inside = (1, SMALL.context, SMALL.width), (1, SMALL.context, SMALL.inside)
    assert passed["blocks.0.mlp.up"] == ((1,), True, row, inside)
    assert passed["blocks.2.mlp.down"] == ((3,), True, inside, row)
    assert passed["embed.token"] == ((0,), False, (1, SMALL.context), row)


def test_a_job_that_travels_knows_what_leaves_its_layers(monkeypatch):
    """Of anyone's model that is found out once, by running it: not on every rank."""
    job = job_of(Mesh(pp=2), shape=SMALL)
    text = pickle.dumps(job)
    monkeypatch.setattr(type(job.model), "between", lambda *_: pytest.fail("the model was run again"))
    assert [x.shape for x in pickle.loads(text).between] == [x.shape for x in job.between]


COURSE = "9920a5e575daeb4446015097b3ab2b35249b8c28b4f0210dfd7eaeafa7fd20f4"  # of course.txt


def test_text_is_real_fixed_and_split():
    text = Text.of()
    whole = text.train.tobytes() + text.validation.tobytes()
    assert hashlib.sha256(whole).hexdigest() == COURSE, "stored outputs follow from these bytes: keep them"
    assert 200_000 <= len(whole) <= 300_000 and whole.isascii() and 9 * len(text.validation) <= len(text.train)
    a, b = text.batch(3, 4, 16, seed=1), text.batch(3, 4, 16, seed=1)
    assert (a[0] == b[0]).all() and (a[0][:, 1:] == a[1][:, :-1]).all()
    assert not (a[0] == text.batch(4, 4, 16, seed=1)[0]).all()


def test_every_position_of_a_text_can_begin_a_sequence():
    text = Text(np.arange(8, dtype=np.uint8), np.zeros(0, np.uint8), "0 to 7")
    tokens, targets = text.batch(0, 200, 3)
    assert sorted(set(tokens[:, 0].tolist())) == [0, 1, 2, 3, 4] and targets.max() == 7


def test_a_file_can_be_the_text(tmp_path):
    (tmp_path / "mine.txt").write_bytes(bytes(range(250)) * 8)
    text = Text.of(tmp_path / "mine.txt")
    assert (len(text.train), len(text.validation)) == (1800, 200)
    (tmp_path / "short.txt").write_text("too short")
    for path, says in [
        (tmp_path / "short.txt", "at least 1000"),
        (tmp_path / "none.txt", "No such file"),
        (tmp_path, "it is a folder"),
    ]:
        with pytest.raises(ValueError, match=says):
            Text.of(path)


def test_ranks_with_whole_weights_pass_over_gathers():
    """As PyTorch's runtime does without FSDP; with ZeRO's stage 3 they are played as they are written."""
    gathered = lower(sharded(replicate(schedule("1f1b", 2, 2), Mesh(dp=2, pp=2))))
    for zero, there in ((0, set()), (3, {"UNSHARD", "RESHARD"})):
        job = job_of(Mesh(dp=2, pp=2), gathered, 2, batch=8, shape=SMALL, zero=zero)
        kinds = {action.kind for program in job.schedule.program for action in program}
        assert kinds & {"UNSHARD", "RESHARD"} == there and {"F", "B", "SEND_F"} <= kinds


def test_near_a_temperature_of_zero_the_likeliest_byte_is_written():
    module, said = GPT(SMALL, seed=1), [*b"A rank"]
    for _ in range(6):
        said.append(int(module(torch.tensor([said[-SMALL.context :]]))[0, -1].argmax()))
    printed = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in said)
    assert 10 not in said and sample(module, "A rank", length=6, temperature=1e-9) == printed
    with pytest.raises(ValueError, match="is not ASCII text"):
        sample(module, "")


@pytest.mark.long
def test_training_alone_learns():
    job = job_of(Mesh(pp=1), "1f1b", microbatches=2, batch=8, steps=15, shape=SMALL, optimizer="adamw", rate=1e-2)
    losses = alone_on_rank(None, job)["losses"]
    assert losses[-1] < losses[0] - 0.7


@pytest.mark.parametrize(
    "mesh, more, says",
    [
        (Mesh(pp=9), {}, "at least 9 layers"),
        (Mesh(dp=3, pp=2), {"batch": 8}, "choose a multiple of 12"),
        (Mesh(up=2), {}, "has an axis up, which no mode uses: choose from pp, dp, x, cp, ep, tp"),
        (Mesh(pp=2, dp=2), {"schedule": schedule("1f1b", 2, 4, dp=2)}, "numbers its replicas differently from"),
        (Mesh(pp=2), {"schedule": "2f2b"}, "there is no schedule"),
        (Mesh(dp=2), {"schedule": "2f2b", "zero": 3}, "there is no schedule"),
        (Mesh(pp=2), {"optimizer": "adam"}, "choose one of sgd, adamw"),
        (Mesh(pp=2), {"dtype": "int8"}, "there is no dtype"),
        (Mesh(pp=2), {"steps": 0}, "steps=0 is not positive: give 1 or more"),
        (Mesh(pp=2), {"accumulate": 0}, "accumulate=0 is not positive: give 1 or more"),
        (Mesh(pp=2), {"rows": 0}, "rows=0 is not positive: give 1 or more"),
        (Mesh(pp=2), {"clip": 0.0}, "clip=0.0 is not a valid norm: give a number above 0"),
        (Mesh(pp=2), {"schedule": "zb_v", "driven": True}, "zb_v is not a chain with one stage on each rank"),
        (Mesh(pp=2, tp=2), {"driven": True}, "driven=True cannot run ranks that share a stage"),
    ],
)
def test_jobs_that_do_not_fit_are_refused(mesh, more, says):
    with pytest.raises(ValueError, match=says):
        job_of(mesh, **more)


@pytest.mark.parametrize(
    "sizes, says", [(dict(heads=5), "choose heads from"), (dict(layers=0), "layers=0 is not a valid size")]
)
def test_impossible_shapes_are_refused(sizes, says):
    with pytest.raises(ValueError, match=says):
        Shape(**sizes)


@pytest.mark.ranks
def test_ranks_of_another_mesh_are_refused():
    """With four ranks in a row each would take itself for the first copy, and train on."""
    with ranks(4) as pool, pytest.raises(RankError, match=r"these ranks belong to Mesh\(world=4\), but the job is"):
        pool.run(Trainer, job_of(Mesh(dp=4)))
