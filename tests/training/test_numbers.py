"""Every number that a training run prints, known otherwise: tokens a second, bytes on each rank, the loss of a step."""

import math
import time

import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.cli.main import main as cli
from hybridlab.training.run import train

pytestmark = pytest.mark.ranks
SHAPE = hl.Shape(layers=2, width=16, heads=2, context=8)
ABOUT = dict(shape=SHAPE, microbatches=2, batch=8, progress=False)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_tokens_a_second_are_those_of_the_batch_over_the_time_of_a_step(kept, accumulate, monkeypatch):
    """Steps that take a tenth of a second, so that what is beside them does not count."""
    told = []

    def slow(step, rows):
        drawn = torch.Generator().manual_seed(step)
        return torch.randn(rows, 4, generator=drawn), torch.randn(rows, 2, generator=drawn)

    class Slow(torch.nn.Linear):
        def forward(self, x):
            time.sleep(0.05)
            return super().forward(x)

    loss = lambda made, wanted: ((made - wanted) ** 2).sum()
    model = hl.Model(torch.nn.Sequential(Slow(4, 2)), loss, slow, terms=5)
    more = dict(model=model, microbatches=2, batch=8 * accumulate, accumulate=accumulate, steps=5)
    train(hl.Mesh(pp=1), on_event=lambda rank, event: told.append((time.perf_counter(), event)), **more)
    passed = [later - before for (before, _), (later, _) in zip(told, told[1:])]
    for seconds, (_, event) in zip(passed, told[1:]):
        assert event["tokens_per_second"] == pytest.approx(8 * accumulate * 5 / seconds, rel=0.3)


HELD = {  # bytes for each weight, of float64, on all ranks together
    "plain": (hl.Mesh(pp=2), {}, 2 + 2),
    "sgd": (hl.Mesh(pp=2), {"optimizer": "sgd"}, 2),
    "copies": (hl.Mesh(dp=2), {}, 2 * (2 + 2)),
    "stage 1": (hl.Mesh(dp=2), {"zero": 1}, 2 * 2 + 2),
    "stage 2": (hl.Mesh(dp=2), {"zero": 2}, 2 + 1 + 2),
    "stage 3": (hl.Mesh(dp=2), {"zero": 3}, 1 + 1 + 2),
}


@pytest.mark.parametrize("name", one_in(3, HELD))
def test_the_bytes_on_each_rank_are_weights_gradients_and_adams_two_numbers(kept, name):
    mesh, how, copies = HELD[name]
    memory = train(mesh, steps=1, dtype="float64", **ABOUT | how)["memory"]
    assert sum(memory) == pytest.approx(copies * 8 * SHAPE.parameters, rel=0.01)  # shares are padded


def test_the_command_prints_these_bytes_and_the_loss_of_a_uniform_guess(kept, capsys):
    sizes = "--layers 2 --width 16 --heads 2 --context 8 --batch 8 --steps 1 --dtype float64"
    assert cli(f"train --pp 2 --microbatches 2 {sizes}".split()) == 0
    said = capsys.readouterr().out
    loss = float(said.split("loss ")[1].split()[0])
    assert loss == pytest.approx(math.log(256), abs=0.1)
    kept_on = [float(one) for one in said.split("on each rank: ")[1].removesuffix(" MB\n").split(", ")]
    assert sum(kept_on) == pytest.approx(4 * 8 * SHAPE.parameters / 1e6, abs=0.011)
