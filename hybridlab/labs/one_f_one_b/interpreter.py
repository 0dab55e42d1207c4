"""Notebook 12: a short interpreter of schedules, and its gradients beside those of the package's engine.

`interpret` executes forwards and backwards of any schedule in which neighbouring stages are on different ranks.
"""

from types import SimpleNamespace

import torch

import hybridlab as hl
from hybridlab.core.where.layout import Layout, Param
from hybridlab.labs.engine import toy
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.runtime.player import Player
from hybridlab.runtime.work import Ends, ModelWork
from hybridlab.scheduling.lower import lower

PLAYED = (  # name, and sizes
    ("naive", {"ranks": 3, "microbatches": 4}),
    ("gpipe", {"ranks": 3, "microbatches": 4}),
    ("1f1b", {"ranks": 3, "microbatches": 4}),
    ("interleaved", {"ranks": 3, "microbatches": 6, "chunks": 2}),
)


def interpret(comm, schedule, stages, data, loss):
    rank_of, last, m = schedule.place, schedule.stages - 1, len(data)
    kept, sent = {}, []
    for action in schedule.program[comm.rank]:
        s, k = action.stage, action.microbatch
        tag = 2 * (s * m + k)  # of the activation into this stage; of the gradient into it: one more
        if action.kind == "F":
            x, target = data[k]
            if s > 0:
                x = comm.recv(torch.empty_like(x), rank_of[s - 1, 0], tag).requires_grad_()
            y = stages[s](x)
            if s < last:
                sent.append(comm.isend(y.detach(), rank_of[s + 1, 0], tag + 2 * m))
            kept[s, k] = x, y if s < last else loss(y, target) / m
        else:
            x, y = kept.pop((s, k))
            y.backward(comm.recv(torch.empty_like(y), rank_of[s + 1, 0], tag + 1) if s < last else None)
            if s > 0:
                sent.append(comm.isend(x.grad, rank_of[s - 1, 0], tag + 1 - 2 * m))
    for message in sent:
        message.wait()


def beside_the_engine(pool) -> list[tuple]:
    """For each schedule in `PLAYED`: (name, actions of a rank, the gap to the engine, the gap to one device), where a
    gap is the largest difference of gradients on any rank.
    """
    rows = []
    for name, sizes in PLAYED:
        schedule = hl.schedule(name, **sizes)
        gaps = pool.run(both, schedule)
        rows.append((name, len(schedule.program[0]), *(max(one) for one in zip(*gaps))))
    return rows


def both(comm, schedule) -> tuple[float, float]:
    """On each rank: the gap between the gradients of `interpret` and the engine's, and the gap to one device."""
    data = [(x.double(), target.double()) for x, target in toy.microbatches(schedule.microbatches)]
    mine, engines = _stages(comm, schedule), _stages(comm, schedule)
    interpret(comm, schedule, mine, data, toy.loss)
    by_engine(comm, schedule, engines, data)
    alone = [toy.stage(number, schedule.stages).double() for number in range(schedule.stages)]
    for x, target in data:
        (toy.loss(torch.nn.Sequential(*alone)(x), target) / len(data)).backward()
    return _gap(mine, engines), _gap(mine, dict(enumerate(alone)))


def by_engine(comm, schedule, stages, data):
    """The same step by the package's `Player`, which leaves its gradients in the weights."""
    named = {s: {f"{s}.{name}": w for name, w in stage.named_parameters()} for s, stage in stages.items()}
    params = tuple(Param(name, tuple(w.shape)) for its in named.values() for name, w in its.items())
    weights = Replicated(comm, Layout(comm.mesh, params), stages, named, program=[], early=False)
    ends = Ends({0}, {schedule.stages - 1: lambda target: target})
    rooms = {edge: [torch.empty_like(data[0][0])] for edge in range(schedule.stages - 1)}
    work = ModelWork(weights, ends, toy.loss, rooms, SimpleNamespace(), (len(data[0][0]), 0))
    player = Player(comm, lower(schedule), work)
    weights.begin()
    weights.arm(True)
    work.load(*map(list, zip(*data)), tokens=len(data))
    player.play()


def _stages(comm, schedule):
    mine = (stage for (stage, _), rank in schedule.place.items() if rank == comm.rank)
    return {stage: toy.stage(stage, schedule.stages).double() for stage in mine}


def _gap(some, others):
    pairs = ((a, b) for s, one in some.items() for a, b in zip(one.parameters(), others[s].parameters()))
    return max((a.grad - b.grad).abs().max().item() for a, b in pairs)
