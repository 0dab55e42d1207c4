"""The command line: stable keys, one sentence and exit code 2 for bad input."""

import json
import re
import sys

import pytest

from hybridlab.cli.main import _parser, main

METRICS = {"length", "bubble_fraction", "bubble_overhead", "bubble_span", "peak_live", "busy"}


def last_object(capsys):
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


@pytest.mark.parametrize("command", ["schedule", "simulate"])
def test_pure_commands_print_their_keys(command, capsys):
    assert main([command, "--schedule", "gpipe", "--ranks", "4", "--microbatches", "8", "--json"]) == 0
    result = last_object(capsys)
    assert set(result) >= METRICS
    assert result["bubble_overhead"] == 0.375 and result["peak_live"] == [8] * 4


def test_a_schedule_is_printed_for_people(capsys):
    assert main(["schedule", "--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--lower"]) == 0
    assert "rank 1: 1RECV_F0 1F0" in capsys.readouterr().out


def test_a_timeline_is_saved(tmp_path):
    import hybridlab as hl

    assert main(["simulate", "--dp", "2", "--pp", "2", "--save", str(tmp_path / "t.json")]) == 0
    assert hl.Timeline.load(tmp_path / "t.json").schedule.ranks == 4


BAD = {
    "simulate --schedule 2f2b": "there is no schedule '2f2b': choose one of",
    "simulate --ranks 0": "ranks=0 is not possible",
    "simulate --ranks four": "invalid int value: 'four'",
    "simulate --ranks 2 --pp 4": "give only one of them",
    "simulate --F=-1": "F=-1.0 is not a valid duration",
    "schedule --microbatches 0": "microbatches=0 is not possible",
    "run --speed 3": "there is no --speed: did you mean '--seed'? See hybridlab run --help",
    "run --work dream": "invalid choice: 'dream'",
    "run --steps 0": "steps=0 is not positive",
    "run --ranks 129": "129 ranks are too many",
    "check --pp 9": "at least 9 layers",
    "check --pp 2 --batch 7": "choose a multiple of 4",
    "check --pp 2 --heads 5": "choose heads from",
    "check --dtype int8": "there is no dtype",
    "check --steps 0": "steps=0",
    "train --data /nowhere/at/all": "cannot read the data file /nowhere/at/all",
    "train --dp 129": "129 ranks are too many",
    "train --optimizer magic": "choose one of sgd, adamw",
    "demo --steps 0": "steps=0 is not a positive number",
    "dance": "invalid choice: 'dance'",
    "": "required: COMMAND",
}


@pytest.mark.parametrize("line", BAD)
@pytest.mark.long
def test_bad_input_ends_in_one_sentence_and_exit_code_2(line, capsys):
    assert main(line.split()) == 2
    said = capsys.readouterr().err.strip()
    assert BAD[line] in said and said.count("\n") == 0 and "Traceback" not in said


@pytest.mark.ranks
def test_run_lays_measured_over_predicted(capsys):
    assert main("run --schedule 1f1b --ranks 3 --microbatches 4 --F 0.005 --B 0.01 --json".split()) == 0
    result = last_object(capsys)
    assert {"predicted", "measured", "gap", "same_order"} <= set(result)
    assert METRICS <= set(result["measured"]) and result["same_order"] is True
    assert result["measured"]["length"] >= 0.09  # six slots of 15 ms cannot take less


@pytest.mark.ranks
def test_run_of_a_model_has_the_pipeline_of_the_other_verbs(capsys):
    """With --dp 2 and no --pp, a pipeline has one rank, as in check and train."""
    assert main("run --work model --dp 2 --microbatches 2 --steps 1 --json".split()) == 0
    assert last_object(capsys)["same_order"] is True


@pytest.mark.ranks
def test_check_prints_its_verdict(capsys):
    assert main("check --pp 2 --schedule gpipe --microbatches 2 --json".split()) == 0
    result = last_object(capsys)
    assert result["ok"] is True and result["largest_gap"] == 0
    assert all(counted == formula for counted, formula in result["bytes"].values())


@pytest.mark.ranks
def test_train_prints_a_line_for_every_step(capsys):
    assert main("train --pp 2 --steps 3 --microbatches 2 --json".split()) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.strip().splitlines()]
    assert [line["step"] for line in lines[:3]] == [0, 1, 2]
    assert lines[-1]["losses"] == [line["loss"] for line in lines[:3]]


@pytest.mark.long
@pytest.mark.ranks
def test_the_demo_learns_to_be_seen(capsys, tmp_path):
    assert main(["demo", "--out", str(tmp_path / "report.html"), "--json"]) == 0
    result = last_object(capsys)
    for losses in result["losses"].values():
        assert losses[-1] < losses[0] * 2 / 3 and max(losses) == losses[0]
    assert result["largest_loss_gap"] < 1e-12
    page = (tmp_path / "report.html").read_text()
    before, *after = re.findall(r"<td>(A rank .*?)</td>", page)
    assert before not in after and len(after) == 3 and len(set(after)) == 1 and " the" in after[0]


@pytest.mark.long
@pytest.mark.ranks
def test_the_demo_writes_one_page_without_a_network(capsys, tmp_path):
    page = tmp_path / "report.html"
    assert main(["demo", "--steps", "2", "--out", str(page), "--json"]) == 0
    result = last_object(capsys)
    assert result["largest_loss_gap"] < 1e-4 and set(result["runs"]) == {"naive", "gpipe", "1f1b"}
    text = re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)
    fetched = re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", text)
    assert fetched is None and "pipeline pp=4" in text


def test_ranks_of_a_program_import_while_its_flags_are_read(monkeypatch):
    """Whoever calls main with arguments has a process already, and perhaps its ranks."""
    asked = []

    def foresee(module):
        asked.append(module)
        raise RuntimeError("no torch here: the command itself says so")

    monkeypatch.setattr("hybridlab.world.processes.launch.foresee", foresee)
    for words in (["check", "--pp", "0"], ["run", "--help"], ["schedule", "none"], []):
        monkeypatch.setattr(sys, "argv", ["hybridlab", *words])
        main()
    assert asked == ["hybridlab.training.check"] and main(["check", "--pp", "0"]) == 2
    assert asked == ["hybridlab.training.check"]


def test_a_dry_run_is_on_an_a100_where_nothing_is_said():
    assert _parser(["dry-run"]).parse_args(["dry-run"]).machine == "a100"
