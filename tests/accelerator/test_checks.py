"""The product on the emulated accelerator: jobs are equal to one device, times are true, hangs are explained.

And mistakes that no CPU can notice are made again, one line each: every one of them is caught here.
"""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import hybridlab as hl
from accelerator import environment, matrix
from accelerator.conftest import PATIENCE
from hybridlab.core.where.mesh import Mesh
from hybridlab.runtime.work import ModelWork
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.world.processes import torchrun
from hybridlab.world.talk import clock
from hybridlab.world.talk.clock import HostClock
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.connections import Connections
from hybridlab.world.talk.message import StreamMessage

pytestmark = [pytest.mark.long, pytest.mark.ranks]  # an accelerator is built first

USUAL = ("all three", "zero 3 pipeline", "ahead 1", "driven", "bf16 zero 2", "offload", "swapped", "weights on hosts")
SLOW = 0.2  # seconds


@pytest.mark.parametrize("name", USUAL)
def test_a_layout_trains_as_one_device_does(proofs, name):
    mesh, arguments = matrix.MODES[name]
    assert proofs.right(mesh, **arguments)


def test_a_shared_device_does_too(shared):
    report = hl.check(Mesh(pp=2, tp=2))
    assert report.ok, report


# ---- times


def slow_beginning(comm, job, clock=None):
    """What a rank notes of a step in which the first stage takes long: seconds from its beginning, by action."""
    with pytest.MonkeyPatch.context() as patch:
        if clock:
            patch.setattr(Comm, "clock", clock)
        trainer = loop.Trainer(comm, job)
        trainer.step(0)
        if comm.rank == 0:
            through = trainer.work._through
            patch.setattr(trainer.work, "_through", lambda *a: time.sleep(SLOW) or through(*a))
        comm.barrier()
        begin = time.perf_counter_ns()
        times = (trainer.step(1)[1] - begin) / 1e9
    return {str(action): row.tolist() for action, row in zip(trainer.player.program, times)}


def of_two(*more):
    """That of both ranks of a pipeline."""
    with hl.ranks(Mesh(pp=2)) as pool:
        return pool.run(slow_beginning, job_of(Mesh(pp=2), "gpipe", 2), *more)


def test_who_waits_for_a_message_does_not_seem_to_compute(eight):
    first, second = of_two()
    _, begin, end, _ = first["0F0"]
    assert end - begin > SLOW
    _, begin, end, _ = second["1F0"]
    assert begin > SLOW and end - begin < SLOW / 2
    assert SLOW < second["1RECV_F0"][2] <= begin + 0.01


@pytest.mark.long
def test_by_the_hosts_clock_it_would(eight):
    _, second = of_two(lambda comm, device: HostClock())
    assert second["1F0"][2] - second["1F0"][1] > 0.9 * SLOW


# ---- hangs


def test_a_rank_that_waits_in_vain_says_for_what(eight):
    def lonely(comm):
        if comm.rank == 1:
            comm.irecv(torch.zeros(3, device=comm.device), 0).over()

    with (
        hl.ranks(2, timeout=PATIENCE) as pool,
        pytest.raises(hl.RankError, match="rank 0 has finished, and rank 1 wait"),
    ):
        pool.run(lonely)


def test_a_message_on_its_way_while_the_host_reads_a_number_still_ends(eight):
    """The host's look ends all messages that were waited for; the others end at their own wait, or at a later look."""

    def beside(comm):
        message = comm.isend(torch.ones(3, device=comm.device), 1) if comm.rank == 0 else comm.irecv(
            torch.zeros(3, device=comm.device), 0
        )  # fmt: skip
        comm.settle()
        message.wait()
        comm.settle()
        return [row["end_ns"] > 0 for row in comm.ledger.rows()]

    with hl.ranks(2, timeout=PATIENCE) as pool:
        assert pool.run(beside) == [[True], [True]]


def test_ranks_that_take_their_device_one_after_the_other_do_not_hang(shared):
    """As contexts on one GPU are made, in the first run. Who is late afterwards keeps the others waiting in vain."""

    def together(comm, late=0.0):
        os.environ["EMULATED_GPU_STARTS_IN"] = str(comm.rank)
        torch.ones(1, device=comm.device)
        time.sleep(late * comm.rank)
        comm.barrier()

    with hl.ranks(4, hang_s=1) as pool:
        pool.run(together)
        with pytest.raises(hl.RankError, match="no progress for 1 s"):
            pool.run(together, 1.0)


# ---- mistakes


def room_on_the_host(patch):
    """Room for a message is made where tensors are made by default."""
    real = ModelWork.room
    patch.setattr(ModelWork, "room", lambda *a: [torch.empty(x.shape, dtype=x.dtype) for x in real(*a)])


def no_wait(patch):
    """The stream is not made to wait for a message."""
    patch.setattr(StreamMessage, "wait", lambda self: setattr(self, "waited", True) or self._delivered())


def hosts_that_connect(patch):
    """The rank itself posts the first operation of those who have not met, and stands still until all have come."""
    patch.setattr(Connections, "post", lambda self, ledger, group, ranks, device, call: call())


def no_greeting(patch):
    """Nor does it greet those to whom it will talk."""
    hosts_that_connect(patch)
    patch.setattr(Comm, "greet", lambda self, pairs, device: None)


def marks_among_communicators(patch):
    """Marks of messages are on streams that communicators have too."""
    patch.setattr(clock, "FIRST", 0)


MISTAKES = [
    (room_on_the_host, "tied"),
    (no_wait, "tied"),
    (no_wait, "zero 2"),
    (no_wait, "tp"),
    (no_greeting, "ahead 1"),
    (hosts_that_connect, "tied buckets"),
    (marks_among_communicators, "ahead 2"),
]


@pytest.mark.long
@pytest.mark.parametrize("mistake, name", MISTAKES)
def test_a_mistake_is_caught(proofs, mistake, name):
    mesh, arguments = matrix.MODES[name]
    assert proofs.right(mesh, **arguments)
    proofs.pool(mesh).stop()  # the next ranks have not met
    try:
        report = proofs.asked(mesh, sabotage=mistake, **arguments)
    except hl.RankError:
        return
    assert not report.ok


# ---- ranks that torchrun starts

ALONE = """
from datetime import timedelta
import sys
import torch.distributed as dist
from hybridlab.cli.main import main
from hybridlab.world.talk.comm import Comm

real = Comm.__init__

def opened(self, mesh, rank, **more):
    real(self, mesh, rank, **more)
    if mesh.size == 1:  # lanes of a mesh of one rank, which nobody else opens
        dist.new_group(timeout=timedelta(seconds=5))

if "--mistaken" in sys.argv:
    Comm.__init__ = opened
sys.exit(main("check --dp 2 --steps 2 --json".split()))
"""


def under_torchrun(program, *words) -> tuple[int, str]:
    """(exit code, what was said) of a program in two processes."""
    around = {key: value for key, value in os.environ.items() if key not in torchrun.VARIABLES}
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", str(program), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    agent = subprocess.Popen(
        command, env=around | environment.emulated() | {"OMP_NUM_THREADS": "1"}, start_new_session=True, **pipes
    )
    try:
        said, _ = agent.communicate(timeout=100)
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
    return agent.returncode, said


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--mistaken",)], ids=["as it is", "lanes for one rank"])
def test_torchruns_ranks_prove_it_too_and_one_rank_opens_no_lanes(eight, tmp_path, words):
    (tmp_path / "alone.py").write_text(ALONE)
    code, said = under_torchrun(tmp_path / "alone.py", *words)
    assert ("equal to one device" in said and code == 0) == (not words), said
