"""The answers of the GPU suite: the work of one rank for one question. It runs as a separate process, see `gpu_suite`.

An answer is a function of a `Rank`. Most of them call torch.distributed directly, since the questions are about torch;
`ours` uses our own `comm`.
"""

import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.gpu_rank import Rank
from hybridlab.world.devices.placement import Placement
from hybridlab.world.talk.comm import Comm

KIB, MIB = 1 << 10, 1 << 20


def alone(rank: Rank):
    begin = time.perf_counter()
    torch.zeros(1, device=rank.device)
    rank.wait()
    rank.tell("first use of the device", unit="s", value=round(time.perf_counter() - begin, 3))
    if rank.device.type == "cuda":
        free, everything = torch.cuda.mem_get_info(rank.device)
        rank.tell("memory in use with one idle rank", unit="bytes", value=everything - free)
        rank.tell("multiprocessors", value=torch.cuda.get_device_properties(rank.device).multi_processor_count)


def ours(rank: Rank):
    rank.meet()
    comm = Comm(Mesh(world=rank.count), rank.rank, placed=rank.placed)
    total = rank.count * (rank.count + 1) / 2
    each = torch.arange(1.0, rank.count + 1).repeat_interleave(2)
    rank.right("all_reduce", comm.all_reduce(rank.numbers(4)), torch.full((4,), total))
    rank.right("all_gather", comm.all_gather(rank.numbers(2)), each)
    rank.right("reduce_scatter", comm.reduce_scatter(rank.numbers(2 * rank.count)), torch.full((2,), total))
    rank.right("all_to_all", comm.all_to_all(rank.numbers(2 * rank.count)), each)
    rank.right("broadcast", comm.broadcast(rank.numbers(4)), torch.ones(4))
    around = torch.empty(4, device=rank.device)
    right, left = (rank.rank + 1) % rank.count, (rank.rank - 1) % rank.count
    arriving, leaving = comm.irecv(around, left), comm.isend(rank.numbers(4), right)
    arriving.wait(), leaving.wait()
    rank.right("a message round the ring", around, torch.full((4,), left + 1.0))
    for size in (4 * KIB, MIB, 16 * MIB):
        x, y = rank.numbers(size // 4), rank.numbers(size // 4)
        rank.timed("all_reduce", lambda x=x: comm.all_reduce(x), bytes=size)
        rank.timed("there and back", lambda x=x, y=y: _there_and_back(rank, comm, x, y), bytes=size)


def _there_and_back(rank: Rank, by, x, y):
    """Send a message from rank 0 to rank 1, and one back; `by` sends and receives: our `comm`, or torch."""
    if rank.rank == 0:
        by.send(x, 1)
        by.recv(y, 1)
    elif rank.rank == 1:
        by.recv(y, 0)
        by.send(x, 0)


def first(rank: Rank):
    rank.meet()
    x = rank.numbers(4)
    begin = time.perf_counter()
    dist.all_reduce(x)
    rank.wait()
    rank.tell("first all_reduce", unit="s", value=round(time.perf_counter() - begin, 3))
    rank.right("all_reduce", x, torch.full((4,), rank.count * (rank.count + 1) / 2))


def sizes(rank: Rank):
    first(rank)
    for size in (4 * KIB, MIB, 16 * MIB):
        x = rank.numbers(size // 4)
        rank.timed("all_reduce", lambda x=x: dist.all_reduce(x), bytes=size)


def everything(rank: Rank):
    sizes(rank)
    _collectives(rank)
    _messages(rank)
    _bit_equal(rank)


def collectives(rank: Rank):
    rank.meet()
    _collectives(rank)
    for size in (4 * KIB, MIB, 64 * MIB):
        x = rank.numbers(size // 4)
        rank.timed("all_reduce", lambda x=x: dist.all_reduce(x), bytes=size)


def messages(rank: Rank):
    rank.meet()
    _messages(rank)


def _collectives(rank: Rank):
    """Run each of torch's collectives once; if one raises an error, this is recorded, and the next one runs."""
    count, n = rank.count, 4 * rank.count
    total = count * (count + 1) / 2
    in_turn = torch.arange(1.0, count + 1)

    def all_reduce(op, expected):
        x = rank.numbers(n)
        dist.all_reduce(x, op)
        return x, torch.full((n,), expected)

    def gathered():
        out = torch.empty(count * n, device=rank.device)
        dist.all_gather_into_tensor(out, rank.numbers(n))
        return out, in_turn.repeat_interleave(n)

    def scattered(op, expected):
        out = torch.empty(4, device=rank.device)
        dist.reduce_scatter_tensor(out, rank.numbers(n), op)
        return out, torch.full((4,), expected)

    def exchanged():
        out = torch.empty(n, device=rank.device)
        dist.all_to_all_single(out, rank.numbers(n))
        return out, in_turn.repeat_interleave(4)

    def broadcast():
        x = rank.numbers(n)
        dist.broadcast(x, 0)
        return x, torch.ones(n)

    for what, run in {
        "all_reduce sum": lambda: all_reduce(dist.ReduceOp.SUM, total),
        "all_reduce max": lambda: all_reduce(dist.ReduceOp.MAX, float(count)),
        "all_reduce avg": lambda: all_reduce(dist.ReduceOp.AVG, total / count),
        "broadcast": broadcast,
        "all_gather": gathered,
        "reduce_scatter sum": lambda: scattered(dist.ReduceOp.SUM, total),
        "reduce_scatter max": lambda: scattered(dist.ReduceOp.MAX, float(count)),
        "all_to_all": exchanged,
    }.items():
        try:
            rank.right(what, *run())
        except RuntimeError as error:
            rank.tell(what, refuses=str(error).partition("\n")[0][:120])


def _messages(rank: Rank):
    for size in (4 * KIB, MIB, 16 * MIB):
        x, y = rank.numbers(size // 4), torch.zeros(size // 4, device=rank.device)
        rank.timed("there and back", lambda x=x, y=y: _there_and_back(rank, dist, x, y), bytes=size)
        rank.right(f"a message of {size} bytes", y, torch.full_like(y, 2.0))


def _bit_equal(rank: Rank):
    """Whether the same all-reduce in bfloat16 gives the same bits four times."""
    dice = torch.Generator(rank.device).manual_seed(rank.rank)
    x = torch.randn(1 << 16, device=rank.device, generator=dice).bfloat16()
    sums = [x.clone() for _ in range(4)]
    for one in sums:
        dist.all_reduce(one)
    rank.tell("bfloat16 sums bit-equal in 4 runs", right=all(torch.equal(sums[0], one) for one in sums))


def reduce_scatter_list(rank: Rank):
    rank.meet()
    out = torch.zeros(4, device=rank.device)
    dist.reduce_scatter(out, [rank.numbers(4) for _ in range(rank.count)])
    rank.right("reduce_scatter of a list", out, torch.full((4,), rank.count * (rank.count + 1) / 2))


def coalesced(rank: Rank):
    rank.meet()
    out = torch.zeros(4 * rank.count, device=rank.device)
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(out, rank.numbers(4))
    rank.right("coalesced all_gather", out, torch.arange(1.0, rank.count + 1).repeat_interleave(4))


def overlap(rank: Rank):
    """Overlap as in data parallelism: all-reduces start during matmuls."""
    rank.meet()
    matrix = torch.randn(4096, 4096, device=rank.device, dtype=torch.bfloat16)
    gradients = [torch.ones(MIB // 4, device=rank.device) for _ in range(4)]

    def multiply(times=4):
        for _ in range(times):
            torch.mm(matrix, matrix)

    def step():
        started = []
        for gradient in gradients:
            multiply()
            started.append(dist.all_reduce(gradient, async_op=True))
        for one in started:
            one.wait()

    rank.timed("16 products of 4096², every rank at once", lambda: multiply(16), repeats=8)
    rank.timed("the same with 4 sums of 1 MiB on the way", step, repeats=8)


def lost_peer(rank: Rank):
    rank.meet()
    x = rank.numbers(MIB // 4)
    dist.all_reduce(x)
    rank.wait()
    if rank.rank == rank.count - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.perf_counter()
    try:
        for _ in range(1000):
            dist.all_reduce(x)
            rank.wait()
        rank.tell("a killed rank", noticed=False)
    except RuntimeError as error:
        took = round(time.perf_counter() - begin, 2)
        rank.tell("a killed rank", noticed=True, unit="s", value=took, by=str(error).partition("\n")[0][:120])


def peer_memory(rank: Rank):
    """CUDA IPC: each rank maps the memory of the others, and copies from it. Barriers of gloo determine when it may do
    so.
    """
    rank.meet()
    mine = rank.numbers(64 * MIB // 4)
    rank.wait()
    theirs = {peer: _mapped(rank, mine, peer) for peer in range(rank.count) if peer != rank.rank}
    right = all(bool((x[:1024] == peer + 1).all()) for peer, x in theirs.items())
    rank.tell("memory of every peer", right=right)
    beside = theirs[(rank.rank + 1) % rank.count]
    for size in (4 * KIB, MIB, 64 * MIB):
        out, source = torch.empty(size // 4, device=rank.device), beside[: size // 4]
        rank.timed("copy from a peer, all at once", lambda out=out, source=source: out.copy_(source), bytes=size)
    out, source = torch.empty(MIB, device=rank.device), beside[:MIB]

    def exchange():
        dist.barrier()
        out.copy_(source)
        rank.wait()
        dist.barrier()

    rank.timed("an exchange with both barriers", exchange, bytes=4 * MIB)


def _mapped(rank: Rank, mine, peer: int):
    """The memory of a peer; its handle consists of plain values, which are sent as text through the store."""
    lead = mine.untyped_storage()._share_cuda_()  # one for each peer: torch counts the readers
    text = json.dumps([{"bytes": value.hex()} if isinstance(value, bytes) else value for value in lead])
    rank.store.set(f"memory {rank.rank} for {peer}", text)
    values = json.loads(rank.store.get(f"memory {peer} for {rank.rank}"))
    lead = [bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value for value in values]
    storage = torch.UntypedStorage._new_shared_cuda(*lead)
    return torch.empty(0, dtype=mine.dtype, device=rank.device).set_(storage, 0, mine.shape)


def symmetric(rank: Rank):
    import torch.distributed._symmetric_memory as symmetric_memory

    rank.meet()
    x = symmetric_memory.empty(MIB // 4, device=rank.device, dtype=torch.float32)
    x.fill_(rank.rank + 1.0)
    rank.wait()
    shared = symmetric_memory.rendezvous(x, dist.group.WORLD)
    dist.barrier()
    peer = (rank.rank + 1) % rank.count
    rank.right("memory of the peer", shared.get_buffer(peer, (1024,), torch.float32), torch.full((1024,), peer + 1.0))
    rank.timed("barrier on the GPU", lambda: shared.barrier(channel=0), repeats=20)


def main(answer: str, rank: str, devices: str, backend: str, folder: str):
    """Give one answer, and exit immediately: an interpreter that shuts down can hang in a library."""
    devices = tuple(json.loads(devices))
    me = Rank(int(rank), Placement(backend, devices, len(set(devices)) < len(devices), ""), folder)
    code = 0
    try:
        ANSWERS[answer](me)
        me.wait()
    except Exception as error:
        me.fail(error)
        code = 1
    os._exit(code)


ANSWERS = {
    one.__name__: one
    for one in (
        alone, ours, first, sizes, everything, collectives, messages, reduce_scatter_list, coalesced, overlap,
        lost_peer, peer_memory, symmetric,
    )
}  # fmt: skip

if __name__ == "__main__":
    main(*sys.argv[1:])
