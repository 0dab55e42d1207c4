"""Placement: every row of the table of hardware, without any of the hardware."""

import pytest

from hybridlab.world import placement as module
from hybridlab.world.placement import placement


@pytest.mark.parametrize("ranks", [1, 4])
def test_without_a_gpu_ranks_use_the_cpu(ranks):
    plan = placement(ranks, gpus=0)
    assert (plan.backend, plan.devices, plan.shared) == ("gloo", ("cpu",) * ranks, False)


@pytest.mark.parametrize("ranks, gpus", [(1, 1), (2, 2), (3, 8)])
def test_a_gpu_per_rank_means_nccl(ranks, gpus):
    plan = placement(ranks, gpus=gpus)
    assert plan.backend == "nccl" and not plan.shared
    assert plan.devices == tuple(f"cuda:{r}" for r in range(ranks))


def test_ranks_share_gpus_in_turn_and_say_that_times_are_not_speed_ups():
    plan = placement(5, gpus=2)
    assert (plan.backend, plan.shared) == ("gloo", True)
    assert plan.devices == ("cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0")
    assert "not speed-ups" in str(plan) and "5 ranks share 2 GPUs" in str(plan)


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_a_placement_prints_as_one_sentence(gpus):
    plan = placement(4, gpus=gpus)
    assert str(plan) == plan.sentence and plan.sentence.count(".") == 1 and plan.sentence.endswith(".")


@pytest.mark.parametrize("ranks, gpus", [(0, 1), (-1, 0), (2, -1)])
def test_impossible_numbers_are_refused(ranks, gpus):
    with pytest.raises(ValueError):
        placement(ranks, gpus=gpus)


@pytest.fixture
def asked(monkeypatch):
    """Count afresh, and keep the commands that would have run."""
    commands = []

    class Answer:
        returncode, stdout = 0, "3\n"

    monkeypatch.setattr(module.subprocess, "run", lambda command, **_: commands.append(command) or Answer)
    module.count_gpus.cache_clear()
    yield commands
    module.count_gpus.cache_clear()


def test_without_a_driver_nobody_is_asked(monkeypatch, asked):
    monkeypatch.setattr(module, "DRIVER_FILES", ("/no/such/file",))
    assert placement(2).backend == "gloo" and asked == []


def test_with_a_driver_a_child_counts_once(monkeypatch, asked, tmp_path):
    monkeypatch.setattr(module, "DRIVER_FILES", (str(tmp_path),))
    assert placement(2).devices == placement(2).devices == ("cuda:0", "cuda:1")
    assert len(asked) == 1
