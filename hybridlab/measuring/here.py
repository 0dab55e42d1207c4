"""Here: this machine as a `Machine` in the catalog's form, measured with its own ranks, and real runs of plans on it.

The performance model counts 16-bit numbers and we compute with 32 bits, so all byte rates are halved. The two fitted
numbers of the model are found as for the paper's table, but from one microbatch of the full model: from its times with
few and with many sequences, on all ranks at once, as in a real run.

A link is measured as it will be used: with tensor parallelism's two all-reduces, one forward and one backward, after
each of several MLPs (an MLP is half a block). An all-reduce waits for the slower rank, whose MLP took longer, and for
the core that a rank's messages need: one in three takes ten times as long as the others. So one timed sample contains
several of them, as a step does, and the result is the median of these samples. The median of single all-reduces is too
short by half, and minima describe a machine without other load. Messages between stages are measured in a pipeline with
one block on each rank: a message needs no answer, so it costs less than half an all-reduce.

Relatives: `core.what.catalog`, `predict.plans.performance`, `measuring.links`, notebook 41.
"""

from dataclasses import replace
from statistics import median

import torch

from hybridlab.core import afford
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.links import SIZES
from hybridlab.measuring.timed import now
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.performance import Fit, pieces, step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import MEGATRON_2021, Software
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gpt import GPT, Block, token_loss
from hybridlab.world.processes.launch import foresee, ranks
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.typed import all_reduce, enter

FEW, MANY, REPEATS = 1, 8, 24  # sequences in a microbatch; repetitions of each measurement
HALVES, MICROBATCHES = 8, 16  # MLPs in a row, each with its all-reduces; microbatches of one sequence in a pipeline
CORE, GPU = (256, 1 << 24), (4096, 1 << 28)  # side of the matrices that are multiplied; bytes that are copied
AS_MEASURED = {"dtype": "float32", "optimizer": "sgd"}
HALF = 2  # our numbers are twice as long as those of the model
OURS = MEGATRON_2021._replace(ends=True)  # it waits for every all-reduce, even for those outside of blocks
GIB = 2**30


def here(shape: Shape, count: int = 2) -> tuple[Machine, Fit, Software]:
    """Three values to plan for this machine: the machine, as a node of `count` ranks; the fit that reproduces the time
    of a microbatch on it; the terms of our runtime.

    In these terms, messages are sent ahead. Collectives outside of blocks count, because they matter in small models.

    shape  of the model
    count  ranks

    >>> kind, fit, software = here(Shape(layers=2, width=16, context=16))  # doctest: +SKIP
    >>> kind.node, kind.peak  # doctest: +SKIP
    (2, 41500000000.0)
    """
    foresee(
        __name__
    )  # otherwise the ranks' parent would import modules at the same time, and the times would be too long
    with ranks(count) as pool:
        found = pool.run(_rates, shape)
        sums = pool.run(_sums_between, shape)[0]
    link = Link.fit("all_reduce", count, SIZES, sums)
    rooms, *rates = zip(*found)
    peak, copied = map(min, rates[:2])  # the slower rank counts
    few, many = map(max, rates[2:])
    said = {name: f"measured between {count} ranks, one thread each" for name in ("peak", "bandwidth", "inside")}
    kind = Machine(
        "here", f"this machine, {count} ranks", count, peak, min(rooms), copied / HALF, 1 / link.beta / HALF,
        1 / link.beta / HALF, (link.alpha, link.alpha), said | {"memory": "what is free now, shared out"},
    )  # fmt: skip
    fit, one, short = calibrated(shape, kind, few, many), Plan(p=count), replace(shape, layers=count)
    (took,) = in_turns([one], short, MICROBATCHES, 2 * REPEATS)
    return kind, fit, OURS._replace(messages=hidden(short, one, MICROBATCHES, kind, fit, median(took)))


def calibrated(shape: Shape, kind: Machine, few: float, many: float) -> Fit:
    """The fit with which a model's forward and backward take this number of seconds, for FEW and for MANY sequences.

    Both fractions are the same number, since a model's time alone does not separate them. All time that does not grow
    with the number of sequences counts for the blocks, even that of embedding, head and loss.

    >>> from hybridlab.core.what.catalog import machine
    >>> fit = calibrated(Shape(layers=4), machine("a100"), few=4e-3 + 1e-4, many=4e-3 + 8e-4)
    >>> round(fit.launch * 3 / 4, 6)
    0.001
    """
    each = max(many - few, 1e-9) / (MANY - FEW)
    ideal = _seconds(shape, kind, Fit(1, 1, 0))
    return Fit(ideal / each, ideal / each, max(few - FEW * each, 0) / shape.layers * 4 / 3)


def _seconds(shape, kind, fit) -> float:
    """The predicted seconds of the model's forward and backward for one sequence."""
    one = pieces(shape, Plan(), 1, kind, fit)
    return float(shape.layers * (sum(one.forward) + sum(one.backward)) + one.head)


def hidden(shape: Shape, plan: Plan, batch: int, kind: Machine, fit: Fit, took: float) -> float:
    """The hidden fraction of messages, from the seconds of a pipeline."""
    of_share = lambda share: step(shape, plan, batch, kind, fit, OURS._replace(messages=share)).total
    most, least = of_share(0), of_share(1)
    return float((most - took) / (most - least))


def _rates(comm, shape) -> tuple[float, float, float, float, float]:
    """Measured on all ranks at the same time: a rank's part of the free memory, in bytes; FLOP/s of a matmul; bytes per
    second of a copy; seconds of the model's forward and backward for FEW and for MANY."""
    device, room = comm.device, free(comm)
    side, copied = GPU if device.type == "cuda" else CORE
    a, b = torch.randn(2, side, side, device=device)
    source = torch.zeros(copied, dtype=torch.uint8, device=device)
    target, model = torch.empty_like(source), GPT(shape).to(device)
    works = [lambda: a @ b, lambda: target.copy_(source), *(_microbatch(model, shape, n) for n in (FEW, MANY))]
    product, copy, few, many = map(median, zip(*(_once_each(comm, works) for _ in range(REPEATS + 3))))
    return room, 2 * side**3 / product, 2 * copied / copy, few, many


def _microbatch(model, shape, sequences):
    """A function that runs forward and backward of one microbatch."""
    device = next(model.parameters()).device
    tokens = torch.zeros(sequences, shape.context, dtype=torch.long, device=device)
    return lambda: token_loss(model(tokens), tokens).backward()


def _sums_between(comm, shape) -> list[float]:
    """The seconds that an all_reduce of each size adds to an MLP, on the slowest rank: at least a microsecond."""
    comm, works = Comm(Mesh(tp=comm.size), comm.rank, placed=comm.placed), []
    blocks = [Block(replace(shape, heads=0)).to(comm.device) for _ in range(HALVES)]
    pair = lambda y: all_reduce(comm, enter(comm, y, "tp"), "tp", to="I")
    for size in SIZES:
        y = torch.zeros(size // 4, device=comm.device, requires_grad=True)
        works += [_blocks_beside(blocks, shape, y, moved) for moved in (lambda y: y, pair)]
    rounds = [_once_each(comm, works) for _ in range(REPEATS + 3)]
    slowest = comm.all_reduce(torch.tensor(rounds, dtype=torch.float64), op="max")
    times = [median(one) for one in slowest.T.tolist()]
    return [max((both - alone) / (2 * HALVES), 1e-6) for alone, both in zip(times[::2], times[1::2])]


def _blocks_beside(blocks, shape, y, moved):
    """A function that runs forward and backward of the blocks, for FEW sequences; after each block, `moved`
    communicates y.
    """
    x = torch.randn(FEW, shape.context, shape.width, device=y.device, requires_grad=True)

    def work():
        out, beside = x, y
        for block in blocks:
            out, beside = block(out), moved(beside)
        (out.sum() + beside.sum()).backward()

    return work


def free(comm) -> float:
    """Free bytes of memory on a rank's device, divided by the number of ranks on it."""
    on_it = comm.placed.devices.count(str(comm.device)) if comm.placed.shared else 1
    if comm.device.type == "cuda":
        return torch.cuda.mem_get_info(comm.device)[0] / on_it
    return min(afford.memory() or (4 * GIB,)) / comm.size


def _once_each(comm, works) -> list[float]:
    """The time of each piece of work, while all ranks do it."""
    times = []
    for work in works:
        comm.barrier()
        begin = now(comm.device)
        work()
        times.append(now(comm.device) - begin)
    return times


def in_turns(plans: list[Plan], shape: Shape, batch: int, rounds: int = 5) -> list[list[float]]:
    """times[plan][round]: the seconds that a training step takes, for plans with the same number of ranks.

    The plans alternate, so that other load on the machine affects all of them. The slower rank counts.

    plans   to compare
    shape   of the model
    batch   sequences in the global batch
    rounds  measured steps of each plan
    """
    (count,) = {plan.devices for plan in plans}
    jobs = [job_of(**job_of_plan(plan, shape, batch) | AS_MEASURED) for plan in plans]
    with ranks(count) as pool:
        return pool.run(_turns, jobs, rounds)[0]


def _turns(comm, jobs, rounds):
    trainers = [Trainer(Comm(job.mesh, comm.rank, placed=comm.placed), job) for job in jobs]
    times = [[] for _ in jobs]
    for number in range(rounds + 2):
        for trainer, mine in zip(trainers, times):
            comm.barrier()
            begin = now(comm.device)
            trainer.step(number)
            taken = torch.tensor([now(comm.device) - begin], dtype=torch.float64)
            mine.append(comm.all_reduce(taken, op="max").item())
    return [mine[2:] for mine in times]
