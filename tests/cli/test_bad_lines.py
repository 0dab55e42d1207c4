"""Bad command lines, made by a seed: each ends in one sentence and exit code 2, soon, without a traceback."""

import contextlib
import importlib
import io
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from hybridlab.cli.main import main

ROOT = str(pathlib.Path(__file__).parents[2])
SECONDS = 3.0  # of this processor: other work on the machine is not the command's
LIMIT = 20.0  # by the clock, after which a command is taken as one without an end
COUNT = 400  # of the long test; the first of them run always
QUICK = 40
LARGE = "1000000000"

# flag: values that no command can mean, whatever stands beside them
COUNTS = ["0", "-1", "1.5", "nan", "x", "", LARGE, "9" * 30]
DURATIONS = ["-1", "nan", "inf", "1e308", "x", ""]
ABOVE = ["0", "-1", "nan", "x"]
LAYOUT = {"--dp": COUNTS, "--pp": COUNTS, "--microbatches": COUNTS, "--chunks": ["0", "-1", "x", "10**3"]}
LAYOUT |= {"--schedule": ["2f2b", "", "1F1B", "../1f1b", "\0"]}
SCHEDULE = LAYOUT | {
    "--ranks": COUNTS,
    "--from": ["{fifo}", "{folder}", "/dev/zero", "{missing}", "{noise}", "{empty}"],
}
COSTS = {"--F": DURATIONS, "--B": DURATIONS, "--latency": DURATIONS}
MODES = {"--tp": COUNTS, "--cp": COUNTS, "--ep": COUNTS, "--x": COUNTS, "--zero": ["4", "-1", "x", LARGE]}
MODES |= {"--owners": ["0", "-1", "x", LARGE], "--recompute": ["some"], "--attend": ["x"], "--dispatch": ["x"]}
MODES |= {"--sums": ["x"], "--sum-dtype": ["int8"], "--device-memory": ["0", "-1", "nan", "x"], "--sequence": None}
MODES |= {"--copy-time": ["-1", "nan", "inf", "x"], "--scatter": None, "--zigzag": None, "--make-room": ["x"]}
MODES |= {"--ulysses": ["0", "-1", "2", "x"], "--zigzag-over": ["x", "row"]}
TRAINING = MODES | {
    "--batch": ["0", "-1", "7", "x", LARGE + "000"],
    "--dtype": ["int8", "x", ""],
    "--data": ["{fifo}", "{folder}", "/dev/zero", "{missing}", "{empty}"],
    "--seed": ["x", "1.5", "-1"],
    "--cut": ["x", "0,1", "9999,1", "1,-1", "1,x"],
    "--ahead": ["-1", "x"],
    "--clip": ["0", "-1", "nan", "x"],
    "--accumulate": ["0", "-1", "x", LARGE],
    "--decay": ["-1", "nan", "inf", "x"],
    "--model": ["nobody", "{fifo}:x", "{noise}:x", "{missing}.py:x", "x.py", ""],
    "--dropout": ["1", "-0.1", "nan", "x", "2"],
    "--layers": COUNTS,
    "--width": COUNTS,
    "--heads": ["-1", "3", "x", LARGE],
    "--kv-heads": ["0", "-1", "3", "x"],
    "--latent": ["4", "-1", "x"],  # beside no --rotary, and in a GPT
    "--query-latent": ["4", "-1"],
    "--rotary": ["4", "3", "-2"],
    "--per-head": ["0", "-1", "x"],
    "--context": COUNTS,
    "--vocabulary": COUNTS,
    "--inner": COUNTS,
    "--experts": COUNTS,
    "--chosen": ["0", "-1", "2", LARGE],
    "--pace": ABOVE,
    "--capacity": ABOVE,
    "--scores": ["x"],
    "--balance": ["x"],
}
LEARNING = {"--steps": ["0", "-1", "x", LARGE * 2], "--optimizer": ["magic", ""], "--rate": ["nan", "inf", "-1", "x"]}
PLACES = ["{folder}", "{missing}/x", "{file}/x", "/proc/x", "{fifo}", "\0"]
SAVING = {"--checkpoint": ["{file}", "{file}/x", "/dev/null", "/proc/x", "{fifo}"], "--every": ["-1", "x", "2"]}
SAVING |= {"--resume": None}
FLAGS = {
    "schedule": SCHEDULE | dict.fromkeys(("--csv", "--pytorch"), PLACES),
    "simulate": SCHEDULE | COSTS | dict.fromkeys(("--csv", "--save", "--chrome", "--svg", "--html"), PLACES),
    "run": {one: SCHEDULE[one] for one in SCHEDULE if one != "--from"}
    | COSTS
    | {"--work": ["dream"], "--jitter": ["-1", "nan", "inf", "x"], "--steps": ["0", "-1", "x", LARGE * 2]}
    | {"--save": PLACES, "--ahead": TRAINING["--ahead"]},
    "check": LAYOUT | TRAINING | LEARNING,
    "train": LAYOUT | TRAINING | LEARNING | SAVING,
    "reshard": LAYOUT
    | TRAINING
    | LEARNING
    | {"--to": ["x", "tp=", "tp=x", "tp=0", "zero=9", "q=2"], "--at": ["0", "x"]},
    "dry-run": LAYOUT
    | {one: TRAINING[one] for one in TRAINING if one not in ("--batch", "--accumulate")}
    | dict.fromkeys(("--vocabulary", "--inner", "--width", "--context"), ["0", "-1", "x", "9" * 30])
    | {"--rank": ["-1", "99", "x"], "--machine": ["tpu", ""], "--memory": ["0", "-1", "nan", "x"]},
    "plan": {
        **dict.fromkeys(("--gpus", "--batch"), ["0", "-1", "x", "9" * 30]),
        **dict.fromkeys(("--pp", "--tp", "--dp", "--microbatch", "--chunks"), ["0", "-1", "x", LARGE]),
        "--owners": ["-1", "x", LARGE],
        "--model": ["nobody", ""],
        "--machine": ["tpu"],
        "--context": ["0", "-1", "x"],
        "--tokens": ["0", "-1", "nan", "inf", "x"],
        "--price": ["2.5", "-1", "nan", "inf", "x"],  # a price alone says nothing of a training run
        "--zero": ["4", "-1"],
        "--skew": ["-1", "nan", "inf"],
        "--recompute": ["x"],
        "--slices": ["0", "-1", "-2", "x", LARGE],
        "--further": ["-1", "x", LARGE],
        "--optimizer": ["x", "sgd", "0"],
        "--memory": ["0", "-1", "nan", "inf", "x"],
        "--pod": ["0", "-8", "4", "999", "x"],
        "--oversubscription": ["7", "nan", "x"],
        "--took": [
            "p=4",
            "seconds=x",
            "seconds=nan,p=4,t=8,d=2",
            "p=4,t=8,d=2,seconds=-1",
            "p=0,seconds=9",
            "=",
            "p=x,seconds=9",
        ],
        "--trace": ["{missing}", "{fifo}", "{folder}", "{noise}", "{empty}", "/dev/zero"],
        "--why": ["t=0", "t=x", "q=3", "t", "=", "t=1e3"],
    },
    "measure": {"--suite": ["x", ""], "--out": ["{file}", "{file}/x", "/dev/null", "/proc/x"]},
    "demo": {
        "--steps": ["0", "-1", "x", LARGE * 2],
        "--data": TRAINING["--data"],
        "--out": [one for one in PLACES if "missing" not in one],
    },
    "grade": {"--seconds": ["0", "-1", "nan", "inf", "x"], "--jobs": ["0", "-1", "x"], "--assignment": ["x", ""]},
}
NEEDED = {"reshard": ["--check", "--to", "tp=4"], "plan": ["--gpus", "64", "--batch", "64"], "grade": ["{submissions}"]}

NO_FLAG = (["dance"], [], ["grade"], ["grade", "{missing}"], ["grade", "{fifo}"], ["grade", "/dev/null"], ["plan"])


def lines(count: int):
    """So many bad command lines, the same ones every time: a command, and one flag that cannot be meant so."""
    every = [
        [command, *NEEDED.get(command, ()), flag if value is None else f"{flag}={value}"]
        for command, flags in FLAGS.items()
        for flag, values in flags.items()
        for value in values or [None]
    ]
    random.Random(23).shuffle(every)
    return [*NO_FLAG, *every][:count]


@pytest.fixture(scope="module", autouse=True)
def torch_is_loaded():
    """Broken off by an alarm, its import could not be begun again."""
    importlib.import_module("torch._subclasses")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """What the lines name: a FIFO, a folder, files."""
    here = tmp_path_factory.mktemp("named")
    os.mkfifo(here / "fifo")
    (here / "folder").mkdir()
    (here / "submissions").mkdir()
    (here / "submissions" / "ada.json").write_text("{")
    (here / "noise").write_bytes(random.Random(1).randbytes(5000))
    (here / "empty").write_bytes(b"")
    (here / "file").write_text("a file\n" * 1000)
    return {one: str(here / one) for one in ("fifo", "folder", "noise", "empty", "file", "submissions", "missing")}


class TooLong(BaseException):
    """No Exception, so that nobody catches it."""


def told(line):
    """(exit code, what was said on stderr, seconds) of a command in this process; None for one without an end."""

    def ring(*_):
        raise TooLong

    before, said = signal.signal(signal.SIGALRM, ring), io.StringIO()
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    began = time.process_time()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = main(line)
    except TooLong:
        code = None
    except BaseException as error:
        code, said = f"{type(error).__name__}: {str(error)[:200]}", io.StringIO()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return code, said.getvalue().strip(), time.process_time() - began


def complaint(line) -> str:
    """What is wrong with how a bad line ended; nothing if all is well."""
    code, said, seconds = told(line)
    if code != 2:
        return f"ended with {code}"
    if seconds > SECONDS:
        return f"took {seconds:.1f} s"
    if not re.match(r"hybridlab[\w -]*: .{10,}", said) or said.count("\n") or "Traceback" in said or len(said) > 900:
        return f"said {said[:300]!r}"
    return ""


def complaints(count, places):
    found = {}
    for line in lines(count):
        line = [part.format_map(places) if "{" in part else part for part in line]
        if wrong := complaint(line):
            found[" ".join(line)] = wrong
    return found


@pytest.mark.slow
def test_some_bad_lines_end_in_one_sentence(places):
    assert complaints(QUICK, places) == {}


@pytest.mark.long
def test_hundreds_of_bad_lines_end_in_one_sentence(places):
    assert len(lines(COUNT)) == COUNT
    assert complaints(10_000, places) == {}


@pytest.mark.long
def test_bad_lines_in_processes_of_their_own(places):
    """As a shell sees them."""
    typed = [line for line in lines(10_000) if not any("\0" in part for part in line)]  # no shell can pass a zero byte
    for line in random.Random(5).sample(typed, 12):
        line = [part.format_map(places) if "{" in part else part for part in line]
        done = subprocess.run(
            [sys.executable, "-m", "hybridlab", *line], cwd=ROOT, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, (line, done)
