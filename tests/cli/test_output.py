"""What commands write can fail late: an encoding without µ, a reader that left, a full disk, a number that is none."""

import io
import json
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.cli import main as cli
from hybridlab.cli import output
from hybridlab.training import check as proof
from hybridlab.training.report import Report

LONG = [
    sys.executable,
    "-m",
    "hybridlab",
    "schedule",
    "--ranks",
    "8",
    "--microbatches",
    "2000",
]  # more than a pipe holds
FULL = "/dev/full"


def strictly(text):
    """JSON as its standard has it: NaN and Infinity are no numbers there."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_numbers_that_json_cannot_say_are_texts(monkeypatch, capsys):
    report = Report("x", {"loss": float("nan"), "norm": float("inf")}, {"sums": (8, 8)}, {}, 1e-10)
    monkeypatch.setattr(proof, "check", lambda *_, **__: report)
    assert cli.main(["check", "--pp", "2", "--json"]) == 1
    told = strictly(capsys.readouterr().out.splitlines()[-1])
    assert told["gaps"] == {"loss": "nan", "norm": "inf"} and told["largest_gap"] == "nan" and told["ok"] is False


def test_the_help_says_how_such_numbers_are_written(capsys):
    cli.main(["check", "--help"])
    assert " ".join(output.NUMBERS.split()) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "euc-kr", "utf-8"])
def test_a_terminal_without_a_letter_gets_its_number(monkeypatch, encoding):
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", screen)
    assert output.to_the_end(lambda _: print("dp=2 × pp=2, 3 µs, 한국어") or 0)() == 0
    said = screen.buffer.getvalue().decode(encoding)
    assert said.startswith("dp=2 ") and said == "dp=2 × pp=2, 3 µs, 한국어\n".encode(
        encoding, "backslashreplace"
    ).decode(encoding)


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_command_as_shells_expect():
    command = subprocess.Popen(LONG, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    command.stdout.read(10)
    command.stdout.close()
    assert command.stderr.read() == b"" and command.wait(30) == output.CLOSED == 141


@pytest.mark.slow
def test_a_full_disk_is_told_in_one_sentence():
    with open(FULL, "wb") as full:
        command = subprocess.run(LONG[:-1] + ["4"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    assert command.stderr == "hybridlab: cannot write the output: No space left on device\n" and command.returncode == 1


@pytest.mark.parametrize("option", ["--save", "--chrome", "--svg", "--csv"])
def test_a_file_that_finds_no_room_is_named(option, capsys):
    assert cli.main(["simulate", "--ranks", "2", option, FULL]) in (1, 2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "cannot write /dev/full" in said


def test_a_limit_on_files_is_not_blamed_on_the_output_alone(capsys):
    def wrong(_):
        raise OSError(27, "File too large")

    assert output.to_the_end(wrong)() == 1
    said = "hybridlab: cannot write the output, or a file that ranks need: File too large\n"
    assert capsys.readouterr().err == said


def test_other_failures_are_not_hidden():
    def wrong(_):
        raise PermissionError(13, "Permission denied")

    with pytest.raises(PermissionError):
        output.to_the_end(wrong)()


@pytest.mark.ranks
@pytest.mark.long
def test_a_training_whose_reader_goes_away_leaves_no_rank_behind():
    words = "train --pp 2 --steps 100000 --width 16 --context 8".split()
    command = subprocess.Popen([*LONG[:3], *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    command.stdout.readline()
    command.stdout.close()
    assert command.stderr.read() == b"" and command.wait(60) == output.CLOSED


@pytest.mark.ranks
@pytest.mark.long
def test_a_run_is_told_in_any_encoding():
    """Its last line has a µ, and stood behind the work."""
    words = "run --ranks 2 --microbatches 2 --steps 1 --F 0.001 --B 0.001 --json".split()
    env = {"PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    command = subprocess.run([*LONG[:3], *words], env=env, capture_output=True, text=True, timeout=60)
    assert command.returncode == 0 and r"\xb5s here" in command.stdout, command.stderr
    strictly(command.stdout.splitlines()[-1])


def test_the_slowest_edge_is_named_beside_the_fastest():
    run = hl.simulate(hl.lower(hl.schedule("1f1b", ranks=3, microbatches=2)))
    told = lambda latency: output.of_messages(replace(run, origin={"latency": latency}))
    assert told([1e-4, 2e-2, 0.0]) == "one message takes 100 µs here, and 20000 µs between stages 1 and 2"
    assert told([1e-4, 0.0, 0.0]) == "one message takes 100 µs here"
    assert told([0.0, 0.0, 0.0]) == "no message leaves its rank"


# --- long searches ------------------------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A terminal's stderr."""

    def isatty(self):
        return True


@pytest.mark.parametrize("screen, told", [(Screen(), True), (io.StringIO(), False)])
def test_a_terminal_is_told_what_takes_long_and_a_file_is_not(monkeypatch, screen, told):
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(output, "PATIENCE", 0.01)
    with output.waiting("predicting all plans"):
        time.sleep(0.2)
    assert ("\rpredicting all plans, 0 s" in screen.getvalue()) == told
    assert screen.getvalue().endswith("\r\033[K" if told else "")


def test_no_line_is_written_after_it_was_erased(monkeypatch):
    class Slow(Screen):
        def write(self, text):
            if "plans" in text:
                writing.set()
                time.sleep(0.2)
            return super().write(text)

    writing = threading.Event()
    monkeypatch.setattr(sys, "stderr", Slow())
    monkeypatch.setattr(output, "PATIENCE", 0.01)
    with output.waiting("predicting all plans"):
        writing.wait(5)
    time.sleep(0.3)
    assert sys.stderr.getvalue().endswith("\r\033[K")


def test_a_quick_answer_says_nothing_else(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    assert cli.main(["plan", "--model", "gpt-1.7b", "--gpus", "32", "--batch", "64", "--pp", "1"]) == 0
    assert not sys.stderr.getvalue()


def test_the_line_is_erased_before_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setattr(output, "PATIENCE", 0.01)
    with pytest.raises(ValueError), output.waiting("predicting all plans"):
        time.sleep(0.2)
        raise ValueError
    assert sys.stderr.getvalue().endswith("\r\033[K")
