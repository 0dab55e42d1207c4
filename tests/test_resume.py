"""Training that stops and goes on: under the same layout to the last bit, under any other with the same losses."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import hybridlab as hl
from hybridlab.train.checkpoint import newest
from hybridlab.train.resume import Saving
from hybridlab.train.run import train

pytestmark = pytest.mark.ranks
SHAPE = hl.Shape(layers=4, width=16, heads=4, context=8, dropout=0.1)
LEARN = dict(batch=16, shape=SHAPE, optimizer="adamw", rate=1e-2, dtype="float64", clip=0.5)
CUBE = hl.Mesh(dp=2, pp=2, tp=2)
OTHERS = {
    "one process": (hl.Mesh(pp=1), {}),
    "tp=4": (hl.Mesh(tp=4), {"sequence": True}),
    "dp=4, zero=3": (hl.Mesh(dp=4), {"zero": 3}),
    "pp=4, interleaved": (hl.Mesh(pp=2), {"schedule": "interleaved", "chunks": 2}),
}


def learn(mesh, steps, folder=None, resume=False, **more):
    saving = folder and Saving(folder, resume=resume)
    return train(mesh, steps=steps, saving=saving, **LEARN | {"microbatches": 16 // 2 // mesh["dp"]} | more)["losses"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """(the folder of a run of 2×2×2 that stopped after three steps, the losses of one that went on to six)."""
    folder = tmp_path_factory.mktemp("checkpoints")
    learn(CUBE, 3, folder, zero=1)
    return folder, learn(CUBE, 6, zero=1)


def copied(folder, tmp_path):
    os.symlink(newest(folder), tmp_path / newest(folder).name)
    return tmp_path


def test_the_same_layout_goes_on_bit_for_bit(stopped, tmp_path):
    folder, losses = stopped
    assert learn(CUBE, 6, copied(folder, tmp_path), resume=True, zero=1) == losses[3:]


@pytest.mark.parametrize("name", OTHERS)
def test_another_layout_goes_on_with_the_same_losses(stopped, tmp_path, name):
    folder, losses = stopped
    mesh, more = OTHERS[name]
    went_on = learn(mesh, 6, copied(folder, tmp_path), resume=True, **more)
    assert went_on == pytest.approx(losses[3:], rel=1e-10) and len(went_on) == 3


def test_without_the_optimizers_state_the_losses_differ(stopped, tmp_path):
    """What shows that the tests above could fail."""
    folder, losses = stopped
    went_on = learn(hl.Mesh(pp=1), 6, copied(folder, tmp_path), resume=True, rate=1.1e-2)
    assert went_on[0] == pytest.approx(losses[3], rel=1e-10) and went_on[2] != pytest.approx(losses[5], rel=1e-6)


@pytest.mark.parametrize(
    "more, says",
    [
        ({"seed": 1}, "seed=0, this run has 1"),
        ({"optimizer": "sgd"}, "optimizer=adamw"),
        ({"shape": hl.Shape(layers=5, width=16, heads=4, context=8)}, "no parameter blocks.4"),
    ],
)
def test_another_run_is_refused(stopped, tmp_path, more, says):
    with pytest.raises((ValueError, hl.RankError), match=says):
        learn(hl.Mesh(pp=1), 6, copied(stopped[0], tmp_path), resume=True, **more)


COMMAND = "train --dp 2 --pp 2 --tp 2 --zero 1 --schedule 1f1b --width 16 --context 8 --batch 16 --json".split()


def command(*more, **options):
    return subprocess.Popen([sys.executable, "-m", "hybridlab", *COMMAND, *more], stdout=subprocess.PIPE, **options)


def test_the_command_prints_a_line_for_every_step_and_resumes(tmp_path):
    for steps, first in ((2, 0), (4, 2)):
        out = command("--steps", str(steps), "--checkpoint", str(tmp_path), "--resume").communicate(timeout=100)[0]
        *lines, last = map(json.loads, out.splitlines())
        assert [line["step"] for line in lines] == list(range(first, steps))
        assert all(line["tokens_per_second"] > 0 and 0 < line["loss"] < 6 for line in lines)
        assert last["end"] == steps and len(last["memory"]) == 8 and min(last["memory"]) > 0


def test_an_interrupt_ends_after_the_step_under_way_and_saves_it(tmp_path):
    running = command("--steps", "1000000", "--checkpoint", str(tmp_path), start_new_session=True)
    for _ in range(3):
        running.stdout.readline()
    os.kill(running.pid, signal.SIGINT)
    began = time.monotonic()
    out = running.communicate(timeout=60)[0]
    assert running.returncode == 0 and time.monotonic() - began < 20
    end = json.loads(out.splitlines()[-1])["end"]
    assert newest(tmp_path).name == f"step-{end:06d}" and end >= 3
