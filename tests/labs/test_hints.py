"""Hints follow the failure: whoever is told of a deadlock first gets the hint about deadlocks."""

import re
import time
from pathlib import Path

import pytest

import hybridlab
from hybridlab import labs
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.failures import OF_RANKS, hints_for
from hybridlab.labs.trials.trial import Failed, called_on_rank, run

pytestmark = pytest.mark.usefixtures("first_attempt")
HOUSE = Path(hybridlab.__file__).parent
FILES = [*(HOUSE / "labs").rglob("*.py"), *(HOUSE / "world").rglob("*.py")]
TOLD = "\n".join(re.sub(r'"\s*\n\s*f?"', "", file.read_text(encoding="utf-8")) for file in FILES)  # as it is told
ENGINE = ["naive.engine", "gpipe.engine", "1f1b.engine", "interleaved.engine", "zero_bubble.engine", "pipedream.engine"]
ENGINE += [
    "collectives.ring",
    "data_parallel.ddp",
    "zero_fsdp.one",
    "zero_fsdp.unit",
    "megatron.layers",
    "megatron.loss",
]
ENGINE += ["megatron.pair", "experts.dispatch", "context.joined", "context.ring"]
ENGINE += ["convolution.halo", "convolution.layer", "convolution.split", "slices.backward"]


@pytest.mark.parametrize("task", ENGINE)
def test_what_students_build_has_hints_about_what_can_fail(task):
    assert len(TASKS[task].about) >= 4


@pytest.mark.parametrize("task, words", [(name, words) for name in TASKS for words in TASKS[name].about])
def test_a_hint_is_about_something_that_a_check_says(task, words):
    said = re.findall(rf'{re.escape(words)}(?!": )', TOLD)  # and not as a key in a table of hints
    assert said, "no check says it any more: change the words with the sentence"


@pytest.mark.parametrize("task", [name for name in TASKS if TASKS[name].about])
def test_hints_about_failures_are_sentences_and_others_than_the_three(task):
    for hint in TASKS[task].about.values():
        assert hint[-1] in ".?" and "!" not in hint and "`" not in hint and hint not in TASKS[task].hints, hint


def test_every_rank_failure_has_its_own_hint():
    assert all(hint[-1] in ".?" and "`" not in hint for hint in OF_RANKS.values())
    blocked = (
        "deadlock: rank 1 waits in send of (4, 16) float32 to rank 2, tag 0, at <cell 1>:12, rank 2 waits in send of "
        "(4, 16) float32 to rank 1, tag 0, at <cell 1>:21; each needs another of them first."
    )
    assert "blocking send" in hints_for(TASKS["1f1b.engine"], blocked)[0]


def test_first_the_hint_about_the_failure_then_the_others_and_the_last_stays(monkeypatch):
    task = TASKS["1f1b.engine"]
    told = iter(["held 4 forwards at once;", "held 4 forwards at once;", "times too large", "x", "x", "x"])
    monkeypatch.setattr(type(task.check), "__call__", lambda check, value: (False, next(told)))
    held, large = task.about["forwards at once"], task.about["times too large"]
    given = [labs.answer("1f1b.engine", len).hint for _ in range(6)]
    assert given == [held, task.hints[0], large, task.hints[1], task.hints[2], task.hints[2]]


def number():
    import torch

    return torch.zeros(1)


def to_the_right(comm):
    comm.send(number(), 1 - comm.rank)


def left_alone(comm):
    if comm.rank == 0:
        comm.recv(number(), 1)


def too_far(comm):
    comm.send(number(), 2)


def another_tag(comm):
    comm.recv(number(), 1, tag=3) if comm.rank == 0 else comm.send(number(), 0, tag=4)


def dropped(comm):
    if comm.rank == 0:
        comm.isend(number(), 1)
        return
    time.sleep(0.3)
    comm.recv(number(), 0)


def left_out(comm):
    comm.all_reduce(number()) if comm.rank == 0 else comm.all_gather(number())


def in_a_circle(comm):
    comm.recv(number(), 1 - comm.rank)


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize(
    "program, words",
    [
        (to_the_right, "waits in send of"),
        (left_alone, "has finished, and"),
        (too_far, "there is no rank"),
        (another_tag, "has another tag"),
        (dropped, "without a wait()"),
        (left_out, "do not call the same"),
        (in_a_circle, "each needs another of them first"),
    ],
)
def test_the_words_are_those_that_real_ranks_are_told_by(program, words):
    with pytest.raises(Failed) as told:
        run(2, called_on_rank, program)
    assert hints_for(TASKS["1f1b.engine"], str(told.value))[0] == OF_RANKS[words]
