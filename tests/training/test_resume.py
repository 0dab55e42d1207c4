"""Training that stops and goes on: under the same layout to the last bit, under any other with the same losses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from few import first, one_in

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.training import resume
from hybridlab.training.checkpoints import index
from hybridlab.training.checkpoints.folder import alone_in, newest
from hybridlab.training.make_job import job_of
from hybridlab.training.resume import Saving
from hybridlab.training.run import train
from hybridlab.training.stopping import stopping_gently

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
    more = {"microbatches": 16 // 2 // mesh["dp"], "checkpoint": folder, "resume": resume, "progress": False} | more
    return train(mesh, steps=steps, **LEARN | more)["losses"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, bench):
    """(the folder of a run of 2×2×2 that stopped after three steps, the losses of one that went on to six)."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with bench.lent():
        learn(CUBE, 3, folder, zero=1)
        return folder, learn(CUBE, 6, zero=1)


def copied(folder, tmp_path):
    os.symlink(newest(folder), tmp_path / newest(folder).name)
    return tmp_path


def test_the_same_layout_goes_on_bit_for_bit(stopped, kept, tmp_path):
    folder, losses = stopped
    assert learn(CUBE, 6, copied(folder, tmp_path), resume=True, zero=1) == losses[3:]


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_another_layout_goes_on_with_the_same_losses(stopped, kept, tmp_path, name):
    folder, losses = stopped
    mesh, more = OTHERS[name]
    went_on = learn(mesh, 6, copied(folder, tmp_path), resume=True, **more)
    assert went_on == pytest.approx(losses[3:], rel=1e-10) and len(went_on) == 3


@pytest.mark.parametrize("mesh, more", first(1, [(hl.Mesh(dp=2, pp=2), {"zero": 3}), (hl.Mesh(tp=2), {})]), ids=str)
def test_weights_of_any_layout_are_those_of_one_process(mesh, more, kept, tmp_path):
    """And a module takes them, with its own names."""
    found = {}
    for name, where, how in (("alone", hl.Mesh(pp=1), {}), ("shared", mesh, more)):
        learn(where, 3, tmp_path / name, optimizer="sgd", **how)  # Adam makes steps of rounding noise
        found[name] = hl.weights(tmp_path / name)
    assert found["alone"].keys() == found["shared"].keys()
    assert all(torch.allclose(found["shared"][name], one, rtol=0, atol=1e-12) for name, one in found["alone"].items())
    one_more = hl.weights(newest(tmp_path / "shared"))
    assert all(torch.equal(one_more[name], one) for name, one in found["shared"].items())
    with pytest.raises(ValueError, match="has no weights: there is no checkpoint.json"):
        hl.weights(tmp_path)


def test_checkpoints_are_made_after_every_so_many_steps_and_at_the_end(kept, tmp_path):
    learn(hl.Mesh(pp=1), 5, tmp_path, every=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000004", "step-000005"]


def test_without_the_optimizers_state_the_losses_differ(stopped, kept, tmp_path):
    """What shows that the tests above could fail."""
    folder, losses = stopped
    went_on = learn(hl.Mesh(pp=1), 6, copied(folder, tmp_path), resume=True, rate=1.1e-2)
    assert went_on[0] == pytest.approx(losses[3], rel=1e-10) and went_on[2] != pytest.approx(losses[5], rel=1e-6)


@pytest.mark.parametrize(
    "more, says",
    one_in(
        4,
        [
            ({"seed": 1}, "seed=0, but this run has seed=1"),
            ({"optimizer": "sgd"}, "optimizer=adamw"),
            ({"dtype": "bfloat16"}, "dtype=float64, but this run has dtype=bfloat16"),
            ({"dtype": "float32"}, "dtype=float64, but this run has dtype=float32"),
            ({"batch": 32}, "batch=16, but this run has batch=32"),
            ({"data": __file__}, "data=[0-9a-f]{16}, but this run has data=[0-9a-f]{16}: make them equal"),
            ({"master_dtype": "float32"}, "master_dtype=float64, but this run has master_dtype=float32"),
            (
                {"shape": replace(SHAPE, dropout=0.2)},
                r"saved with dropout=0.1, but this run has dropout=0.2: make them equal$",
            ),
            ({"shape": hl.Shape(layers=5, width=16, heads=4, context=8)}, "it has no parameter blocks.4"),
        ],
    ),
)
def test_another_run_is_refused(stopped, kept, tmp_path, more, says):
    with pytest.raises(ValueError, match=says):  # before a rank is started
        learn(hl.Mesh(pp=1), 6, copied(stopped[0], tmp_path), resume=True, **more)


def test_numbers_of_numpy_are_noted_as_pythons(kept, tmp_path):
    """A checkpoint is JSON, and what it cannot say ended a training run after its last step."""
    about = {"rate": np.float32(0.01), "decay": Fraction(1, 8), "clip": np.float64(0.5)}
    learn(hl.Mesh(pp=1), 1, tmp_path, shape=hl.Shape(dropout=np.float32(0.125)), **about)
    notes = index.read(newest(tmp_path))["notes"]
    assert (notes["decay"], notes["clip"], notes["shape"]["dropout"]) == (0.125, 0.5, 0.125)


def test_a_run_that_was_finished_has_nothing_left_to_do(stopped, kept, tmp_path):
    folder = copied(stopped[0], tmp_path)
    result = train(hl.Mesh(pp=1), steps=3, microbatches=8, checkpoint=folder, resume=True, progress=False, **LEARN)
    assert result["losses"] == [] and result["timeline"] is None and result["end"] == 3 and min(result["memory"]) > 0
    told = Saving(folder, resume=True).told(job_of(hl.Mesh(pp=1), steps=2, microbatches=8, **LEARN))
    assert told == f"{folder}/step-000003 has 3 steps, and 2 are asked for: nothing is left to do"


def test_the_batch_of_the_run_before_is_taken_where_none_is_said(stopped, kept, tmp_path):
    about = {name: value for name, value in LEARN.items() if name != "batch"}
    more = dict(steps=6, microbatches=4, checkpoint=copied(stopped[0], tmp_path), resume=True, progress=False, zero=1)
    assert train(CUBE, **about, **more)["losses"] == stopped[1][3:]
    with pytest.raises(ValueError, match="batch 16 is not divisible by dp × microbatches = 1 × 3"):
        train(hl.Mesh(pp=2), **about, **more | {"microbatches": 3, "zero": 0})


def test_a_mistyped_folder_is_told_and_an_empty_one_begins(kept, tmp_path):
    with pytest.raises(ValueError, match="there is no folder .*/runn to resume from: correct its name, or start"):
        learn(hl.Mesh(pp=1), 1, tmp_path / "runn", resume=True)
    assert not (tmp_path / "runn").exists()
    events = []
    more = {"resume": True, "on_event": lambda rank, event: events.append(event)}
    assert len(learn(hl.Mesh(pp=1), 1, tmp_path, **more)) == 1
    assert events[0] == {"resumed": f"there is no checkpoint in {tmp_path} yet: the run begins with step 0"}


def test_a_folder_with_a_checkpoint_is_refused_before_the_work_unless_it_goes_on(stopped, kept, tmp_path):
    folder, begun = copied(stopped[0], tmp_path), []
    for steps in (2, 3, 9):
        with pytest.raises(
            ValueError, match="step-000003 already exists: continue from it with resume, or save into another folder"
        ):
            learn(hl.Mesh(pp=1), steps, folder, on_event=lambda *event: begun.append(event))
    assert not begun


def test_a_run_says_from_where_it_goes_on_and_what_it_does_otherwise(stopped, kept, tmp_path, capsys):
    events = []
    more = dict(resume=True, decay=0.1, clip=None, on_event=lambda rank, event: events.append(event))
    learn(hl.Mesh(pp=1), 4, copied(stopped[0], tmp_path), **more)
    (told, step) = events
    assert told["resumed"].startswith(f"continues from {tmp_path}/step-000003; decay is now 0.1, was 0.0; clip is now")
    assert step["step"] == 3
    learn(hl.Mesh(pp=1), 5, tmp_path, resume=True, clip=None, decay=0.1, progress=True)
    assert capsys.readouterr().out == f"continues from {tmp_path}/step-000004\n", "nothing is otherwise"
    learn(hl.Mesh(pp=1), 6, tmp_path, resume=True, clip=None, decay=0.1, progress=True, schedule="gpipe")
    says = f"continues from {tmp_path}/step-000005; schedule is now gpipe, was 1f1b\n"
    assert capsys.readouterr().out == says


def test_what_a_callback_raises_comes_when_all_is_saved(kept, tmp_path):
    told = []

    def fail(rank, event):
        told.append(event)
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError) as found:
        learn(hl.Mesh(pp=1), 1_000, tmp_path, on_event=fail)
    (path,) = tmp_path.iterdir()
    assert found.value.__notes__ == [f"the last checkpoint is {path}"] and path.name.startswith("step-00")
    assert len(told) == 1


def test_a_second_run_into_the_same_folder_is_refused_before_it_trains(kept, tmp_path):
    """It would delete the files that the first is writing, and fail at its own first save."""
    with alone_in(tmp_path), pytest.raises(ValueError, match="another run is saving into"):
        learn(hl.Mesh(pp=1), 2, tmp_path)
    assert len(learn(hl.Mesh(pp=1), 2, tmp_path)) == 2


def test_a_folder_with_the_name_of_the_request_to_stop_is_told(tmp_path):
    (tmp_path / "stop").mkdir()
    with pytest.raises(ValueError, match="stop is a folder, but a file of this name asks a run to stop: rename it"):
        with stopping_gently(tmp_path, None):
            pass


@pytest.mark.parametrize(
    "end, says, code",
    [(4, "saved after step 4 in", 0), (3, "stopped early (4 steps were asked for); saved after step 3", 130)],
)
def test_the_command_tells_a_training_that_was_stopped_from_a_whole_one(monkeypatch, capsys, end, says, code):
    monkeypatch.setattr("hybridlab.training.run.train", lambda **_: {"losses": [1.0], "memory": [8], "end": end})
    assert main("train --pp 1 --steps 4 --checkpoint run".split()) == code
    assert capsys.readouterr().out.splitlines()[-1].startswith(says)


@pytest.fixture
def interruptible():
    """Ctrl-C raises, even where a shell has started the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_interrupt_ends_at_once_and_tells_the_last_checkpoint(interruptible, tmp_path):
    (tmp_path / "step-000007").mkdir()
    with pytest.raises(KeyboardInterrupt, match=f"interrupted at once; the last checkpoint is {tmp_path}/step-000007"):
        with stopping_gently(tmp_path, None):
            signal.raise_signal(signal.SIGINT)
            assert (tmp_path / "stop").exists()
            signal.raise_signal(signal.SIGINT)
    assert not (tmp_path / "stop").exists()


def test_another_name_of_a_checkpoint_and_a_record_that_may_not_be_read_are_told(stopped, kept, tmp_path):
    path = shutil.copytree(newest(stopped[0]), tmp_path / "step-000009")
    with pytest.raises(ValueError, match="step-000009 contains step 3: rename it to step-000003"):
        learn(hl.Mesh(pp=1), 6, tmp_path, resume=True)
    path = path.rename(tmp_path / "step-000003")
    (path / "checkpoint.json").unlink()
    (path / "checkpoint.json").symlink_to("/proc/self/mem")  # of which no byte can be read
    with pytest.raises(ValueError, match="cannot read the record .*checkpoint.json: Input/output error"):
        learn(hl.Mesh(pp=1), 6, tmp_path, resume=True)


@pytest.mark.parametrize("schedule", first(1, ["pipedream", "pipedream_2bw"]))
@pytest.mark.parametrize("stash", first(1, [True, False]))
def test_a_schedule_without_a_flush_is_saved_and_goes_on_bit_for_bit(kept, tmp_path, schedule, stash):
    """With the state of every stage's own optimizer."""
    about = dict(schedule=schedule, microbatches=4, batch=8, stash=stash, clip=None)
    whole = learn(hl.Mesh(pp=2), 6, tmp_path / "whole", every=2, **about)
    half = learn(hl.Mesh(pp=2), 2, tmp_path, **about)
    assert half + learn(hl.Mesh(pp=2), 6, tmp_path, resume=True, **about) == whole
    there, here = hl.weights(tmp_path / "whole"), hl.weights(tmp_path)
    assert all(torch.equal(one, here[name]) for name, one in there.items())
    memory = train(hl.Mesh(pp=2), steps=1, progress=False, **LEARN | about)["memory"]
    weights = sum(one.numel() for one in here.values())
    copies = 1 + stash + 2  # the latest, beside the first numbers if versions are kept, and Adam's two
    assert sum(memory) == copies * 8 * weights


@pytest.mark.parametrize("mesh", first(1, [hl.Mesh(dp=2, pp=2), CUBE]), ids=str)
def test_an_asynchronous_save_is_the_same_checkpoint(mesh, kept, tmp_path):
    for name, how in (("plain", {}), ("aside", {"async_save": True})):
        learn(mesh, 4, tmp_path / name, every=1, zero=1, **how)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["step-000003", "step-000004"]
    for one in ("step-000003", "step-000004"):
        plain, aside = (
            {f.name: f.read_bytes() for f in (tmp_path / name / one).iterdir()} for name in ("plain", "aside")
        )
        assert plain == aside


def test_a_save_begins_when_the_one_before_is_complete(monkeypatch, tmp_path):
    """Its files may still be written when the next one is due."""
    told = []

    class Slow:
        written = False

        def __init__(self, *about, aside):
            told.append("begun")

        def finish(self):
            told.append("complete")

    monkeypatch.setattr(resume.checkpoint, "Writing", Slow)
    monkeypatch.setattr(resume, "pieces", lambda trainer: {})
    monkeypatch.setattr(resume, "_notes", lambda job, step: {})
    saver = resume.Saver.__new__(resume.Saver)
    saver.trainer = SimpleNamespace(job=SimpleNamespace(steps=3))
    saver.saving, saver.under_way, saver.layout = SimpleNamespace(folder=tmp_path, every=1, async_save=True), None, None
    saver.door = SimpleNamespace(device="cpu", broadcast=lambda x: x, all_reduce=lambda x, op: x)
    for step in (1, 2, 3):
        saver.after(step)
    assert told == ["begun", "complete", "begun", "complete", "begun"]
    monkeypatch.setattr(Slow, "written", True)
    saver.saving.every = 9
    assert not saver.after(2) and told[-1] == "complete", "as soon as all files are written"


def test_a_step_that_waits_for_its_norm_ends_before_it_is_saved(kept, tmp_path):
    about = dict(schedule="zb_h2", validated="after", microbatches=4, clip=0.5, shape=replace(SHAPE, dropout=0.0))
    whole = learn(hl.Mesh(pp=2), 4, tmp_path / "whole", **about)
    half = learn(hl.Mesh(pp=2), 2, tmp_path / "half", every=1, **about)
    assert half + learn(hl.Mesh(pp=2), 4, tmp_path / "half", resume=True, **about) == whole


COMMAND = "train --dp 2 --pp 2 --zero 1 --schedule 1f1b --width 16 --context 8 --batch 16 --json"


def command(folder, steps, **options):
    words = f"{COMMAND} --steps {steps} --checkpoint {folder} --resume".split()
    return subprocess.Popen([sys.executable, "-m", "hybridlab", *words], stdout=subprocess.PIPE, **options)


@pytest.mark.long
def test_the_command_interrupted_ends_after_the_step_under_way_saves_it_and_resumes(tmp_path):
    """Each run prints a line for every step, and one at its end."""
    running = command(tmp_path, 1_000_000, start_new_session=True)
    lines = [running.stdout.readline() for _ in range(3)]
    os.kill(running.pid, signal.SIGINT)
    began = time.monotonic()
    lines += running.communicate(timeout=60)[0].splitlines()
    assert running.returncode == 130 and time.monotonic() - began < 20
    end = told(lines, first=0)
    assert newest(tmp_path).name == f"step-{end:06d}" and end >= 3
    lines = command(tmp_path, end + 2).communicate(timeout=100)[0].splitlines()
    assert told(lines, first=end) == end + 2


@pytest.mark.long
@pytest.mark.parametrize("what", ["closed", "full", "hung up"])
def test_the_command_saves_when_nobody_can_be_told_more(tmp_path, what):
    words = f"train --pp 1 --layers 2 --width 8 --heads 2 --context 8 --steps 1000000 --checkpoint {tmp_path}".split()
    pipe = {"stdout": open("/dev/full", "wb") if what == "full" else subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen([sys.executable, "-m", "hybridlab", *words], start_new_session=True, **pipe)
    if what != "full":
        running.stdout.readline()
    if what == "closed":
        running.stdout.close()
    if what == "hung up":
        os.killpg(running.pid, signal.SIGHUP)
        os.killpg(running.pid, signal.SIGHUP)
    said = running.stderr.read().decode() if what == "closed" else running.communicate(timeout=60)[1].decode()
    code = running.wait(60)
    begins = {
        "closed": ("hybridlab: the output was closed before its end; the last", 141),
        "full": ("hybridlab: cannot write the output: No space left on device; the last", 1),
        "hung up": ("hybridlab train: the terminal was closed; the last", 130),
    }
    says, wanted = begins[what]
    assert (said, code) == (f"{says} checkpoint is {newest(tmp_path)}\n", wanted)


def told(lines, first) -> int:
    """The step at which a run of the command ended, every line being as it should."""
    *lines, last = map(json.loads, lines)
    assert lines.pop(0)["resumed"].startswith("continues from " if first else "there is no checkpoint in ")
    assert [line["step"] for line in lines] == list(range(first, last["end"]))
    assert all(line["tokens_per_second"] > 0 and 0 < line["loss"] < 6 for line in lines)
    assert len(last["memory"]) == 4 and min(last["memory"]) > 0
    return last["end"]
