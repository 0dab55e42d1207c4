"""The first hour on a GPU: its steps, what they run and need, and the page that tells of them."""

import dataclasses
import json
import os
import re
import subprocess
import sys

import pytest

from hybridlab.cli import main as cli
from hybridlab.world.devices import gpus
from tools import first_hour, steps
from tools.course import HOUSE

pytestmark = pytest.mark.slow


def test_without_a_gpu_one_sentence_says_what_would_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpus, "here", gpus.Gpus)
    assert first_hour.main(["--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert (
        told.count("\n") == 1
        and "no GPU" in told
        and "doctor, modes, schedules, models, pairs, blocks, pipelining, sharding, ways, course" in told
    )
    assert not list(tmp_path.iterdir())


def test_ranks_that_cannot_share_the_gpu_are_no_record_of_it(monkeypatch, capsys, tmp_path):
    """Jobs of several ranks would run on the CPU, and their results would be called those of a GPU."""
    alone = gpus.Gpus((gpus.Gpu(0, "NVIDIA A100", 80, "GPU-1"),), "580.65", alone=True)
    monkeypatch.setattr(gpus, "here", lambda: alone)
    assert first_hour.main(["--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.startswith(f"There is a GPU here, but {alone.for_ranks(8)[1]}. ")
    assert not list(tmp_path.iterdir())


def test_one_gpu_runs_torchs_pipelining_by_nccl_only():
    named = lambda *how: {step.name: step for step in first_hour.on_a_gpu(*how)}
    assert "needs two GPUs, or --nccl" in named(1, False)["pipelining"].missing
    assert named(1, True)["pipelining"].command[-2:] == ("--backend", "nccl")
    assert not named(2, False)["pipelining"].missing and "--backend" not in named(2, True)["sharding"].command


@pytest.mark.parametrize("step", first_hour.on_a_gpu(2, False), ids=lambda step: step.name)
def test_every_command_is_there(step):
    script, *more = step.command
    assert more[0] == "hybridlab" if script == "-m" else (HOUSE / script).exists() or step.missing


PAGE = (HOUSE / "docs" / "gpu.md").read_text("utf-8")
ROWS = [row.split("|")[1:-1] for row in PAGE.splitlines() if row.startswith("| ")][1:]


@pytest.mark.parametrize("command", sorted({one for row in ROWS for one in re.findall("`([^`]*)`", row[3])}))
def test_what_the_page_tells_to_type_is_understood(command):
    words = command.partition("python ")[2].split()
    if words[:2] == ["-m", "hybridlab"]:
        cli._parser(words[2:]).parse_args(words[2:])
    elif "python " in command and first_hour.MATRIX not in command:
        assert (HOUSE / next(word for word in words if "/" in word)).exists()
    else:
        assert command.startswith(
            (f"python {first_hour.MATRIX}", "sbatch ", "HYBRIDLAB_DEVICES=", "CUDA_VISIBLE_DEVICES=")
        )


def test_the_page_and_the_command_name_the_same_steps():
    assert {name for row in ROWS for name in row[4].strip().split(", ")} - {""} == {
        step.name for step in first_hour.on_a_gpu(1, False)
    }


def test_headlines_are_read_from_what_the_commands_print():
    told = {step.name: step.headlines for step in first_hour.on_a_gpu(2, False)}
    row = {"ratio": 1.02, "interval": [0.99, 1.04], "tokens_per_second": 5e4, "ours_ms": 8.0, "peer": "torch"}
    assert told["pipelining"]([{"placement": "2 ranks", "1f1b": row}])[1].startswith("1f1b: torch / ours 1.020 (0.990")
    lines = told["sharding"]([{"placement": "2 ranks", "replicas": row, "cut layers": {"failed": "rank 0 failed"}}])
    assert lines[1].startswith("replicas: ours / torch 1.020") and lines[1].endswith("8.0 ms")
    assert lines[2] == "cut layers: rank 0 failed"
    whole = {"name": "the whole notebook", "device": "cuda", "notebook": "00_start"}
    line, failed = told["course"]([whole, whole | {"notebook": "01_tour", "failed": "ValueError: no"}])
    assert line == "1 of 2 notebooks ran" and failed == "01_tour: ValueError: no"
    jobs = [{"name": "mode dp", "ok": True, "largest_gap": 1e-16, "error": ""}]
    jobs += [{"name": "mode tp", "ok": False, "largest_gap": None, "error": "RankError: rank 1 failed"}]
    assert told["modes"](jobs) == [
        "1 of 2 equal; the largest gap of these 1.0e-16",
        "mode tp: RankError: rank 1 failed",
    ]
    block = {
        "forward_s": 1.0,
        "backward_s": 2.0,
        "saved_bytes": 100,
        "predicted": {"forward_s": 1.1, "backward_s": 1.0},
    }
    block["predicted"]["saved_bytes"] = 100.0
    assert told["blocks"]([{"gpu": "NVIDIA H200", "product_flops": 7.75e14, "rows": [block]}]) == [
        "NVIDIA H200: a large matmul at 775 TFLOP/s",
        "forward predicted within 10% (median)",
        "backward predicted within 50% (median)",
        "saved predicted within 0% (median)",
    ]
    ended = {"name": "ours", "ended": "well", "answers": [{"right": True}], "seconds": 9.0}
    assert told["ways"]([{"rows": [ended]}]) == ["ours: 1 of 1 right; ended well, 9 s"]
    assert told["ways"]([{"rows": [ended | {"answers": []}]}]) == ["ours: ended well, 9 s"]
    assert told["doctor"]([{"ranks fail": "no sockets", "what to do": "…"}])[0] == "ranks fail: no sockets"


def test_several_jobs_at_once_are_asked_of_the_commands_that_can():
    asked = {step.name: step.command for step in first_hour.on_a_gpu(1, False, jobs=4)}
    assert [name for name, command in asked.items() if "--jobs" in command] == [
        "modes", "schedules", "models", "pairs", "course"
    ]  # fmt: skip
    assert asked["course"][-3:] == ("--jobs", "4", "--only")
    assert not any("--jobs" in step.command for step in first_hour.on_a_gpu(1, False))  # each has its own default
    codes = [next(s.code for s in first_hour.on_a_gpu(1, False, jobs) if s.name == "course") for jobs in (None, 4)]
    assert codes[0] != codes[1], "a record of four notebooks at once is not continued with one"


def test_a_step_that_is_not_there_is_told_before_any_runs(tmp_path, capsys):
    """And before anything is changed for ranks of other tests."""
    before = dict(os.environ)
    with pytest.raises(SystemExit):
        first_hour.main(["--emulated", "--only", "moods", "--results", str(tmp_path)])
    assert "there is no step 'moods': choose modes, schedules, models, pairs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()) and dict(os.environ) == before


def test_the_page_of_the_gpu_counts_the_jobs_of_its_record():
    """As many as are recorded, all equal, of as many as there are."""
    every = subprocess.run([sys.executable, first_hour.MATRIX, "--list"], cwd=HOUSE, capture_output=True, text=True)
    folder = HOUSE / "results" / "first-hour" / "1-nvidia-h200"
    steps_of_equality = [
        json.loads((folder / f"{step.name}.json").read_text("utf-8")) for step in first_hour.equality()
    ]
    jobs = [job for record in steps_of_equality for job in record.get("found", record.get("so far"))]
    assert all(job["ok"] for job in jobs)
    told = len({job["name"] for job in jobs}), len(every.stdout.splitlines())
    assert "{} of the {} jobs".format(*told) in " ".join(PAGE.split())
    assert "{} of {} kinds of jobs".format(*told) in (HOUSE / "README.md").read_text("utf-8")


RUNS = {  # a file that a step runs, beside the package; and steps that do not run it
    "notebooks/10_naive.ipynb": ("course", "doctor modes pairs pipelining sharding ways"),
    "tests/equality.py": ("modes schedules models pairs", "doctor pipelining sharding ways course"),
    "tests/accelerator/matrix.py": ("modes schedules models pairs", "ways course"),
    "tests/accelerator/device.cpp": ("modes pairs", "ways course"),
    "tests/accelerator/groups.cpp": ("modes pairs", "ways course"),
    "tests/training/test_oracle.py": ("sharding", "doctor modes pipelining ways course"),
    "bench/pipeline.py": ("blocks pipelining sharding", "doctor modes ways course"),
    "hybridlab/front/typed.py": ("doctor modes schedules models pairs blocks pipelining sharding ways course", ""),
}


@pytest.mark.parametrize("file", RUNS)
def test_a_record_holds_as_long_as_what_its_step_runs_is_the_same(monkeypatch, tmp_path, file):
    for name in RUNS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(steps, "HOUSE", tmp_path)
    codes = lambda: {step.name: step.code for step in first_hour.on_a_gpu(2, False)}
    before = codes()
    (tmp_path / file).write_text("changed")
    changed = {name for name, code in codes().items() if code != before[name]}
    its, others = map(str.split, RUNS[file])
    assert changed >= set(its) and not changed & set(others) and all(len(code) == 12 for code in before.values())


def test_builds_of_torch_are_told_apart_and_what_is_not_here_is_not_named(monkeypatch):
    import torch

    builds = []
    for cuda in ("13.0", "12.9"):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        builds.append(first_hour._build("580.65"))
    assert builds[0] != builds[1] and builds[0].keys() == {"driver", "torch", "CUDA"}
    monkeypatch.setattr(torch.version, "cuda", None)
    assert first_hour._build("").keys() == {"torch"}


def test_a_job_is_chosen_by_its_whole_name(monkeypatch):
    """The names of some begin as those of others: "mode dp" and "mode dp each"."""
    from accelerator import matrix  # here, as it imports all models

    jobs = {f"mode {name}": job for name, job in matrix.MODES.items()} | matrix.MODELS  # pairs take seconds to make
    monkeypatch.setattr(matrix, "jobs", lambda: jobs)
    chosen_by = matrix.chosen_by
    assert chosen_by(["mode dp", "model conv"]) == ["mode dp", "model conv"] and chosen_by(["dp each"]) == [
        "mode dp each"
    ]


@pytest.mark.long
def test_a_step_has_the_jobs_that_its_word_chooses():
    from accelerator.matrix import chosen_by

    assert first_hour._jobs("model ") == chosen_by(["model "])


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("name, least", [("pipelining", 3), ("sharding", 5)])
def test_what_a_benchmark_prints_is_understood_and_says_how_often_it_repeated(name, least):
    step = {step.name: step for step in first_hour.on_a_gpu(2, False)}[name]
    shorter = dataclasses.replace(step, command=(*step.command, "--rounds", "2", "--device", "cpu"))
    (one,) = steps.ran(shorter, 300.0)["found"]
    rows = [row for name, row in one.items() if name != first_hour.WHERE]
    assert len(rows) >= least and {row["repetitions"] for row in rows} == {2}
    assert len(step.headlines([one])) == 1 + len(rows)
