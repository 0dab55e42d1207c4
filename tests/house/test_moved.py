"""Old names of modules still import, the same objects, and hide none of the package's functions."""

import json
import pkgutil
import subprocess
import sys

import pytest

import hybridlab as hl
import hybridlab.scheduling
import hybridlab.training
from hybridlab.labs.exercises import grade as grading
from hybridlab.labs.exercises.source import Source
from hybridlab.labs.exercises.submission import FORM
from hybridlab.moved import MOVED, now

OLD = {  # by hand, for the table itself
    "core.action": "core.when.action",
    "core.completed": "core.when.inferred",
    "core.seen": "core.where.attended",
    "core.mesh": "core.where.mesh",
    "modes.arrivals": "modes.parts.token_order",
    "modes.matmul": "modes.products.matmul",
    "modes.work": "runtime.work",
    "predict.plans.held": "predict.plans.weights_of_rank",
    "schedules.lower": "scheduling.lower",
    "train.alone": "training.reference",
    "train.models.gpt": "training.models.gpt",
    "world.processes.seen": "world.devices.surroundings",
}
IN_PACKAGES = {
    one.name.replace(package.__name__, old): one.name
    for old, package in {"hybridlab.train": hybridlab.training, "hybridlab.schedules": hybridlab.scheduling}.items()
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
}
AFTER = """
import importlib, json, sys
import hybridlab as hl

verbs = hl.train, hl.schedules, hl.check
for old, new in json.load(sys.stdin).items():
    module = importlib.import_module(old)
    assert module is importlib.import_module(new) and module.__name__ == module.__spec__.name == new, old
from hybridlab.train.check import check
from hybridlab.schedules import lower
from hybridlab.modes.pipeline import Player
assert (hl.train, hl.schedules, hl.check) == verbs and hl.check is check and hl.lower is lower.lower
assert Player is hl.engine.Player and "1f1b" in hl.schedules() and callable(hl.train)
"""
ORDER = """
from hybridlab.core.action import Action as Action
from hybridlab.train.stages import cut as cut
import hybridlab.core.schedule as schedule
def f(rank, ranks, microbatches):
    w = min(ranks - 1 - rank, microbatches)
    return "F" * w + "FB" * (microbatches - w) + "B" * w
"""


def test_the_table_says_where_modules_are():
    for old, new in OLD.items():
        assert now(f"hybridlab.{old}") == f"hybridlab.{new}"
    assert now("hybridlab.core.afford") is None and now("numpy") is None and now("train.check") is None


@pytest.mark.long
def test_every_old_name_is_the_module_of_today_in_a_fresh_process():
    names = MOVED | IN_PACKAGES
    assert len(names) > 120
    done = subprocess.run([sys.executable, "-c", AFTER], input=json.dumps(names), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_function_with_old_imports_loads():
    assert Source(ORDER, "f").load()(0, 2, 2) == "FFBB"
    with pytest.raises(ModuleNotFoundError):
        Source("from hybridlab.core.nowhere import x\ndef f(): pass", "f").load()


@pytest.mark.long
@pytest.mark.ranks
def test_a_submission_with_old_imports_is_graded(tmp_path):
    answer = {"function": {"name": "f", "source": ORDER}}
    whole = {"form": FORM, "student": None, "seed": 0, "versions": {}, "answers": {"1f1b.order": answer}}
    (tmp_path / "ada.json").write_text(json.dumps(whole))
    (row,) = grading.grade(tmp_path)
    assert row.tasks["1f1b.order"][0] is True, row
    assert hl.train.__name__ == "train"
