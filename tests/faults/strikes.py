"""What goes wrong: one function per fault of the table, each run on every rank. The rank that is hit is `HIT`."""

import ctypes
import os
import signal
import sys
import time

import torch

from hybridlab.world.talk import typed

HIT, STEP = 2, 2
KEPT = []


def now(comm):
    """Tell the kernel the moment of the fault."""
    comm.emit(fault=time.monotonic())


# ---- what a rank does when a fault strikes it: data parallel, pipeline, tensor parallel


def data_parallel(comm, strike):
    for step in range(4):
        gradient = torch.ones(1000)
        strike(step)
        comm.all_reduce(gradient)


def pipeline(comm, strike):
    for step in range(4):
        x = torch.ones(1000)
        if comm.rank > 0:
            comm.recv(x, comm.rank - 1)
        strike(step)
        if comm.rank < comm.size - 1:
            comm.send(x, comm.rank + 1)


def tensor_parallel(comm, strike):
    for step in range(4):
        x = torch.ones(10, requires_grad=True)
        inside = typed.enter(comm, x, None)
        inside.register_hook(lambda gradient, step=step: strike(step))
        typed.all_reduce(comm, inside * 2, None, to="I").sum().backward()


WORK = {"data parallel": data_parallel, "pipeline": pipeline, "tensor parallel": tensor_parallel}


def during(comm, work, fault, hit=(HIT,)):
    """Do this work; in step `STEP` the fault strikes these ranks."""

    def strike(step):
        if step == STEP and comm.rank in hit:
            now(comm)
            fault(comm)

    WORK[work](comm, strike)


# ---- a rank fails, dies, stops


def raise_error(comm):
    raise ValueError("a wrong shape")


def raise_by_rank(comm):
    time.sleep(0.02 * comm.rank)
    raise ValueError("on one") if comm.rank == 1 else KeyError("on another")


def optimizer_error(comm):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: raise_error(comm))
    optimizer.step()


def out_of_memory(comm):
    torch.empty(2**50)


def no_room(comm):
    bytearray(2**60)


def name_error(comm):
    undefined_here  # noqa: F821  the fault is that nobody defines it


def kill(comm):
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(comm):
    ctypes.string_at(0)


def abort(comm):
    os.abort()


def leave_quietly(comm):
    sys.exit(0)


def leave_with_three(comm):
    sys.exit(3)


def vanish(comm):
    os._exit(0)


def stop(comm):
    os.kill(os.getpid(), signal.SIGSTOP)


def sleep(comm):
    time.sleep(600)


def spin(comm):
    while True:
        pass


def hold_the_lock(comm):
    ctypes.PyDLL(None).sleep(600)  # PyDLL, unlike CDLL, keeps Python's lock


def ask(comm):
    input("how many? ")


def debug(comm):
    breakpoint()


# ---- messages that do not fit


def both_receive(comm):
    now(comm)
    if comm.rank < 2:
        comm.recv(torch.ones(8), 1 - comm.rank)


def ring_of_receives(comm):
    now(comm)
    if comm.rank < 3:
        comm.recv(torch.ones(8), (comm.rank + 1) % 3)


def both_send(comm):
    now(comm)
    if comm.rank < 2:
        comm.send(torch.ones(2**20), 1 - comm.rank)


def _message(comm, sent, received, tags=(0, 0)):
    now(comm)
    if comm.rank == 0:
        comm.send(sent, 1, tag=tags[0])
    if comm.rank == 1:
        comm.recv(received, 0, tag=tags[1])
    comm.barrier()


def wrong_tag(comm):
    _message(comm, torch.ones(8), torch.ones(8), tags=(1, 2))


def message_too_short(comm):
    _message(comm, torch.ones(8), torch.ones(16))


def message_too_long(comm):
    _message(comm, torch.ones(16), torch.ones(8))


def message_dtype(comm):
    _message(comm, torch.ones(8), torch.ones(8, dtype=torch.int32))


def never_received(comm):
    now(comm)
    if comm.rank == 0:
        comm.isend(torch.ones(8), 1)


def wrong_peer(comm):
    now(comm)
    comm.send(torch.ones(1), comm.rank)


def changed_on_the_way(comm):
    x = torch.ones(8)
    if comm.rank == 0:
        message = comm.isend(x, 1)
        x.add_(1)
        message.wait()
    if comm.rank == 1:
        comm.recv(x, 0)


def its_neighbour_changed(comm):
    """One storage, two parts: the one that is on its way stays, the other one may be written."""
    x = torch.ones(1000)
    leaving, other = x.tensor_split(2)
    if comm.rank == 0:
        message = comm.isend(leaving, 1)
        other += 1
        message.wait()
    if comm.rank == 1:
        coming = comm.irecv(leaving, 0)
        other += 1
        coming.wait()


def a_part_changed(comm):
    x = torch.ones(1000)
    if comm.rank == 0:
        message = comm.isend(x[:500], 1)
        x[0] += 1
        message.wait()
    if comm.rank == 1:
        comm.recv(x[:500], 0)


def a_number_of_a_tensor(comm):
    x = torch.arange(4.0)
    if comm.rank == 0:
        comm.isend(x[3], 1).wait()
    if comm.rank == 1:
        return float(comm.recv(torch.zeros(()), 0))


def the_last_runs_is_let_go(comm):
    """While another message has the row that it had."""
    x = torch.ones(8)
    if comm.rank == 0:
        message = comm.isend(x, 1)
        KEPT.clear()
        message.wait()
    if comm.rank == 1:
        comm.recv(x, 0)


def never_waited(comm):
    x = torch.ones(8)
    if comm.rank == 0:
        KEPT.append(comm.isend(x, 1))
    if comm.rank == 1:
        comm.recv(x, 0)


def dropped(comm):
    """A message that nobody holds any more is taken back, if it has not left."""
    if comm.rank == 0:
        comm.isend(torch.ones(8), 1)
    if comm.rank == 1:
        time.sleep(0.3)
        comm.recv(torch.ones(8), 0)


def drops_many(comm):
    for tag in range(3):
        comm.isend(torch.ones(8), 1 - comm.rank, tag=tag)


def keeps_and_fails(comm):
    _kept = [comm.isend(torch.ones(8), 1 - comm.rank, tag=tag) for tag in range(3)]
    raise ValueError("of its own")


# ---- meetings that do not fit


def other_collective(comm):
    x = torch.ones(2**20)
    now(comm)
    comm.all_gather(x) if comm.rank == HIT else comm.all_reduce(x)


def shape_large(comm):
    now(comm)
    comm.all_reduce(torch.ones(2**19 if comm.rank == HIT else 2**20))


def shape_small(comm):
    now(comm)
    comm.all_reduce(torch.ones(4 if comm.rank == HIT else 8))


def empty_tensor(comm):
    now(comm)
    comm.all_reduce(torch.ones(0 if comm.rank == HIT else 8))


def other_dtype(comm):
    now(comm)
    comm.all_reduce(torch.ones(8, dtype=torch.float64 if comm.rank == HIT else torch.float32))


def other_reduction(comm):
    now(comm)
    comm.all_reduce(torch.ones(8), op="max" if comm.rank == HIT else "sum")


def other_root(comm):
    now(comm)
    comm.broadcast(torch.ones(8), source=1 if comm.rank == HIT else 0)


def other_order(comm):
    a, b = torch.ones(8), torch.zeros(8)
    now(comm)
    if comm.rank == HIT:
        comm.all_reduce(b)
        comm.all_reduce(a)
    else:
        comm.all_reduce(a)
        comm.all_reduce(b)


def one_skips(comm):
    now(comm)
    if comm.rank == 0:
        comm.all_reduce(torch.ones(8))


def one_step_more(comm):
    for _ in range(4 if comm.rank == HIT else 3):
        comm.all_reduce(torch.ones(8))
    now(comm)


def uneven_batches(comm):
    for batch in torch.ones(10, 4).tensor_split(comm.size)[comm.rank]:
        comm.all_reduce(batch)
    now(comm)


def group_on_some(comm):
    now(comm)
    if comm.rank != HIT:
        comm.open((0, 1, 3))
    comm.barrier()


def two_groups_in_two_orders(comm):
    now(comm)
    for axis in ("dp", "pp") if comm.rank in (0, 3) else ("pp", "dp"):
        comm.all_reduce(torch.ones(8), axis)
