"""Placement: every row of the table of hardware, without any of the hardware."""

import pytest

from hybridlab.world.devices import placement as module
from hybridlab.world.devices.placement import placement


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


@pytest.mark.parametrize("gpus, backend", [(2, "gloo"), (1, "nccl"), (1, "gloo"), (0, "gloo")])
def test_the_backend_can_be_chosen(gpus, backend):
    plan = placement(2, gpus=gpus, backend=backend)
    assert plan.backend == backend and plan.shared == (gpus == 1)
    assert "as asked" in str(plan) or (gpus, backend) in ((1, "gloo"), (0, "gloo"))


def test_gpus_that_are_there_need_not_be_used():
    assert placement(3, gpus=0).devices == ("cpu",) * 3


@pytest.mark.parametrize("gpus, backend", [(0, None), (1, None), (1, "nccl"), (2, None)])
def test_nothing_listens_beyond_this_machine(gpus, backend):
    plan = placement(2, gpus=gpus, backend=backend)
    variables = plan.environment(0)
    assert variables["GLOO_SOCKET_IFNAME"] == module.LOOPBACK
    if plan.backend == "nccl":  # its own service for questions would listen too
        assert (variables["NCCL_SOCKET_IFNAME"], variables["NCCL_RAS_ENABLE"]) == (module.LOOPBACK, "0")


def test_nccl_on_a_shared_gpu_takes_every_rank_for_a_host():
    plan = placement(4, gpus=2, backend="nccl")
    assert len({plan.environment(r)["NCCL_HOSTID"] for r in range(4)}) == 4
    assert plan.environment(0)["NCCL_NET"] == "Socket"
    assert "NCCL_HOSTID" not in placement(2, gpus=2).environment(0)
    assert "NCCL_HOSTID" not in placement(2, gpus=1).environment(0)


@pytest.mark.parametrize(
    "said, kind, backend", [("cpu", "cpu", "gloo"), ("cuda:1", "cuda", "gloo"), ("xpu:2", "xpu", "nccl")]
)
def test_devices_can_be_said(monkeypatch, said, kind, backend):
    monkeypatch.setenv(module.ASKED, said)
    plan = placement(2)
    assert (plan.kind, plan.backend) == (kind, backend)


@pytest.mark.parametrize("said", ["gpu", "cuda:many", "2"])
def test_what_is_no_device_is_refused(monkeypatch, said):
    monkeypatch.setenv(module.ASKED, said)
    with pytest.raises(ValueError, match="say cpu, or a kind of device and how many"):
        placement(2)


@pytest.mark.parametrize("backend, sentence", [("nccl", "there is none here"), ("mpi", "choose gloo or nccl")])
def test_impossible_backends_are_refused(backend, sentence):
    with pytest.raises(ValueError, match=sentence):
        placement(2, gpus=0, backend=backend)


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
    monkeypatch.delenv(module.ASKED, raising=False)
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
