"""Notebook 30 on real ranks: f and g tested, messages and activations counted, times measured, and one sabotage.

All counts are of the ranks' operations and memory, never of formulas; the formulas are shown next to them.
"""

import gc
import time
from typing import NamedTuple

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.labs.megatron import pair
from hybridlab.labs.megatron.sizes import layout_of

PATIENCE = 20  # times 10 ms
SMALL = Shape(width=16, heads=2, context=8)
LARGE = Shape(layers=2, width=256, heads=8, context=128)  # large enough that the computation takes measurable time


def tried(comm, f, g) -> dict:
    """Two matrices, A cut by columns and B by rows, with f(x, comm) before them and g(z, comm) after them.

    returns  {"Z", "x", "A", "B": the largest relative difference from one process: of the output and three gradients;
             "sums": the number of all-reduces, in the forward and in the backward}
    """
    import torch

    layout = pair.layout_of(SMALL, comm.size)
    x, target, weights = pair.drawn(layout, SMALL.context)
    whole = torch.nn.functional.gelu(x @ weights[pair.A].T) @ weights[pair.B].T
    whole.backward(target)
    boxes = {name: layout.box(name, comm.rank) for name in weights}
    mine = {name: weights[name].detach()[box].clone().requires_grad_() for name, box in boxes.items()}
    its_x = x.detach().clone().requires_grad_()
    z = g(torch.nn.functional.gelu(f(its_x, comm) @ mine[pair.A].T) @ mine[pair.B].T, comm)
    forward = comm.ledger.total("all_reduce")[0]
    z.backward(target)
    gaps = {"Z": pair.gap(whole.detach(), z.detach()), "x": pair.gap(x.grad, its_x.grad)}
    for letter, name in (("A", pair.A), ("B", pair.B)):
        gaps[letter] = pair.gap(weights[name].grad[boxes[name]], mine[name].grad)
    return gaps | {"sums": (forward, comm.ledger.total("all_reduce")[0] - forward)}


def f(x, comm):
    """The package's f."""
    from hybridlab.world.talk import typed

    return typed.enter(comm, x, None)


def g(z, comm):
    """The package's g."""
    from hybridlab.world.talk import typed

    return typed.all_reduce(comm, z, None, to="I")


def forget_the_sum_of_f():
    """A sabotage for hl.check: the backward of f passes the gradient on without a sum."""
    from hybridlab.world.talk import typed

    right = typed.conjugate
    typed.conjugate = lambda arrow: arrow if arrow == "I->R" else right(arrow)


# --- counted ------------------------------------------------------------------------------------------------------


def counted(shape: Shape, ways: int, sequence: bool = False) -> dict[tuple[str, str], int]:
    """{(what, when): elements} in one rank's ledger along tp after forward and backward of one sequence.

    The words are those of `predict.bytes.traffic.tensor`; hooks report the running module.
    """
    with hl.ranks(hl.Mesh(tp=ways)) as pool:
        return pool.run(_counted, shape, sequence)[0]


def _counted(comm, shape, sequence):
    import torch

    from hybridlab.modes.tensor_parallel import token_loss

    model, terms, at = _split(comm, shape, sequence), {}, {"row": 0, "where": "", "when": "forward", "said": set()}

    def moved_on(where, when):
        """Assign the messages since the last call, and record the module that runs now."""
        for row in comm.ledger.rows()[at["row"] :]:
            again = at["when"] == "backward" and row["op"] == "all_gather" and row["source"] not in at["said"]
            key = at["where"], "again" if again else at["when"]
            terms[key] = terms.get(key, 0) + row["bytes"] // 4
            at["said"] |= {row["source"]} if at["when"] == "forward" else set()
        at.update(row=len(comm.ledger), where=where, when=when)

    for name, module in [
        ("embedding", model.embed),
        *(("blocks", block) for block in model.blocks),
        ("head", model.head),
    ]:
        back = lambda gradient, name=name: moved_on(name, "backward")
        module.register_forward_pre_hook(lambda *_, name=name: moved_on(name, "forward"))
        module.register_forward_hook(lambda module, came, made, back=back: made.register_hook(back) and None)
    tokens = torch.zeros(1, shape.context, dtype=torch.long)
    scores = model(tokens)
    moved_on("loss", "forward")
    loss = token_loss(comm, shape.vocabulary)(scores, tokens)
    moved_on("loss", "backward")
    loss.backward()
    moved_on("", "")
    return {key: elements for key, elements in terms.items() if elements}


def _split(comm, shape, sequence=False):
    """This rank's part of a model."""
    from hybridlab.modes.tensor_parallel import split
    from hybridlab.training.models.gpt import GPT

    model = GPT(shape)
    if comm.size > 1:
        split(model, comm, layout_of(shape, comm.size, sequence), shape.context if sequence else None)
    return model


def left_behind(shape: Shape, ways: int, sequence: bool = False) -> int:
    """Numbers, other than weights, that one block's forward keeps in memory for its backward.

    Every new tensor is watched, and those that remain afterwards are counted: with the input of the block, but without
    its output.
    """
    with hl.ranks(hl.Mesh(tp=ways)) as pool:
        return pool.run(_left_behind, shape, sequence)[0]


def _left_behind(comm, shape, sequence):
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode

    from hybridlab.modes.parts.sequence_parallel import part_sizes

    made = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            for one in out if isinstance(out, tuple | list) else [out]:
                if isinstance(one, torch.Tensor):
                    storage = one.untyped_storage()
                    made.append((StorageWeakRef(storage), storage.data_ptr(), storage.nbytes()))
            return out

    model = _split(comm, shape, sequence)
    positions = part_sizes(shape.context, comm)[comm.rank] if sequence else shape.context
    x = torch.randn(1, positions, shape.width, requires_grad=True)
    old = {weight.untyped_storage().data_ptr() for weight in [x, *model.parameters()]}
    with Watch():
        y = model.blocks[0](x)
    old.add(y.untyped_storage().data_ptr())
    gc.collect()
    return min(_alive(made, old) for _ in range(PATIENCE)) + x.nbytes // 4


def _alive(made, old) -> int:
    """The number of elements in memory that was allocated and remains; gloo's threads free theirs a moment later."""
    time.sleep(0.01)
    there = {place: size for storage, place, size in made if not storage.expired() and place not in old}
    return sum(there.values()) // 4


# --- measured -----------------------------------------------------------------------------------------------------


class Shares(NamedTuple):
    """The seconds of a step that rank 0 spends computing, and in collectives along tp, waiting included.

    work  processor time of the computing thread: other programs on this machine do not lengthen it
    sums  (operation, bytes) of each collective
    """

    computing: float
    collectives: float
    work: float
    sums: list[tuple[str, int]]


def shares(ways: int, shape: Shape = LARGE, sequences: int = 2, steps: int = 4) -> Shares:
    """The fastest of some real training steps on ranks along tp, after one that is not measured."""
    with hl.ranks(hl.Mesh(tp=ways)) as pool:
        return Shares(*pool.run(_shares, shape, sequences, steps)[0])


def _shares(comm, shape, sequences, steps):
    from hybridlab.measuring.timed import now
    from hybridlab.training.loop import Trainer
    from hybridlab.training.make_job import job_of

    trainer, found = Trainer(comm, job_of(comm.mesh, microbatches=1, batch=sequences, shape=shape)), []
    for step in range(steps + 1):
        comm.barrier()
        begin, work, row = now(comm.device), time.thread_time(), len(comm.ledger)
        trainer.step(step)
        length, work = now(comm.device) - begin, time.thread_time() - work
        rows = [one for one in comm.ledger.rows()[row:] if one["axis"] == "tp" and one["group"] > 1]
        collectives = sum(one["end_ns"] - one["begin_ns"] for one in rows) / 1e9
        found.append(Shares(length - collectives, collectives, work, [(one["op"], one["bytes"]) for one in rows]))
    return min(found[1:], key=lambda one: one.computing + one.collectives)


def narrowed(rows: int, width: int) -> list[tuple[int, float, float]]:
    """(t, FLOP for each byte moved, FLOP/s measured on one rank) of x·A, when A is cut by columns for t ranks."""
    with hl.ranks(1) as pool:
        rates = pool.run(_rates, rows, width)[0]
    moved = lambda t: 4 * (rows * width + 4 * width * width / t + 4 * rows * width / t)
    return [(t, 8 * rows * width * width / t / moved(t), rate) for t, rate in rates]


def _rates(comm, rows, width):
    import torch

    from hybridlab.measuring.timed import now

    found, device = [], comm.device
    for t in (1, 2, 4, 8):
        x, columns = torch.randn(rows, width, device=device), torch.randn(width, 4 * width // t, device=device)
        room, times = torch.zeros(rows, 4 * width // t, device=device), []
        for _ in range(20):
            begin = now(device)
            torch.mm(x, columns, out=room)
            times.append(now(device) - begin)
        found.append((t, 8 * rows * width * width / t / min(times)))
    return found


def foreseen(alone: Shares, pool, measured: Shares) -> Shares:
    """The step of `shares`, predicted by two rules: compute is divided evenly, and a collective takes the time given by
    alpha and beta.

    alone  the times on one rank;  pool  the ranks, between which the all-reduce is timed now
    """
    from hybridlab.measuring.links import measured_link

    link, _ = measured_link(pool, "all_reduce", sizes=(1 << 12, 1 << 15, 1 << 18, 1 << 20), repeats=9)
    collectives = sum(link.seconds(op, pool.size, size) for op, size in measured.sums)
    return Shares(alone.computing / pool.size, collectives, alone.work / pool.size, measured.sums)
