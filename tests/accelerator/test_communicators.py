"""Communicators are made for those who talk about tensors on the device, when they do, and no host waits there."""

import gc

import pytest
import torch

import hybridlab as hl
from accelerator import matrix
from accelerator.conftest import PATIENCE
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.world.processes.launch import foresee
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.connections import Connections

pytestmark = [pytest.mark.long, pytest.mark.ranks]  # an accelerator is built first


def made() -> dict[str, int]:
    """What the emulated backend has made in this process: {"pairs": …, "groups": …}."""
    from emulated_gpu.like_nccl import LikeNCCL

    names = [name for one in gc.get_objects() if isinstance(one, LikeNCCL) for name in one.communicators]
    return {"pairs": sum(name != "all" for name in names), "groups": names.count("all")}


def by_gradients(comm, job):
    before = made()
    trainer = loop.Trainer(comm, job)
    greeted = made()
    trainer.gradients(0)
    return before, greeted, made()


NONE = {"pairs": 0, "groups": 0}
DEEP = Shape(layers=8)
JOBS = {  # what each rank has: lanes with the ranks that it talks to, two with each; and groups
    "pp=4": (Mesh(pp=4), {}, [2, 4, 4, 2], 1),
    "dp=2 pp=2": (Mesh(dp=2, pp=2), {}, [2, 2, 2, 2], 2),
    "dp=2 pp=2 tp=2": (Mesh(dp=2, pp=2, tp=2), {}, [2] * 8, 3),
    "pp=8": (Mesh(pp=8), {"shape": DEEP}, [2, *[4] * 6, 2], 1),
    "cp=4": (Mesh(cp=4), {}, [0] * 4, 1),
    "cp=4 in a ring": (Mesh(cp=4), {"attend": "ring"}, [2] * 4, 1),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_makes_those_of_the_ranks_and_groups_that_talk(eight, name):
    mesh, arguments, pairs, groups = JOBS[name]
    foresee(loop.__name__)
    with hl.ranks(mesh, timeout=60) as pool:
        told = pool.run(by_gradients, job_of(mesh, **arguments))
    assert [before for before, *_ in told] == [NONE] * mesh.size
    assert [after["pairs"] for *_, after in told] == pairs
    assert {after["groups"] for *_, after in told} == {groups}


def test_what_lies_on_the_host_makes_none_and_takes_no_device(eight):
    def talk(comm):
        x = torch.ones(4)
        comm.all_reduce(x)
        message = comm.isend(x, (comm.rank + 1) % comm.size)
        comm.recv(torch.zeros(4), (comm.rank - 1) % comm.size)
        message.wait()
        return made(), "device" in vars(comm), torch.accelerator.memory_allocated()

    with hl.ranks(3, timeout=PATIENCE) as pool:
        assert pool.run(talk) == [(NONE, False, 0)] * 3


# ---- whoever talks first, and in whatever order


def ring(comm):
    """Each posts its receive first."""
    x, room = torch.full((4,), float(comm.rank), device=comm.device), torch.zeros(4, device=comm.device)
    came = comm.irecv(room, (comm.rank - 1) % comm.size)
    left = comm.isend(x, (comm.rank + 1) % comm.size)
    total = comm.iall_reduce(x.clone())
    came.wait()
    left.wait()
    return room[0].item(), total.wait()[0].item()


def crosswise(comm):
    """Each pair sums, in an order of its own on every rank; rank 0 sends what the others need to come to a sum."""
    pairs = [(0, 1), (1, 2), (0, 2)]
    comm.open(*pairs)
    mine = [pair for pair in pairs if comm.rank in pair][:: -1 if comm.rank else 1]
    x = torch.ones(4, device=comm.device)
    sums = [comm.iall_reduce(x.clone(), pair) for pair in mine]
    key = comm.irecv(torch.zeros(4, device=comm.device), 0) if comm.rank else None
    keys = [comm.isend(x, to) for to in (1, 2)] if comm.rank == 0 else [key]
    return [message.wait()[0].item() for message in (*keys, *sums)]


@pytest.fixture
def by_their_ranks():
    """A function that has the ranks of a run stand still at first operations, as NCCL alone would have it."""

    def standing(function):
        def run(comm):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Connections, "post", lambda self, ledger, group, ranks, device, call: call())
                return function(comm)

        return run

    return standing


def test_a_ring_in_which_all_receive_first(eight, by_their_ranks):
    with hl.ranks(3, timeout=10) as pool:
        assert pool.run(ring) == [(2.0, 3.0), (0.0, 3.0), (1.0, 3.0)]
        assert pool.run(ring) == [(2.0, 3.0), (0.0, 3.0), (1.0, 3.0)]
        pool.stop()
        with pytest.raises(hl.RankError):
            pool.run(by_their_ranks(ring))


def test_sums_that_are_begun_crosswise(eight, by_their_ranks):
    with hl.ranks(3, timeout=10) as pool:
        assert pool.run(crosswise) == [[1.0, 1.0, 2.0, 2.0]] + [[1.0, 2.0, 2.0]] * 2
        pool.stop()
        with pytest.raises(hl.RankError):
            pool.run(by_their_ranks(crosswise))


def nobody_greets(patch):
    patch.setattr(Comm, "greet", lambda self, pairs, device: None)


@pytest.mark.parametrize("name", ["ahead 1", "ahead dualpipe", "driven", "all three"])
def test_who_has_not_been_greeted_connects_when_it_talks(proofs, name):
    mesh, arguments = matrix.MODES[name]
    proofs.pool(mesh).stop()  # the next ranks have not met
    report = proofs.asked(mesh, sabotage=nobody_greets, **arguments)
    assert report.ok, report
