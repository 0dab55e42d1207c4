"""A second opinion on what a check and its reference share: batches, loss, clipping, optimizer groups, evaluation.

`alone` trains with the same `Job` as the ranks, so a mistake in the job is in both, and the proof says equal. What
stands here is written out once more and asks the package for the model's layers only.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.training import replay
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import GALLERY
from hybridlab.training.reference import OneDevice, alone_on_rank

SHAPE = hl.Shape(layers=2, width=16, heads=2, context=8)
LEARN = dict(shape=SHAPE, dtype="float64", microbatches=3, batch=6, steps=3, seed=5)
STEPS, ROWS, EACH = 3, 6, 2


def text(of_which):
    """The bytes to learn from, or the last tenth, which is held back."""
    letters = (Path(hl.__file__).parent / "training" / "data" / "course.txt").read_bytes()
    border = math.ceil(len(letters) * 0.9)
    return np.frombuffer(letters[border:] if of_which == "held back" else letters[:border], np.uint8)


def batch(step, seed=5, of_which="learned"):
    """(tokens, targets): rows of a text that begin where a generator of this seed and step says."""
    letters = text(of_which)
    places = np.random.default_rng((seed, step)).integers(0, len(letters) - SHAPE.context, ROWS)
    rows = [letters[place : place + SHAPE.context + 1].astype(np.int64) for place in places]
    return torch.tensor(np.array(rows))[:, :-1], torch.tensor(np.array(rows))[:, 1:]


def mean_loss(module, tokens, targets):
    """-log of what the model says of each right token, on average: by the definition, and all rows at once."""
    power = module(tokens).exp()
    right = power.gather(2, targets[:, :, None])[:, :, 0]
    return -(right / power.sum(2)).log().mean()


def stepped(module, state, clip, optimizer, rate, decay, betas=(0.9, 0.999)):
    """One update by hand, of SGD or AdamW; biases and norms do not decay."""
    named = dict(module.named_parameters())
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(module.parameters(), clip)  # as its owner's loop does, with torch's 1e-6
    state["t"] = t = state.get("t", 0) + 1
    first, second = betas
    with torch.no_grad():
        for name, weight in named.items():
            gradient, decays = weight.grad, not name.endswith("bias") and "norm" not in name
            if optimizer == "adamw":
                m, v = state.get(name, (0, 0))
                m, v = state[name] = first * m + (1 - first) * gradient, second * v + (1 - second) * gradient**2
                weight *= 1 - rate * decay * decays
                weight -= rate * (m / (1 - first**t)) / ((v / (1 - second**t)).sqrt() + 1e-8)
            else:
                weight -= rate * (gradient + decay * decays * weight)


def trained(job, rates=None, **how):
    """(losses, weights by name, the first gradients) of the whole batch at once, in a loop of its own."""
    module, state, losses, first = job.model.made(5, torch.float64), {}, [], None
    for step in range(STEPS):
        module.zero_grad()
        loss = mean_loss(module, *batch(step))
        loss.backward()
        first = first or {name: weight.grad.clone() for name, weight in module.named_parameters()}
        stepped(module, state, **how | {"rate": rates[step] if rates else how["rate"]})
        losses.append(loss.item())
    return losses, dict(module.named_parameters()), first


HOW = {
    "sgd, clipped, with decay": dict(optimizer="sgd", rate=0.5, clip=0.3, decay=0.2),
    "sgd, hardly clipped": dict(optimizer="sgd", rate=0.5, clip=1.0, decay=0.0),
    "adamw with decay": dict(optimizer="adamw", rate=0.01, clip=None, decay=0.3),
    "adamw with betas": dict(optimizer="adamw", rate=0.01, clip=None, decay=0.3, betas=(0.5, 0.9)),
}
PACED = {  # (what is asked for, the rate of each of three steps)
    "a function": (dict(rate=lambda step: 0.5 / (1 + step)), (0.5, 0.25, 0.5 / 3)),
    "a warm-up": (dict(rate=0.5, warmup=4), (0.125, 0.25, 0.375)),
    "cosine": (dict(rate=0.5, warmup=1, anneal="cosine"), (0.5, 0.5, 0.25)),
    "linear": (dict(rate=0.6, anneal="linear"), (0.6, 0.4, 0.2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, HOW))
def test_the_reference_trains_as_one_written_by_hand(name):
    job = job_of(hl.Mesh(pp=1), **LEARN, **HOW[name])
    losses, weights, first = trained(job, **HOW[name])
    found = alone_on_rank(None, job)
    assert found["losses"] == pytest.approx(losses, rel=1e-12)
    for name, weight in weights.items():
        assert torch.allclose(found["gradient"][name], first[name], rtol=1e-9, atol=1e-14), name
        assert torch.allclose(found["weight"][name], weight, rtol=1e-9, atol=1e-10), name


@pytest.mark.slow
@pytest.mark.parametrize("name", PACED)
def test_the_reference_has_in_each_step_the_rate_that_is_meant(name):
    how, (asked, rates) = dict(optimizer="sgd", clip=None, decay=0.2), PACED[name]
    losses, weights, _ = trained(job_of(hl.Mesh(pp=1), **LEARN), rates, rate=None, **how)
    found = alone_on_rank(None, job_of(hl.Mesh(pp=1), **LEARN, **how, **asked))
    assert found["losses"] == pytest.approx(losses, rel=1e-12)
    assert all(torch.allclose(found["weight"][name], weight, rtol=1e-9, atol=1e-10) for name, weight in weights.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "conv", "unet"])
def test_another_seed_has_other_data_and_other_weights(name):
    jobs = [job_of(hl.Mesh(pp=1), model=name, seed=seed) for seed in (1, 2, 1)]
    one, two, again = (job.batch(0)[0][0] for job in jobs)
    assert torch.equal(one, again) and not torch.equal(one, two)
    one, two, again = (next(job.model.made(job.seed, torch.float64).parameters()) for job in jobs)
    assert torch.equal(one, again) and not torch.equal(one, two)


@pytest.mark.slow
def test_the_loss_of_an_asynchronous_pipeline_is_the_mean_over_its_window():
    """Its first update is one of the first microbatch alone, or of a window of two, all with the first weights."""
    for schedule, window in (("pipedream", 1), ("pipedream_2bw", 2)):
        job = job_of(hl.Mesh(pp=2), schedule, 4, 8, **{name: LEARN[name] for name in ("shape", "dtype")})
        inputs, targets = job.batch(0)
        module = job.model.made(0, torch.float64)
        rows = [torch.cat(one[:window]) for one in (inputs, targets)]
        assert job.schedule.window == window
        assert replay.replay(job)[0][0] == pytest.approx(mean_loss(module, *rows).item(), rel=1e-12)


def _evaluated(comm, job):
    """(what an evaluation says, the gradients of a step after it), on a model with dropout."""
    trainer = Trainer(comm, job)
    said = trainer.evaluate(0), trainer.evaluate(1)
    trainer.gradients(1)
    return said, {name: weight.grad.clone() for name, weight in trainer.parameters.items()}


@pytest.mark.ranks
def test_an_evaluation_where_a_step_has_several_plays_is_the_mean_over_the_rows_of_one(bench):
    """Divided by the rows of the whole batch it would be half as large."""
    job = job_of(hl.Mesh(pp=1), **LEARN | {"microbatches": 1, "accumulate": 3})
    ((said, _),) = bench.pool(hl.Mesh(pp=1)).run(_evaluated, job)
    module = job.model.made(5, torch.float64)
    for step in (0, 1):
        inputs, targets = (x[:EACH] for x in batch(step, of_which="held back"))
        assert said[step] == pytest.approx(mean_loss(module, inputs, targets).item(), rel=1e-12)


@pytest.mark.ranks
def test_an_evaluation_is_on_data_held_back_without_dropout_which_comes_back_afterwards(bench):
    learn = LEARN | {"shape": hl.Shape(layers=2, width=16, heads=2, context=8, dropout=0.3)}
    ((said, after),) = bench.pool(hl.Mesh(pp=1)).run(_evaluated, job_of(hl.Mesh(pp=1), **learn))
    job = job_of(hl.Mesh(pp=1), **learn)
    alone = OneDevice(job)
    alone.gradients(1)
    module = alone.module
    for name, weight in module.named_parameters():
        assert torch.allclose(after[name], weight.grad, rtol=1e-9, atol=1e-14), name
    module.draws.on = False
    expected = [mean_loss(module, *batch(step, of_which="held back")).item() for step in (0, 1)]
    assert list(said) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, GALLERY))
def test_what_is_held_back_is_never_learned_from(name):
    """Every row that an evaluation sees is none of those that all training steps could draw."""
    data = job_of(hl.Mesh(pp=1), model=name).model.data
    for source in (data, getattr(data, "digits", data)):
        if hasattr(source, "train"):
            assert source.unseen.train is source.validation and source.train is not source.validation
    held, learned = (job_of(hl.Mesh(pp=1), model=name).batch(0, unseen)[0][0] for unseen in (True, False))
    assert not torch.equal(held, learned)
