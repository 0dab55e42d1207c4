"""Ranks that torchrun has started, on two "machines" of two processes each: the same commands, the same results."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from few import first

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import ASKED
from hybridlab.world.devices.surroundings import Seen, everywhere, seen
from hybridlab.world.processes import torchrun

ROOT = Path(__file__).parents[2]
TALK = """
import os
import sys
import torch
import hybridlab as hl

def listens():
    folder = "/proc/self/fd/"
    mine = {os.readlink(folder + fd) for fd in os.listdir(folder) if os.path.islink(folder + fd)}
    lines = [line.split() for name in ("tcp", "tcp6") for line in list(open(f"/proc/self/net/{name}"))[1:]]
    return [line[1].split(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in mine]

def talk(comm, factor):
    print("inside", comm.coordinates)
    comm.emit(step=comm.rank)
    x = comm.all_reduce(torch.full((3,), 10.0**comm.rank), "dp")
    place = comm.rank, comm.coordinates["pp"]
    return {"listens": listens(), "x": x * factor, "place": place, "counted": len(comm.ledger)}

def heard(rank, event):
    sys.stdout.write(f"heard {rank} {event}\\n")  # in one piece: other ranks write to the same pipe

with hl.ranks(hl.Mesh(dp=2, pp=2), timeout=30) as pool:
    homes = [pool.run(talk, factor, on_event=heard) for factor in (1, 2)][1]
with hl.ranks(1) as pool:
    alone = pool.run(lambda comm: (comm.size, comm.rank))
assert [home["place"] for home in homes] == [(0, 0), (1, 1), (2, 0), (3, 1)]
assert [home["x"].tolist() for home in homes] == [[202.0] * 3, [2020.0] * 3] * 2
assert all(set(home["listens"]) == {"0100007F"} for home in homes)  # 127.0.0.1; torchrun's store is its own
assert [home["counted"] for home in homes] == [1] * 4 and alone == [(1, 0)]
print("everybody knows everything")
"""

CHECK = """
from hybridlab.cli.main import main

assert main("check --dp 2 --pp 2 --steps 2 --json".split()) == 0
"""

FAIL = """
import sys
import torch
import hybridlab as hl

def fail(comm):
    if comm.rank == 2:
        raise ValueError("the loss is not a number")
    comm.all_reduce(torch.ones(3))

with hl.ranks(4, timeout=30) as pool:
    try:
        pool.run(fail)
    except hl.RankError as error:
        sys.exit(str(error))
"""


PATIENT = """
import time
import hybridlab as hl

with hl.ranks(1, timeout=1) as pool:
    assert pool.run(lambda comm: time.sleep(3) or comm.size) == [1]
print("rank 0 was waited for")
"""


def two_machines(*program, seconds=90) -> list[tuple[int, str, str]]:
    """Run a program under two torchrun agents of two processes each; returns (exit code, stdout, stderr) of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", *meeting, *program]
    environment = {key: value for key, value in os.environ.items() if key not in torchrun.VARIABLES}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    agents = [
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        texts = [agent.communicate(timeout=seconds) for agent in agents]
    finally:
        for agent in agents:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
    return [(agent.returncode, *both) for agent, both in zip(agents, texts)]


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """How both agents ended, and what they told, of one start: a talk, the check of the command line, a failure."""
    programs = tmp_path_factory.mktemp("programs")
    for name, text in {"talk": TALK, "checked": CHECK, "fail": FAIL}.items():
        (programs / f"{name}.py").write_text(text)
    (programs / "all.py").write_text("import talk, checked, fail")
    return two_machines(str(programs / "all.py"))


@pytest.mark.long
@pytest.mark.ranks
def test_a_function_runs_in_every_process_and_everybody_gets_all_results(ends):
    lines = [line for _, out, _ in ends for line in out.splitlines()]
    assert lines.count("everybody knows everything") == 1, ends  # only rank 0 prints
    assert [line for line in lines if line.startswith("heard")] == ["heard 0 {'step': 0}"] * 2
    for rank in range(4):
        assert sum(line.startswith(f"[rank {rank}] inside") for line in lines) == 2
    assert sum(line.startswith(("[rank ", "heard ")) for line in lines) == 8 + 2


@pytest.mark.long
@pytest.mark.ranks
def test_the_same_check_on_two_machines(ends):
    out = "".join(out for _, out, _ in ends)
    assert out.count("equal to one device") == 1
    report = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    assert report["ok"] and report["largest_gap"] < 1e-10
    assert all(counted == formula for counted, formula in report["bytes"].values())


@pytest.mark.long
@pytest.mark.ranks
def test_a_failure_is_told_by_its_rank_and_ends_all(ends):
    assert all(code != 0 for code, _, _ in ends)
    errors = "".join(err for _, _, err in ends)
    sentence = "rank 2 failed: ValueError: the loss is not a number (fail.py:8); torchrun now ends the others"
    assert errors.count(sentence) == 1
    assert errors.count("; torchrun now ends the others") == 1  # the others only say that they lost somebody


@pytest.mark.long
@pytest.mark.ranks
def test_a_training_that_is_no_number_any_more_is_told_once_and_what_was_saved_stays(tmp_path):
    about = "train --pp 4 --layers 4 --width 16 --heads 2 --context 8 --steps 9 --rate 1e18 --optimizer sgd --every 1"
    ends = two_machines("-m", "hybridlab", *about.split(), "--checkpoint", str(tmp_path / "kept"))
    assert all(code != 0 for code, _, _ in ends)
    errors = "".join(err for _, _, err in ends)
    assert len(re.findall(r"FloatingPointError: step \d: .* is not a number \(the first such tensor\)", errors)) == 1, (
        errors
    )
    lost = re.findall(r"rank \d on \S+ lost a rank that it was talking to: rank .* on \S+, in ", errors)
    assert "[rank" not in errors and errors.count("lost a rank") == len(lost) <= 3, errors
    assert "no rank waited" not in errors, errors
    kept = [path.name for path in (tmp_path / "kept").iterdir()]
    assert kept and all(re.fullmatch(r"step-\d{6}", name) for name in kept)


@pytest.mark.long
@pytest.mark.ranks
def test_results_are_waited_for_as_long_as_it_takes(tmp_path):
    """A reference on one device may take longer than the messages of ranks may."""
    (tmp_path / "patient.py").write_text(PATIENT)
    ends = two_machines(str(tmp_path / "patient.py"))
    assert [code for code, *_ in ends] == [0, 0], ends
    assert sum(out.count("rank 0 was waited for") for _, out, _ in ends) == 1


@pytest.mark.ranks
@pytest.mark.long
def test_the_slurm_script_runs_the_check_it_is_given(tmp_path):
    """Slurm's two commands are played by scripts: one machine, two ranks."""
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").touch()
    for name, text in {
        "scontrol": "echo 127.0.0.1",
        "srun": 'shift; exec "$@"',
        "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    slurm = {"SUBMIT_DIR": tmp_path, "JOB_ID": os.getpid(), "JOB_NODELIST": "here", "NNODES": 1, "CPUS_PER_TASK": 2}
    done = subprocess.run(
        ["bash", ROOT / "examples" / "check.slurm", "--pp", "2", "--steps", "1"],
        env=os.environ
        | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        | {f"SLURM_{name}": str(value) for name, value in slurm.items()},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert "equal to one device" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["ok"]


# ---- without processes


@pytest.fixture
def started(monkeypatch):
    """As if torchrun had started this process, one of four."""
    for name, value in zip(torchrun.VARIABLES, ("0", "4", "4", "127.0.0.1", "29500")):
        monkeypatch.setenv(name, value)


def test_a_line_is_tagged_when_it_is_complete(monkeypatch):
    monkeypatch.setattr(sys, "__stdout__", out := io.StringIO())
    tagged = torchrun.Tagged("[rank 1] ")
    assert tagged.write("two pie") == 7 and out.getvalue() == ""
    tagged.write("ces\nand an")
    assert out.getvalue() == "[rank 1] two pieces\n"
    tagged.write("other")
    tagged.finish(), tagged.finish()
    assert out.getvalue() == "[rank 1] two pieces\n[rank 1] and another\n"


def test_torchrun_is_recognised_by_all_its_variables(started, monkeypatch):
    assert torchrun.present()
    monkeypatch.delenv("MASTER_PORT")
    assert not torchrun.present()


def test_processes_of_another_launcher_do_not_train_alone(started, monkeypatch):
    monkeypatch.setenv("RANK", "1"), monkeypatch.setenv("WORLD_SIZE", "4"), monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with pytest.raises(ValueError, match="RANK=1 and WORLD_SIZE=4 are set, but torchrun has not.*: start them with"):
        hl.ranks(2)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert hl.ranks(2).size == 2


@pytest.mark.parametrize("rank, world", [("", "4"), ("4", "4"), ("-1", "4"), ("0", ""), ("0", "four")])
def test_numbers_that_torchrun_does_not_give_are_refused(started, monkeypatch, rank, world):
    monkeypatch.setenv("RANK", rank), monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ValueError, match=f"RANK='{rank}' with WORLD_SIZE='{world}' is invalid.*unset RANK, WORLD_SIZE"):
        torchrun.TorchrunRanks(Mesh(dp=4))


LEFT_OVER = """
import sys
from hybridlab.world.processes import torchrun
torchrun.MEETING, torchrun.SILENT = 2.0, 0.1
import hybridlab as hl
try:
    hl.ranks(2).run(print)
except ValueError as error:
    print(error, file=sys.stderr)  # of ranks other than 0, stdout is not shown
"""


@pytest.mark.ranks
@pytest.mark.parametrize("rank", first(1, ["0", "1"]))
def test_variables_that_a_torchrun_has_left_in_a_shell_are_told(rank):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    left = dict(zip(torchrun.VARIABLES, (rank, "2", "2", "127.0.0.1", port)))
    done = subprocess.run([sys.executable, "-c", LEFT_OVER], capture_output=True, text=True, env=os.environ | left)
    assert "Exception raised" not in done.stderr, "torch has tried on its own"
    told = f"of torchrun at 127.0.0.1:{port}"
    assert f"rank {rank} could not connect to all 2 processes {told} within 2 s: " in done.stderr
    assert "unset RANK, WORLD_SIZE" in done.stderr and f"rank {rank} waits for 2 processes {told}" in done.stderr


def test_hl_ranks_takes_the_processes_that_are_there(started):
    import hybridlab as hl

    pool = hl.ranks(Mesh(dp=2, pp=2))
    assert isinstance(pool, torchrun.TorchrunRanks) and (pool.size, pool.mesh) == (4, Mesh(dp=2, pp=2))
    assert hl.ranks(1).size == 1


ALL = ["a", "b", "c", "d"]
SAME = [(1, ALL)] * 4
PLACES = {  # what each rank sees: (machine, GPUs); then the backend, the place of each rank's device, whether shared
    "all see all GPUs of their machine": (SAME, "nccl", "0123", False),
    "each task is bound to a GPU": ([(1, [name]) for name in ALL], "nccl", "0000", False),
    "each task is bound to two": ([(1, ["a", "b"]), (1, ["c", "d"])], "nccl", "00", False),
    "bound on two machines": ([(1, ["a"]), (1, ["b"]), (2, ["c"]), (2, ["d"])], "nccl", "0000", False),
    "two machines, all see all": ([(1, ["a", "b"])] * 2 + [(2, ["c", "d"])] * 2, "nccl", "0101", False),
    "devices without names of their own": ([(1, ["0"]), (2, ["0"])], "nccl", "00", False),
    "one GPU for all": ([(1, ["a"])] * 4, "gloo", "0000", True),
    "two GPUs for four": ([(1, ["a", "b"])] * 4, "gloo", "0101", True),
    "one machine has fewer": ([(1, ["a", "b"])] * 2 + [(2, ["c"])] * 2, "gloo", "0100", True),
}


@pytest.mark.parametrize("case", PLACES)
def test_devices_are_shared_out_by_what_processes_see(case):
    told, backend, places, shared = PLACES[case]
    found = everywhere([Seen(machine, "cuda", list(enumerate(names))) for machine, names in told])
    assert found.devices == tuple(f"cuda:{place}" for place in places)
    assert (found.backend, found.shared) == (backend, shared)


def test_one_process_without_a_gpu_keeps_all_on_the_cpu_and_is_named():
    some = [Seen(1, "cuda", list(enumerate(names))) for names in (["a"], ["b"], [], ["d"])]
    assert everywhere(some).devices == ("cpu",) * 4
    assert str(everywhere(some)).startswith("rank 2 sees no GPU, so all are on the CPU")
    assert "sees no GPU" not in str(everywhere(some[2:3]))


def test_gpus_that_let_in_one_process_have_a_rank_each_or_none():
    """Under torchrun as elsewhere."""
    placed = lambda names, ranks: everywhere([Seen(1, "cuda", list(enumerate(names)), alone=True)] * ranks)
    assert placed("ab", 2).devices == ("cuda:0", "cuda:1")
    shared = placed("ab", 4)
    assert (shared.devices, shared.backend) == (("cpu",) * 4, "gloo") and "lets in one process" in shared.sentence


def test_what_a_process_sees_can_be_said(monkeypatch):
    monkeypatch.setenv(ASKED, "xpu:2")
    assert seen()[1:] == ("xpu", [(0, "xpu 0"), (1, "xpu 1")], socket.gethostname(), False)
    monkeypatch.setenv(ASKED, "cpu")
    assert seen()[1:] == ("cpu", [], socket.gethostname(), False)


def test_a_mesh_of_another_size_is_refused(started):
    with pytest.raises(ValueError, match="started 4 processes, but Mesh.* has 8 ranks: choose .* 8"):
        torchrun.TorchrunRanks(Mesh(dp=8))


LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_RAS_ENABLE": "0"}


@pytest.mark.parametrize(
    "local, master, said, wanted",
    [
        ("4", "login7", {}, LOOPBACK),
        ("2", "127.0.0.1", {}, LOOPBACK),
        ("2", "login7", {"GLOO_SOCKET_IFNAME": "eth0"}, LOOPBACK | dict.fromkeys(list(LOOPBACK)[:2], "eth0")),
        (
            "2",
            "login7",
            {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib0"},
            LOOPBACK | {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib0"},
        ),
    ],
)
def test_one_machine_listens_on_loopback_and_several_where_they_are_told(local, master, said, wanted):
    environment = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": local, "MASTER_ADDR": master, **said}
    assert torchrun.interfaces(environment, LOOPBACK) == wanted


def test_several_machines_must_name_their_interface():
    environment = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "login7"}
    with pytest.raises(ValueError, match="export GLOO_SOCKET_IFNAME="):
        torchrun.interfaces(environment, LOOPBACK)
