"""The first hour on a GPU: steps are run once, go on after a failure, end in time, and everything is on one page."""

import re
import time
from pathlib import Path

import pytest

from hybridlab.cli import main as cli
from hybridlab.world.devices import gpus
from tools import first_hour, steps
from tools.course import HOUSE
from tools.steps import Step

pytestmark = pytest.mark.slow

HERE, SINCE = {"machine": "1 × NVIDIA H200", "code": "a"}, "the first hour"


@pytest.fixture
def hour(tmp_path):
    """Runs steps, and says how often each was started."""

    class Hour:
        folder, started = tmp_path / "kept", tmp_path / "started"

        def step(self, name, code, **more):
            begin = f"open({str(self.started)!r}, 'a').write({name!r} + ' ')\n"
            return Step(
                name, f"whether {name} works", ("-c", begin + code), lambda found: [f"{found[0]['n']} found"], **more
            )

        def run(self, *todo, key=HERE, limit=20.0, **more):
            return steps.run(list(todo), self.folder, SINCE, key, limit=limit, **more)

        def starts(self):
            return self.started.read_text().split() if self.started.exists() else []

        def page(self):
            return (self.folder / "README.md").read_text()

    return Hour()


WELL = """import json; print("working"); print(json.dumps({"n": 3}))"""


def test_a_step_that_was_run_is_not_run_again(hour, capsys):
    well = hour.step("well", WELL)
    (first,), (second,) = hour.run(well), hour.run(well)
    assert first == second and first["found"] == [{"n": 3}] and first["ended"] == "well"
    assert hour.starts() == ["well"] and "working\n" in capsys.readouterr().out
    hour.run(well, again=True)
    assert hour.starts() == ["well"] * 2


@pytest.mark.parametrize("other", [{"code": "b"}, {"machine": "2 × NVIDIA H200"}])
def test_other_code_and_another_machine_run_it_again(hour, other):
    well = hour.step("well", WELL)
    hour.run(well)
    hour.run(well, key=HERE | other)
    assert hour.starts() == ["well"] * 2


def test_a_failure_costs_its_own_step_only_and_is_tried_again(hour):
    bad = hour.step("bad", "import sys; sys.exit('no such file: /home/me/data/x')")
    for _ in range(2):
        failed, fine = hour.run(bad, hour.step("well", WELL))
        assert failed["ended"] == "with exit code 1" and "found" not in failed and fine["found"] == [{"n": 3}]
    assert hour.starts() == ["bad", "well", "bad"]
    assert "no such file: …/x" in hour.page() and "/home" not in "".join(map(Path.read_text, hour.folder.iterdir()))


def test_a_verdict_that_is_told_is_a_result_whatever_the_exit_code(hour):
    (missed,) = hour.run(hour.step("missed", WELL + "; import sys; sys.exit(1)"))
    assert missed["ended"] == "with exit code 1" and missed["found"] == [{"n": 3}] and steps.holds(missed, HERE)


@pytest.mark.long
def test_a_step_that_takes_too_long_is_ended_with_all_that_it_started(hour, tmp_path):
    child = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
print("begun")
time.sleep(60)
"""
    begin = time.monotonic()
    (late,) = hour.run(hour.step("late", child), limit=3.0)
    assert late["ended"] == "was stopped after 3 s" and late["said"] == ["begun"] and time.monotonic() - begin < 20
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked after does not."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
def test_what_was_found_before_a_step_was_stopped_is_told_and_the_step_run_again(hour):
    slow = hour.step("slow", WELL + "; import time; time.sleep(60)")
    for _ in range(2):
        (late,) = hour.run(slow, limit=3.0)
        assert late["so far"] == [{"n": 3}] and late["headlines"] == ["3 found"] and "found" not in late
        assert "\n\nwas stopped after 3 s, " in hour.page()
    assert hour.starts() == ["slow"] * 2


def test_a_step_may_find_several_things():
    code = "for n in 1, 2: print('{\"n\": %d}' % n)\nprint('{\"n\": ')"  # the last one broken off
    two = Step("two", "", ("-c", code), lambda found: [f"{len(found)} found"])
    assert steps.ran(two, 20.0)["found"] == [{"n": 1}, {"n": 2}]


def test_the_page_tells_of_every_step_also_of_one_that_cannot_run(hour):
    records = hour.run(hour.step("well", WELL), hour.step("many", WELL, missing="it needs two GPUs"))
    assert records[1]["why"] == "it needs two GPUs" and hour.starts() == ["well"]
    text = hour.page()
    assert text.startswith("# the first hour\n\nmachine 1 × NVIDIA H200; code a.") and text.count("\n## ") == 2
    assert "- 3 found" in text and "it needs two GPUs" in text and "ended well, " in text


# ---- the steps for a GPU


def test_without_a_gpu_one_sentence_says_what_would_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpus, "here", gpus.Gpus)
    assert first_hour.main(["--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert (
        told.count("\n") == 1
        and "no GPU" in told
        and "doctor, modes, schedules, models, pairs, pipelining, sharding, ways, course" in told
    )
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
    row = {"ratio": 1.02, "interval": [0.99, 1.04], "tokens_per_second": 5e4, "ours_ms": 8.0}
    assert told["pipelining"]([{"placement": "2 ranks", "1f1b": row}])[1].startswith("1f1b: torch / ours 1.020 (0.990")
    lines = told["sharding"]([{"placement": "2 ranks", "replicas": row, "cut layers": {"failed": "rank 0 failed"}}])
    assert lines[1].endswith("8.0 ms") and lines[2] == "cut layers: rank 0 failed"
    whole = {"name": "the whole notebook", "device": "cuda", "notebook": "00_start"}
    rows = [whole, whole | {"notebook": "01_tour", "failed": "ValueError: no"}, {"name": "1F1B", "device": "cpu"}]
    line, failed = told["course"]([{"rows": rows, "file": "results/x.json"}])
    assert line == "1 of 2 notebooks ran; 1 rows on cpu, 2 rows on cuda; in results/x.json"
    assert failed == "01_tour: ValueError: no"
    jobs = [{"name": "mode dp", "ok": True, "largest_gap": 1e-16, "error": ""}]
    jobs += [{"name": "mode tp", "ok": False, "largest_gap": None, "error": "RankError: rank 1 failed"}]
    assert told["modes"](jobs) == [
        "1 of 2 equal; the largest gap of these 1.0e-16",
        "mode tp: RankError: rank 1 failed",
    ]
    ended = {"name": "ours", "ended": "well", "answers": [{"right": True}], "seconds": 9.0}
    assert told["ways"]([{"rows": [ended]}]) == ["ours: 1 of 1 right; ended well, 9 s"]
    assert told["doctor"]([{"ranks fail": "no sockets", "what to do": "…"}])[0] == "ranks fail: no sockets"


def test_the_code_has_a_name_that_changes_with_it(monkeypatch, tmp_path):
    before = first_hour.code()
    assert before == first_hour.code() and len(before) == 12
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(first_hour, "HOUSE", tmp_path)
    empty = first_hour.code()
    (tmp_path / "bench" / "one.py").write_text("")
    assert len({before, empty, first_hour.code()}) == 3
