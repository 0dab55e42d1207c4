"""What a program sends through `torch.distributed` itself: in the ledger, and in the explanations of faults."""

import pytest
import torch
import torch.distributed as dist
from few import one_in

import hybridlab as hl
from hybridlab.world.talk.ledger import THEIRS

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def pair():
    with hl.ranks(2, hang_s=5) as pool:
        yield pool


def rows(comm):
    return [(row["op"], row["bytes"], row["peer"], row["tag"], row["purpose"]) for row in comm.ledger.rows()]


def by_hand(comm):
    x, other = torch.ones(4), 1 - comm.rank
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.all_gather_into_tensor(torch.empty(8), x)
    dist.broadcast(x, 1)
    if comm.rank:
        dist.recv(torch.empty(3), 0, tag=5)
    else:
        dist.send(torch.ones(3), 1, tag=5)
    for work in (dist.isend(torch.ones(2), other), dist.irecv(torch.empty(2), other)):
        work.wait()
    dist.barrier()
    comm.all_reduce(x)
    return rows(comm)


def test_each_call_is_one_row_with_its_bytes_and_ours_are_not_written_twice(pair):
    here, there = pair.run(by_hand)
    assert here == [
        ("all_reduce", 16, None, None, THEIRS),
        ("all_reduce", 16, None, None, THEIRS),
        ("all_gather", 32, None, None, THEIRS),
        ("broadcast", 16, None, None, THEIRS),
        ("send", 12, 1, 5, THEIRS),
        ("isend", 8, 1, 0, THEIRS),
        ("irecv", 8, 1, 0, THEIRS),
        ("barrier", 0, None, None, THEIRS),
        ("all_reduce", 16, None, None, ""),
    ]
    assert there[4] == ("recv", 12, 0, 5, THEIRS)


def library(comm, kind):
    """(the result, the operations and bytes) of one step of one of torch's own."""
    torch.manual_seed(0)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    net = torch.nn.Linear(4, 4, bias=False)
    if kind == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net)
    before = len(comm.ledger)  # a mesh and DDP compare ranks when they are made
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(net, mesh=mesh)
    if kind == "dtensor":
        from torch.distributed.tensor import Shard, distribute_tensor

        distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]).full_tensor()
    elif kind == "functional":
        from torch.distributed import _functional_collectives

        (_functional_collectives.all_reduce(torch.ones(3), "sum", mesh) + 0).sum()
    else:
        net(torch.ones(2, 4)).sum().backward()
    return [row[:2] for row in rows(comm)][before:], [row["source"].partition(":")[0] for row in comm.ledger.rows()]


@pytest.mark.parametrize(
    "kind, sent",
    one_in(
        2,
        [
            ("ddp", [("all_reduce", 64)]),
            ("fsdp", [("all_gather", 64), ("reduce_scatter", 64)]),
            ("dtensor", [("scatter", 32), ("all_gather", 32)]),
            ("functional", [("all_reduce", 12)]),
        ],
    ),
)
def test_what_torchs_libraries_send_is_there_too_with_the_programs_line(pair, kind, sent):
    for told, sources in pair.run(library, kind):
        assert told == sent and set(sources) == {"test_overheard.py"}


def unequal(comm):
    """Rank 0 keeps one row and sends two, rank 1 sends one and keeps three."""
    leaving, coming = ([1, 2], [1, 1]) if comm.rank == 0 else ([1, 3], [2, 3])
    x = torch.full((sum(leaving), 1), float(comm.rank))
    y = x.new_empty(sum(coming), 1)
    dist.all_to_all_single(y, x, coming, leaving)
    return y.flatten().tolist(), [row[:2] for row in rows(comm)]


def test_ranks_may_send_each_other_unequal_parts(pair):
    assert pair.run(unequal) == [([0, 1], [("all_to_all", 12)]), ([0, 0, 1, 1, 1], [("all_to_all", 16)])]


def shapes(comm):
    dist.all_reduce(torch.ones(4 + comm.rank))


def reductions(comm):
    dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if comm.rank else dist.ReduceOp.SUM)


def two_sends(comm):
    dist.send(torch.ones(3), 1 - comm.rank)


def two_receives(comm):
    dist.irecv(torch.empty(3), 1 - comm.rank).wait()


def one_leaves(comm):
    if comm.rank == 0:
        dist.barrier()


def another_step(comm):
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(2 + comm.rank):
        net(torch.ones(2, 4)).sum().backward()


def crossed(comm):
    x = torch.ones(4)
    if comm.rank:
        comm.all_reduce(x), dist.barrier()
    else:
        dist.barrier(), comm.all_reduce(x)


@pytest.mark.parametrize(
    "program, kind, words",
    one_in(
        3,
        [
            (shapes, "mismatch", "rank 1 calls all_reduce #1 of (5,) float32"),
            (reductions, "mismatch", "max"),
            (crossed, "mismatch", "barrier"),
            (two_sends, "deadlock", "rank 0 waits in send of (3,) float32 to rank 1"),
            (two_receives, "deadlock", "rank 0 waits in irecv of (3,) float32 from rank 1"),
            (one_leaves, "left", "rank 0 waits in barrier #1"),
            (another_step, "left", "rank 0 has finished, and rank 1 waits in all_reduce"),
        ],
    ),
)
def test_a_fault_of_theirs_is_explained_as_one_of_ours_is(program, kind, words):
    with hl.ranks(2, hang_s=20) as pool, pytest.raises(hl.RankError) as told:
        pool.run(program)
    assert told.value.kind == kind and words in str(told.value) and "test_overheard.py:" in told.value.where
