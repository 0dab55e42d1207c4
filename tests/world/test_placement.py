"""Placement: every row of the table of hardware, without any of the hardware."""

import pytest

from hybridlab.world.devices import gpus
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
    with pytest.raises(ValueError, match="give cpu, or a kind of device and a number of them"):
        placement(2)


@pytest.mark.parametrize("backend, sentence", [("nccl", "backend='nccl' needs a"), ("mpi", "choose gloo or nccl")])
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


# --- GPUs that are there, and whether torch can use them ---------------------------------------------------------


def told(**other):
    """What torch says of one A100 that it can use, or with something otherwise."""
    usual = {"torch": "2.13.0+cu130", "cuda": "13.0", "kernels": ["sm_75", "sm_80", "sm_90"], "counted": 1}
    return usual | {"gpus": [["NVIDIA A100", 80 * 10**9, [8, 0], "GPU-1"]]} | other


def card(version="580.65.06", mode="Default", mig="Disabled"):
    return {"driver_version": version, "compute_mode": mode, "mig.mode.current": mig}


CANNOT = {  # what torch and nvidia-smi say: why no GPU is used
    "an older driver": (
        told(gpus=[]), card("550.54.15"),
        "driver is 550.54.15, and torch 2.13.0+cu130 is built with CUDA 13.0, which needs 580 or newer: remove .venv",
    ),
    "an even older driver": (
        told(gpus=[], torch="2.13.0+cu129", cuda="12.9"), card("470.82"), "CUDA 12.9, which needs 525 or newer",
    ),
    "a CPU build": (told(gpus=[], cuda="", counted=0), card(), "is a CPU build: remove .venv and say make setup"),
    "no kernels": (
        told(gpus=[["Tesla P100-PCIE-16GB", 16 * 10**9, [6, 0], "GPU-1"]]), card(),
        "torch 2.13.0+cu130 has no kernels for Tesla P100-PCIE-16GB (sm_60): it is built for sm_75, sm_80, sm_90",
    ),
    "no kernels for V100": (told(gpus=[["Tesla V100", 1, [7, 0], "GPU-1"]]), card(), "for Tesla V100 (sm_70): it is"),
    "prohibited": (told(gpus=[]), card(mode="Prohibited"), "compute mode is Prohibited: an administrator can run"),
    "MIG without an instance": (told(gpus=[]), card(mig="Enabled"), "divided by MIG and has no instance"),
    "hidden": (told(gpus=[], counted=0), card(), "look at CUDA_VISIBLE_DEVICES"),
    "broken": (told(gpus=[]), card(), "CUDA does not open it"),
}  # fmt: skip


@pytest.mark.parametrize("case", CANNOT)
def test_why_a_gpu_is_not_used_is_one_clause_and_ranks_run_on_the_cpu(monkeypatch, case):
    says, smi, why = CANNOT[case]
    found = gpus.judged(says, smi["driver_version"], [smi])
    assert why in found.why and not found.usable
    monkeypatch.setattr(gpus, "here", lambda: found)
    monkeypatch.delenv(module.ASKED, raising=False)
    plan = placement(4)
    assert plan.devices == ("cpu",) * 4 and plan.backend == "gloo" and found.why in plan.sentence


def test_the_usable_gpu_of_two_has_all_ranks_under_torchs_own_number(monkeypatch):
    two = [["Tesla P100", 1, [6, 0], "GPU-1"], ["NVIDIA A100", 2, [8, 0], "GPU-2"]]
    monkeypatch.setattr(gpus, "here", lambda: gpus.judged(told(gpus=two, counted=2), "580.65", [card(), card()]))
    monkeypatch.delenv(module.ASKED, raising=False)
    assert placement(2).devices == ("cuda:1", "cuda:1")


def test_a_gpu_that_lets_in_one_process_is_not_shared(monkeypatch):
    found = gpus.judged(told(), "580.65", [card(mode="Exclusive_Process")])
    monkeypatch.setattr(gpus, "here", lambda: found)
    monkeypatch.delenv(module.ASKED, raising=False)
    assert placement(1).devices == ("cuda:0",)
    assert "its compute mode lets in one process, so 4 ranks cannot share it: use a rank" in placement(4).sentence
    assert placement(4).kind == "cpu"
    older = gpus.judged(told(gpus=[]), "550.54", [card("550.54", mode="Exclusive_Process")])
    assert "the driver is 550.54" in older.for_ranks(4)[1]  # which is why, whatever its mode


def test_without_a_driver_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(gpus.driver, "FILES", ("/no/such/file",))
    monkeypatch.setattr(gpus.subprocess, "run", None)
    assert gpus.here.__wrapped__() == gpus.Gpus()


def stub(folder, monkeypatch, **says):
    """A machine with a driver's file, an nvidia-smi, and a torch that says this."""
    (folder / "torch").mkdir()
    properties = "types.SimpleNamespace(name='NVIDIA A100', total_memory=8, major=8, minor=0, uuid='GPU-1')"
    cuda = {"device_count": 1, "is_available": True, "get_arch_list": ["sm_80"]} | says
    lines = [f"cuda.{name} = lambda: {value!r}" for name, value in cuda.items()]
    (folder / "torch" / "__init__.py").write_text(
        "import types\n__version__ = '2.13.0+cu130'\nversion = types.SimpleNamespace(cuda='13.0')\n"
        f"cuda = types.SimpleNamespace(get_device_properties=lambda number: {properties})\n" + "\n".join(lines)
    )
    smi = folder / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '550.54.15, Default, Disabled'\n")
    smi.chmod(0o755)
    monkeypatch.setattr(gpus.driver, "FILES", (str(folder),))
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.slow
def test_a_gpu_that_is_counted_and_cannot_be_opened_is_not_used(monkeypatch, tmp_path):
    """As with a driver that is too old: NVML counts the GPU, and CUDA does not start."""
    stub(tmp_path, monkeypatch, is_available=False)
    found = gpus.here.__wrapped__()
    assert not found.usable and found.driver == "550.54.15" and "the driver is 550.54.15" in found.why


@pytest.mark.slow
def test_a_gpu_that_opens_is_used(monkeypatch, tmp_path):
    stub(tmp_path, monkeypatch)
    assert gpus.here.__wrapped__().usable == (gpus.Gpu(0, "NVIDIA A100", 8, "GPU-1"),)


@pytest.mark.slow
def test_a_torch_that_does_not_answer_is_told(monkeypatch, tmp_path):
    stub(tmp_path, monkeypatch)
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open')")
    assert "libcudart.so.13: cannot open" in gpus.here.__wrapped__().why
