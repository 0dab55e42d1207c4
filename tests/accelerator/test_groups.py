"""The process groups of the emulated device keep NCCL's rules, or those of gloo with a device that is shared."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hybridlab as hl

pytestmark = [pytest.mark.long, pytest.mark.ranks]  # an accelerator is built first


def fresh(**more):
    """A group of all ranks that nobody has used."""
    return dist.new_group(timeout=timedelta(seconds=10), **more)


def filled(comm, value, length=4):
    return torch.full((length,), float(value), device=comm.device)


def test_its_own_backend_refuses_what_lies_on_the_host(two):
    def refused(comm):
        dist.all_reduce(torch.ones(2), group=fresh(backend="gpu:like_nccl"))

    with pytest.raises(hl.RankError, match="No backend type associated with device type cpu"):
        two.run(refused)


def test_a_tensor_must_be_in_one_piece(two):
    with pytest.raises(hl.RankError, match="contiguous"):
        two.run(lambda comm: dist.all_reduce(torch.ones(2, 3, device=comm.device).T))


def test_gloo_beside_it_carries_what_lies_on_the_host(two):
    def carried(comm):
        x = torch.ones(2)
        dist.all_reduce(x)
        dist.barrier()
        got, work = torch.zeros(1), dist.isend(torch.ones(1) + comm.rank, 1 - comm.rank, tag=3)
        dist.recv(got, 1 - comm.rank, tag=3)
        work.wait()
        return x.tolist(), got.item()

    assert two.run(carried) == [([2.0, 2.0], 2.0), ([2.0, 2.0], 1.0)]


def test_messages_of_a_pair_are_matched_in_order_whatever_their_tags(two):
    def crossed(comm):
        if comm.rank == 0:
            for work in [dist.isend(filled(comm, tag), 1, tag=tag) for tag in (1, 2)]:
                work.wait()
            return None
        rooms = {tag: filled(comm, 0) for tag in (2, 1)}
        for work in [dist.irecv(room, 0, tag=tag) for tag, room in rooms.items()]:
            work.wait()
        return {tag: room[0].item() for tag, room in rooms.items()}

    assert two.run(crossed)[1] == {2: 1.0, 1: 2.0}


def test_a_pairs_two_directions_wait_for_each_other(two):
    """Both send first: in one group neither gets past its send."""

    def both_send(comm):
        group, peer = fresh(), 1 - comm.rank
        sent = dist.isend(filled(comm, 1), peer, group)
        came = dist.irecv(filled(comm, 0), peer, group)
        time.sleep(1)
        return sent.is_completed(), came.is_completed()

    assert two.run(both_send) == [(False, False)] * 2


@pytest.mark.parametrize("what", ["message", "collective"])
def test_who_meets_for_the_first_time_waits_on_the_host(two, what):
    def first_and_second(comm):
        group, took = fresh(), []
        for _ in range(2):
            dist.barrier()
            time.sleep(0.4 * comm.rank)
            begin, x = time.monotonic(), filled(comm, 1)
            if what == "collective":
                work = dist.all_reduce(x, group=group, async_op=True)
            else:
                work = (dist.irecv if comm.rank else dist.isend)(x, 1 - comm.rank, group)
            took.append(time.monotonic() - begin)
            work.wait()
            x.sum().item()
        return took

    first, second = two.run(first_and_second)[0]
    assert first > 0.3 and second < 0.2


def test_an_operation_returns_at_once_and_its_result_is_rubbish_before_it_is_waited_for(two):
    def early(comm):
        x, room = filled(comm, 1), filled(comm, 0)
        dist.all_reduce(filled(comm, 1))  # they have met
        dist.barrier()
        time.sleep(0.4 * comm.rank)
        begin = time.monotonic()
        work = dist.all_reduce(x, async_op=True)
        seen = x.isnan().all().item(), work.is_completed()
        work.wait()
        said, total = time.monotonic() - begin, x.sum().item()
        gathered = torch.zeros(8, device=comm.device)
        dist.all_gather_into_tensor(gathered, room, async_op=True)
        return seen, said, total, time.monotonic() - begin, gathered.isnan().all().item()

    (seen, said, total, late, unwaited), _ = two.run(early)
    assert seen == (True, False) and said < 0.2 and total == 8.0 and late > 0.3 and unwaited


def test_a_room_that_is_still_sent_from_may_be_filled_next_on_the_same_stream(two):
    """Rank 1 takes its time. Rank 0's receive comes behind its send, because its stream does."""

    def there_and_back(comm):
        ball = filled(comm, 5)
        if comm.rank == 0:
            comm.send(ball, 1)
            comm.recv(ball, 1)
        else:
            time.sleep(0.3)
            comm.recv(ball, 0)
            comm.send(ball.add_(1), 0)
        return ball.tolist()

    assert two.run(there_and_back)[0] == [6.0] * 4


def test_who_asks_is_told_when_it_is_over(two):
    def asked(comm):
        dist.all_reduce(filled(comm, 1))
        dist.barrier()
        time.sleep(0.3 * comm.rank)
        x = filled(comm, 1)
        work, begin = dist.all_reduce(x, async_op=True), time.monotonic()
        while not work.is_completed():
            time.sleep(0.001)
        return time.monotonic() - begin, x.sum().item()

    assert [total for _, total in two.run(asked)] == [8.0, 8.0]
    assert two.run(asked)[0][0] > 0.2


def test_what_is_sent_may_not_be_changed_before_it_is_waited_for(two):
    def changed(comm):
        x = filled(comm, 1)
        work = (dist.irecv if comm.rank else dist.isend)(x, 1 - comm.rank)
        if comm.rank == 0:
            x.add_(1)
        work.wait()
        x.sum().item()

    with pytest.raises(hl.RankError, match="rank 0 .*changed, or let go"):
        two.run(changed)


def test_every_collective_is_gloos(two):
    """The same numbers as on the host, operation by operation."""

    def both(comm):
        return [collectives(comm, device) for device in (comm.device, "cpu")]

    for mine, its in two.run(both):
        assert len(mine) == 8 and all(torch.equal(a, b) for a, b in zip(mine, its))


def collectives(comm, device):
    x = (torch.arange(6.0).view(2, 3) + 10 * comm.rank + 1).to(device)
    whole = [comm.all_reduce(x.clone(), op=op) for op in ("sum", "max", "min", "product")]
    cut = [comm.all_gather(x), comm.reduce_scatter(x), comm.all_to_all(x), comm.broadcast(x.clone(), 1)]
    return [one.cpu() for one in (*whole, *cut)]


def test_a_shared_device_has_collectives_by_way_of_the_host(shared):
    with hl.ranks(2) as pool:
        for mine, its in pool.run(lambda comm: [collectives(comm, device) for device in (comm.device, "cpu")]):
            assert len(mine) == 8 and all(torch.equal(a, b) for a, b in zip(mine, its))


def test_a_shared_device_has_no_messages(shared):
    def sent(comm):
        (dist.recv if comm.rank else dist.send)(filled(comm, 1), 1 - comm.rank)

    with hl.ranks(2, timeout=20) as pool, pytest.raises(hl.RankError, match="taken for one of host memory"):
        pool.run(sent)


def test_a_collective_that_is_waited_for_has_no_work_and_is_heard(two):
    """What torch's own code sends is in the ledger here too: it calls by torch's operators."""

    def asked(comm):
        x = filled(comm, 1)
        work = dist.group.WORLD.allreduce([x], at_once(False))
        out = torch.zeros(8, device=comm.device)
        dist.all_gather_into_tensor(out, x)
        dist.broadcast(out, 0)
        return work, out.sum().item(), list(comm.ledger.op)

    def at_once(asked):
        opts = dist.AllreduceOptions()
        opts.asyncOp = asked
        return opts

    heard = ["all_reduce", "all_gather", "broadcast"]
    assert [(work, total, ops[-3:]) for work, total, ops in two.run(asked)] == [(None, 16.0, heard)] * 2


def test_who_listens_keeps_nobody_from_computing(two):
    """Rank 1 comes late to an all-reduce of theirs; rank 0 computes meanwhile, on the stream that launches it."""

    def computed(comm):
        x, y = filled(comm, 1), filled(comm, 0)
        dist.all_reduce(filled(comm, 1))  # they have met
        dist.barrier()
        time.sleep(1.0 * comm.rank)
        work = dist.all_reduce(x, async_op=True)
        time.sleep(0.1)  # a thread that listens would have told the stream to wait by now
        begin = time.monotonic()
        y.add_(1)
        took = time.monotonic() - begin
        work.wait()
        x.sum().item()
        while not all(comm.ledger.end_ns):  # who listens looks again and again
            time.sleep(0.001)
        rows = list(zip(comm.ledger.op, comm.ledger.begin_ns, comm.ledger.end_ns))
        op, start, end = next(row for row in reversed(rows) if row[0] == "all_reduce")
        return took, (end - start) / 1e9

    took, written = two.run(computed)[0]
    assert took < 0.3 and written > 0.8
