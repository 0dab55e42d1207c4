"""Anyone's model: layers in sequence, a summed loss and batches; equal to one device, or refused in a sentence."""

import os
import pathlib
import re
import sys
import time
from functools import partial

import cloudpickle
import pytest
import torch
from few import first, one_in
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.predict.bytes.memory import model_states
from hybridlab.training import check, loop
from hybridlab.training.make_job import job_of
from hybridlab.training.models.batch_norm import BatchNorm
from hybridlab.training.models.gallery import GALLERY, named
from hybridlab.training.models.gpt import Dropout
from hybridlab.training.models.model import Model
from hybridlab.training.stages import Stage
from hybridlab.world.processes.launch import RankError

cloudpickle.register_pickle_by_value(sys.modules[__name__])
PP2, PP4, DP2, TP2 = hl.Mesh(pp=2), hl.Mesh(pp=4), hl.Mesh(dp=2), hl.Mesh(tp=2)
ADAM = dict(optimizer="adamw", rate=0.01)


def noise(step, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(step), dtype=torch.float64)


def images(step, rows):
    return noise(step, rows, 1, 8, 8), (10 * noise(step, rows).abs()).long().clamp(max=9)


def vectors(step, rows):
    x = noise(step, rows, 8)
    return x, x[:, :5].cumsum(1)


def label_loss(scores, labels):
    return functional.cross_entropy(scores, labels, reduction="sum")


def square_loss(y, target):
    return (y - target).square().sum()


def seeded(*layers):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(*layers)
    for weight in net.parameters():
        weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    return net


def conv():
    first = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU()]
    return seeded(*first, nn.Flatten(), nn.Linear(128, 32), nn.Tanh(), nn.Linear(32, 10))


def mlp(*widths):
    pairs = [[nn.Linear(a, b), nn.Tanh()] for a, b in zip(widths, widths[1:])]
    return seeded(*[layer for pair in pairs for layer in pair][:-1])


PLAIN = dict(model=conv(), loss=label_loss, data=images, batch=16)
NAMED = Model(
    mlp(8, 16, 9, 16, 5),
    square_loss,
    vectors,
    dims={"2.weight": "F D", "2.bias": "F", "4.weight": "D F", "4.bias": "D"},
)


class Beside(nn.Module):
    """Takes a tensor and hands on two; then one; with a tensor of whole numbers on the way."""

    def __init__(self, first: bool):
        super().__init__()
        self.linear, self.first = nn.Linear(8, 8), first

    def forward(self, x):
        if self.first:
            return self.linear(x), x.argsort(1)
        x, order = x
        return self.linear(x.gather(1, order)) + x


class Joining(nn.Module):
    """A layer with a skip: it takes what the layer before it made, and what an earlier one did."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 8)

    def forward(self, x, skipped):
        return self.linear(torch.cat([x, skipped], 1))


def idle(net):
    """One weight that nobody uses, and one that is not trained."""
    net[2].spare = nn.Parameter(torch.ones(3))
    net[0].bias.requires_grad_(False)
    return net


def tied(net):
    net[4].weight = net[2].weight
    return net


TUPLES = Model(seeded(nn.Linear(8, 8), Beside(True), Beside(False), nn.Linear(8, 5)), square_loss, vectors)
SKIPS = Model(
    seeded(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), Joining(), nn.Linear(8, 5)),
    square_loss,
    vectors,
    skips={4: 1},
)
TIED = Model(tied(mlp(8, 8, 8, 8, 5)), square_loss, vectors)
IDLE = Model(idle(mlp(8, 8, 8, 5)), square_loss, vectors)
DRAWN = Model(
    seeded(nn.Conv2d(1, 4, 3, padding=1), Dropout(0.2), BatchNorm(4), nn.Flatten(), nn.Linear(256, 8), Dropout(0.3),
           nn.Linear(8, 10)), label_loss, images,
)  # fmt: skip

CASES = {
    "a plain net in stages": (PP2, PLAIN),
    "stages without weights": (hl.Mesh(pp=8), PLAIN | ADAM),
    "and shared out": (hl.Mesh(dp=2, pp=4), PLAIN | ADAM | dict(zero=2, cut=[1, 1, 3, 3])),
    "its copies, optimizer states shared": (hl.Mesh(dp=2, pp=2), PLAIN | dict(zero=1)),
    "and gradients, AdamW, accumulated, clipped": (
        hl.Mesh(dp=2, pp=2),
        PLAIN | ADAM | dict(zero=2, accumulate=2, clip=0.1),
    ),
    "and weights": (DP2, PLAIN | dict(zero=3)),
    "backward in halves": (PP4, PLAIN | dict(schedule="zb_h1")),
    "batch norm and copies": (hl.Mesh(dp=2, pp=2), dict(model="conv", batch=32, zero=1)),
    "batch norm, recomputed": (
        PP2,
        dict(model="conv", batch=16, schedule=hl.schedule("gpipe", 2, 4, recompute="always")),
    ),
    "batch norm, in both directions": (PP2, dict(model="conv", batch=16, schedule="chimera")),
    "batch norm without a flush": (PP4, dict(model="conv", batch=16, schedule="pipedream")),
    "a U-Net": (PP4, dict(model="unet", batch=16)),
    "a U-Net in chunks": (PP4, dict(model="unet", batch=16, schedule="interleaved", chunks=2)),
    "layers cut by their time": (PP2, dict(model="resnet", batch=16, cut="time")),
    "tuples between layers": (PP4, dict(model=TUPLES, batch=8)),
    "tuples, backward in halves": (PP4, dict(model=TUPLES, batch=8, schedule="zb_h1")),
    "skips that are declared": (hl.Mesh(pp=3), dict(model=SKIPS, batch=8)),
    "tied, frozen, unused": (hl.Mesh(dp=2, pp=2), dict(model=TIED, batch=8, zero=1)),
    "frozen and unused weights": (hl.Mesh(dp=2, pp=2), dict(model=IDLE, batch=8, zero=1, sums="each", **ADAM)),
    "our dropout, by place": (hl.Mesh(dp=2, pp=2), dict(model=DRAWN, batch=16)),
    "dims of which tensor parallelism knows": (TP2, dict(model=NAMED, batch=16)),
    "with copies and stages": (hl.Mesh(dp=2, pp=2, tp=2), dict(model=NAMED, batch=16, zero=1)),
    "cut in the middle of a pair": (hl.Mesh(pp=3, tp=2), dict(model=NAMED, batch=16, schedule="zb_h1", cut=[3, 2, 2])),
    "the modern block": (hl.Mesh(pp=2, tp=2), dict(model="modern", batch=8, scatter=True)),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", one_in(4, sorted(CASES, key=lambda case: str(CASES[case][0]))))
def test_anyones_model_is_one_device_and_every_byte_is_claimed(bench, case):
    mesh, asked = CASES[case]
    report = bench.asked(mesh, **asked)
    assert report.ok and report.largest_gap < 1e-11, report


# ---- that these checks can fail


def untallied(patch):
    """Each replica settles what it has seen itself."""
    from hybridlab.runtime import tallies

    patch.setattr(tallies, "settle", lambda comm, layout, layers: [layer.settle() for layer in layers.values()])


def counted_twice(patch):
    """A forward that is done again for the backward is counted again."""
    forward = BatchNorm.forward

    def counting(layer, x):
        if not torch.is_grad_enabled() and layer.draws.on:
            layer._count(x.double())
        return forward(layer, x)

    patch.setattr(BatchNorm, "forward", counting)


def skip_from_another_layer(patch):
    """What arrives over the chain is taken for what the skip brings, and the other way round."""
    right = Stage._entered
    patch.setattr(Stage, "_entered", lambda stage, arrived: right(stage, arrived[::-1]))


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mutant, case",
    first(
        1,
        [
            (untallied, "batch norm and copies"),
            (counted_twice, "batch norm, recomputed"),
            (skip_from_another_layer, "skips that are declared"),
        ],
    ),
)
def test_mutants_of_what_layers_keep_and_skip_are_noticed(bench, mutant, case):
    mesh, asked = CASES[case]
    report = bench.asked(mesh, **asked, sabotage=mutant)
    assert not report.ok


@pytest.mark.ranks
def test_portals_are_counted(bench):
    """The U-Net's long skip passes by the stages between: it is sent once, not once by every stage."""
    job = job_of(PP4, model="unet", batch=16, dtype="float64")
    chain = {(0, 1), (1, 2), (2, 3)}
    assert job.links.skips and not set(job.links.skips) & chain
    sent = {one.ranks for one in job.modes[0].transfers(job)}
    assert {edge for edge in job.links.skips} <= sent
    report = bench.asked(PP4, model="unet", batch=16)
    assert report.bytes["messages between stages"][0] == 3 * sum(one.bytes for one in job.modes[0].transfers(job))


# ---- training, evaluation, checkpoints


def evaluated(comm, job):
    trainer = loop.Trainer(comm, job)
    for step in range(2):
        trainer.step(step)
    return trainer.evaluate(0), {name: x.clone() for name, x in trainer.buffers.items()}


@pytest.mark.ranks
def test_evaluation_uses_running_averages_and_unseen_data(bench):
    ask = dict(model="conv", batch=32, dtype="float64", optimizer="adamw", rate=0.01)
    alone = bench.pool(hl.Mesh(pp=1)).run(evaluated, job_of(hl.Mesh(pp=1), microbatches=8, **ask))
    mesh = hl.Mesh(dp=2, pp=2)
    several = bench.pool(mesh).run(evaluated, job_of(mesh, microbatches=4, zero=1, **ask))
    for loss, buffers in several:
        # the first four of alone's eight microbatches are those of the first replica: both take all of dp's
        assert torch.allclose(torch.tensor(loss), torch.tensor(alone[0][0]), rtol=1e-12)
        assert all(torch.allclose(x, alone[0][1][name], rtol=1e-12) for name, x in buffers.items())


def at_rest(comm, jobs):
    found = []
    for job in jobs:
        trainer = loop.Trainer(comm, job)
        trainer.step(0)
        found.append(loop.memory(trainer))
    return found


@pytest.mark.long
@pytest.mark.ranks
def test_memory_at_rest_is_what_the_formula_says(bench):
    mesh = hl.Mesh(dp=2, pp=2)
    jobs = [job_of(mesh, model="resnet", batch=16, zero=stage, dtype="float64", **ADAM) for stage in (0, 1, 2, 3)]
    homes = bench.pool(mesh).run(at_rest, jobs)
    for number, job in enumerate(jobs):
        assert [home[number] for home in homes] == [model_states(job.layout, rank, job.widths) for rank in range(4)]


@pytest.mark.long
@pytest.mark.ranks
def test_hl_train_takes_the_same_words_and_goes_on_from_its_checkpoint_under_another_layout(kept, tmp_path, capsys):
    ask = dict(model="conv", batch=32, optimizer="adamw", rate=0.01, dtype="float64")
    whole = hl.train(hl.Mesh(dp=2), steps=5, **ask)["losses"]
    first = hl.train(hl.Mesh(dp=2, pp=2), steps=3, zero=1, checkpoint=tmp_path, **ask)
    assert "loss" in capsys.readouterr().err
    more = hl.train(hl.Mesh(pp=4), microbatches=8, steps=5, checkpoint=tmp_path, resume=True, progress=False, **ask)
    assert torch.allclose(torch.tensor(first["losses"] + more["losses"]), torch.tensor(whole), rtol=1e-10)
    assert whole[-1] < whole[0] and capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="is a checkpoint of a different model|saved with model"):
        hl.train(hl.Mesh(pp=2), steps=6, checkpoint=tmp_path, resume=True, model="resnet", batch=32, dtype="float64")


def shaken_by(number, column=0):
    """A model, a column of whose first weight is shaken by a number that it does not get from the seed."""

    def random(seed):
        net = nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 5))
        net[0].weight.data[:, column] += number() % 1_000_003
        return net

    return random


def narrow(step, rows):
    """The last column is 0, so that weights of it change no loss."""
    x, y = vectors(step, rows)
    return x * (torch.arange(8) < 7), y


@pytest.mark.ranks
def test_a_model_that_depends_on_the_rank_is_refused(monkeypatch):
    more = dict(loss=square_loss, data=narrow, batch=8)
    with pytest.raises(ValueError, match="on a rank, this model begins with another 0.weight"):
        hl.check(PP2, model=shaken_by(os.getpid), **more)
    monkeypatch.setattr(check, "refuse_elsewhere", lambda *about: None)  # as if the first rank agreed by chance
    with pytest.raises(
        RankError, match="begins with another weight 0.weight than rank .: the model depends on the rank"
    ):
        hl.check(PP2, model=shaken_by(os.getpid, column=7), **more)


def test_a_model_that_depends_on_the_time_is_refused_before_a_rank_starts():
    with pytest.raises(ValueError, match="the seed returns a different 0.weight when it is called again"):
        hl.dry_run(PP2, model=shaken_by(time.time_ns), loss=square_loss, data=vectors, batch=8)


@pytest.mark.ranks
def test_data_that_depend_on_the_rank_are_refused(monkeypatch):
    def of_the_process(step, rows, first):
        import os

        x, y = vectors(step, rows)
        x[first:] += os.getpid() % 1009 / 1009
        return x, y

    more = dict(model=mlp(8, 8, 5), loss=square_loss, batch=8)
    with pytest.raises(ValueError, match="on a rank, this model gets other inputs"):
        hl.check(PP2, data=partial(of_the_process, first=0), **more)
    with pytest.raises(RankError, match="has other inputs than rank .: the data depends on the rank or on a random"):
        hl.check(PP2, data=partial(of_the_process, first=2), **more)


def test_the_page_names_every_model():
    assert [name for name in GALLERY if f"| `{name}` |" not in PAGE] == []


# ---- refusals


def refused(mesh=PP2, **more):
    own = {} if isinstance(more["model"], str | Model | hl.Shape) else {"loss": square_loss, "data": vectors}
    with pytest.raises(ValueError) as found:
        job_of(mesh, **{"batch": 8} | own | more)
    return str(found.value)


def differing(rows, whether):
    """Inputs that differ from call to call, as those of a clock do."""
    return torch.full((rows, 8), float(time.perf_counter_ns() % 1_000_003 if whether else 1))


def layers(*between):
    return nn.Sequential(nn.Linear(8, 8), *between, nn.Linear(8, 5))


class Centred(nn.Module):
    """Half of the mean over a dim is taken away."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x - x.mean(self.dim, keepdim=True) / 2


class Turned(nn.Module):
    def forward(self, x):
        return x.T


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(1, requires_grad=True)

    def forward(self, x):
        return x * self.scale


REFUSED = {
    "nn.Sequential(…) but no loss": (dict(model=layers(), loss=None), "give loss=f, a summed loss(output, target)"),
    "no data": (dict(model=layers(), data=None), "give data=g, batches g(step, rows)"),
    "a list": (dict(model=[1, 2]), "not [1, 2], a list: give an nn.Module (of a list of layers, nn.Sequential"),
    "a class that takes other arguments": (dict(model=nn.Linear), "model=Linear is not a module"),
    "no layers": (dict(model=nn.Linear(8, 5)), "Linear does not list its layers"),
    "torch's dropout": (dict(model=layers(nn.Dropout(0.1))), "1 is torch's Dropout, which draws different numbers on"),
    "torch's batch norm": (dict(model=layers(nn.BatchNorm1d(8))), "changes the buffer 1.running_mean of BatchNorm1d"),
    "in place": (dict(model=layers(nn.ReLU(inplace=True))), "layer 1 (ReLU) changes its input"),
    "a mean": (dict(model=layers(), loss=nn.MSELoss()), 'make it a sum over rows, reduction="sum"'),
    "a loss of every row": (dict(model=layers(), loss=lambda y, t: (y - t).sum(1)), "the loss has shape (2,)"),
    "other batches": (dict(model=layers(), data=lambda s, r: (differing(r, True),) * 2), "two different batches"),
    "too few rows": (dict(model=layers(), data=lambda s, r: (torch.ones(1, 8),) * 2), "make its first dim 8 rows"),
    "a number": (dict(model=layers(), data=lambda s, r: (1, 2)), "gave a int: give tensors"),
    "too many stages": (dict(model=layers(), mesh=PP4), "4 stages need at least 4 layers, but this model has 2"),
    "no dims for tp": (dict(model=layers(), mesh=TP2), "tp=2 shards dimensions called F, W, N, K, V, but this model"),
    "skips backwards": (
        dict(model=Model(layers(nn.Tanh()), square_loss, vectors, skips={0: 1}), loss=None, data=None),
        "does not lead from an earlier layer to a later one",
    ),
    "an open cut": (
        dict(model=Model(layers(), square_loss, vectors, dims={"0.weight": "F D", "0.bias": "F"}), mesh=TP2),
        "0 leaves F sharded, and no later layer reduces it",
    ),
    "a cut input": (
        dict(model=Model(layers(), square_loss, vectors, dims={"1.weight": "D F"}), mesh=TP2),
        "1 is sharded along its inputs F, but the previous layer's outputs are not sharded",
    ),
    "two names for one length": (
        dict(model=Model(layers(), square_loss, vectors, dims={"0.weight": "F D", "1.weight": "D D"}), mesh=TP2),
        "D is 8 in 0.weight, but 5 in 1.weight: give the two dimensions different names",
    ),
    "a convolution to be cut": (
        dict(model=Model(conv(), label_loss, images, dims={"0.weight": "F . . ."}), loss=None, data=None, mesh=TP2),
        "neither Linear nor Embedding",
    ),
    "a bias that is forgotten": (
        dict(model=Model(layers(), square_loss, vectors, dims={"0.weight": "F D", "1.weight": "O F"}), mesh=TP2),
        "0.bias belongs to the outputs of 0.weight, F: name its dimension 'F' too",
    ),
    "dims of nothing": (dict(model=layers(), dims={"9.bias": "F"}), "dims names 9.bias, but the model has no such"),
    "dims that are no text": (dict(model=layers(), dims={"0.bias": ("F",)}), "are a tuple: give a string"),
    "dims of a Model": (dict(model=NAMED, dims={}), "dims applies only to your own module, and this model has its own"),
    "inputs alone": (dict(model=layers(), data=lambda s, r: torch.ones(r, 8)), "a Tensor: return (inputs, targets)"),
    "a layer that does not fit": (
        dict(model=layers(nn.Linear(7, 8))),
        "layer 1 (Linear) fails on its input, (2, 8) float32: RuntimeError: mat1 and mat2",
    ),
    "a skip that its layer does not take": (
        dict(model=layers(nn.Tanh(), nn.Tanh()), skips={2: 0}),
        "layer 2 (Tanh) fails on its input, (2, 8) float32, (2, 8) float32 (from layers 1, 0)",
    ),
    "a loss of something else": (
        dict(model=layers(), loss=lambda y, t: functional.nll_loss(y, t, reduction="sum")),
        "loss(output, target) fails on (2, 5) float32 and (2, 5) float32",
    ),
    "data that differ from call to call from the second step": (
        dict(model=layers(), data=lambda s, r: (differing(r, s), torch.ones(r, 5))),
        "data(1, rows) gave two different batches",
    ),
    "data that differ from call to call later": (
        dict(model=layers(), data=lambda s, r: (differing(r, s == 2), torch.ones(r, 5))),
        "data(2, rows) gave two different batches",
    ),
    "an unknown name": (dict(model="alexnet"), "there is no model 'alexnet': choose one of gpt, modern, parallel"),
    "rows that are mixed": (dict(model=layers(Centred())), "layer 1 (Centred) mixes rows"),
    "rows that are mixed, one by one": (dict(model=layers(Centred()), batch=4), "layer 1 (Centred) mixes rows"),
    "a mean over one row": (dict(model=layers(), loss=functional.mse_loss, batch=4), "make it a sum over rows"),
    "a loss of rows mixed where no layer shows rows": (
        dict(model=layers(Turned(), Centred(1), Turned())),
        "layer 3 (Turned) mixes rows",
    ),
    "a tensor that nobody trains": (dict(model=layers(Scaled())), "1.scale is a plain tensor that requires a gradient"),
    "nothing to train": (dict(model=layers().requires_grad_(False)), "every weight is frozen"),
    "a loss without a gradient": (
        dict(model=layers(), loss=lambda y, t: square_loss(y.detach(), t)),
        "no gradient reaches a weight from the loss",
    ),
    "a loss that is no tensor": (dict(model=layers(), loss=lambda y, t: 1.0), "the loss returned a float"),
    "two models": (dict(model="gpt", shape=hl.Shape()), "model and shape each describe a model: leave one out"),
    "a loss for a model that has one": (dict(model="gpt", loss=square_loss), "leave out loss"),
    "a loss for a shape": (dict(model=hl.Shape(), loss=square_loss), "leave out loss"),
    "data for a net that has its own": (dict(model="conv", data=vectors), "leave out data"),
    "no file": (dict(model="none.py:net"), "there is no file none.py"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_says_why_in_a_sentence(case):
    asked, says = REFUSED[case]
    said = refused(**asked)
    assert says in said and "\n" not in said, said


# ---- files


PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "own-model.md").read_text()
BLOCK, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.S)  # other files of tests run the others
OWN = BLOCK + "\nnumber = 3\n"


@pytest.mark.ranks
def test_a_file_outside_the_package_is_checked_and_trained_from_the_command_line(tmp_path, capsys, monkeypatch):
    from hybridlab.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (typed,) = re.findall(r"python -m hybridlab (check --model own.*)", PAGE)
    assert main(typed.split()) == 0
    assert "equal to one device" in capsys.readouterr().out
    assert main("train --model own.py:mine --pp 2 --steps 3 --batch 16".split()) == 0
    assert "step    2  loss" in capsys.readouterr().out


def test_a_file_that_says_something_else_is_told(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1/0")
    (tmp_path / "ends.py").write_text("import sys; sys.exit(0)")
    for name, says in (
        ("own.py:yours", "has no yours"),
        ("own.py:number", "number in .* is a int: make it hybridlab.Model"),
        ("own.py:net", "net in .* is a function: make it hybridlab.Model"),
        ("own.py", "there is no model .*, or give FILE.py:name"),
        ("broken.py:net", "cannot be run: ZeroDivisionError"),
        ("ends.py:net", r"ends the program when it is read, sys.exit\(0\): put all code except the model under if"),
    ):
        with pytest.raises(ValueError, match=says):
            named(str(tmp_path / name))


@pytest.mark.long
def test_every_model_of_the_gallery_passes_its_own_examination():
    for name in GALLERY:
        job = job_of(PP2, model=name, batch=8)
        assert len(job.between) == len(job.layers), name
