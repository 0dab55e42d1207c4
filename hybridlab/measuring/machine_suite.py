"""The machine suite: matmuls, a block, a copy and a sum, and the file with which `hl.plan` predicts this machine.

On a GPU, numbers have 16 bits. On a CPU they have 32, and one rank has one core. The performance model counts 16-bit
numbers, so rates of bytes on a CPU are halved.

Relatives: `core.what.machines` (reads the file), `measuring.here` (all of this for one model, with our runtime).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from hybridlab.core.what.catalog import MACHINES, Machine
from hybridlab.core.what.machines import recognised, written
from hybridlab.core.what.shape import Shape
from hybridlab.measuring.links import measured_link
from hybridlab.measuring.recorded import counted
from hybridlab.measuring.row import row, where
from hybridlab.measuring.timed import repeated
from hybridlab.predict.judged.blocks import shard, share_of
from hybridlab.predict.plans.measured import by_sums
from hybridlab.training.models.gpt import Block
from hybridlab.world.devices.placement import ASKED, placement
from hybridlab.world.processes.launch import ranks

REPEATS, COPIED = 7, {"cuda": 1 << 30, "cpu": 1 << 26}  # repetitions; bytes
GPU, CORE = shard(8192, 64, t=1), Shape(1, 512, 8, 256)  # the model whose block is measured
SUMMED = {"cuda": (1 << 16, 1 << 24, 1 << 28), "cpu": (1 << 10, 1 << 17, 1 << 22)}  # bytes
MATMUL, BLOCK, COPY, SUM = "matmul", "a block's forward and backward", "copy", "all_reduce"


def rows() -> Iterator[dict]:
    """Yield row after row, measured on ranks, so that this process uses no device.

    raises  ValueError if ranks compute on another kind of device
    """
    one, two = placement(1), placement(2)
    if one.kind not in COPIED:
        raise ValueError(f"the machine suite measures CPUs and CUDA GPUs, not {one.kind}: give {ASKED}=cpu")
    with ranks(1) as pool:
        yield from pool.run(_alone, where(one))[0]
    if two.kind == one.kind and not two.shared:  # messages between ranks of one GPU say nothing about a link
        with ranks(2) as pool:
            for size in SUMMED[two.kind]:
                _, times = measured_link(pool, SUM, sizes=(size,) * 2)
                yield row(SUM, "s", times[1], device=two.kind, bytes=size, **where(two))


def _alone(comm, about: dict) -> list[dict]:
    """The rows of one rank."""
    device = comm.device
    shape, found = _shape(device.type), []
    tell = lambda name, unit, values: found.append(row(name, unit, values, device=device.type, **about))
    for k, n in ((1, 4), (4, 1), (1, 3)):  # up, down, and queries, keys and values together
        sizes = shape.context, k * shape.width, n * shape.width
        rates = [2 * math.prod(sizes) / seconds for seconds in _matmul(*sizes, device)]
        tell(f"{MATMUL} {sizes[0]} × {sizes[1]} × {sizes[2]}", "FLOP/s", rates)
    tell(BLOCK, "s", _block(shape, device))
    size = COPIED[device.type]
    tell(COPY, "B/s", [2 * size / seconds for seconds in _copy(size, device)])
    return found


def described(record: dict) -> str:
    """The text of the file that describes the machine of a record of this suite. Each measured number is marked as
    measured.
    """
    facts, rows = record["machine"], record["rows"]
    cuda = facts["device"] == "cuda"
    gpus = facts["gpus"] if cuda else []
    wide = 1 if cuda else 2  # the length of our numbers, divided by the length of the model's
    like = recognised(gpus[0][0]) if cuda else ""
    # the fastest counts, since other programs only add time
    fastest = lambda one: one["least"] if one["unit"] == "s" else max(one["repetitions"])
    found = {one["name"]: fastest(one) for one in rows if one["name"] != SUM}
    measured = {"bandwidth": found[COPY] / wide}
    measured |= {} if like else {"peak": max(rate for name, rate in found.items() if name.startswith(MATMUL))}
    given = {"name": f"{like or facts['device']}-measured", "label": _label(facts, gpus)}
    given |= {"memory": gpus[0][1] if cuda else facts["memory"] / facts["cores"]}
    given |= {"node": len(gpus) or facts["cores"]} if not like or len(gpus) > 1 else {}
    bare = {"sources": {}, "latency": (0.0, 0.0), "inside": measured["bandwidth"], "across": measured["bandwidth"]}
    kind = replace(MACHINES[like], **given, **measured) if like else Machine(**bare | given | measured)
    if sums := {one["bytes"] / wide: fastest(one) for one in rows if one["name"] == SUM}:
        kind = by_sums(kind, 2, [*sums], [*sums.values()])
        measured |= {"inside": kind.inside, "latency": kind.latency}
        measured |= {} if like else {"across": kind.inside}
    measured["share"] = min(1.0, share_of(found[BLOCK], _shape(facts["device"]), 1, kind))
    given |= {} if like or sums else {"inside": kind.inside}
    notes = dict.fromkeys(measured, f"measured on {facts['when'][:10]}, torch {facts['torch']}")
    notes |= {"inside": "not measured: as fast as memory"} if "inside" in given else {}
    return written({key: _short(value) for key, value in (given | measured).items()}, like, notes)


def _label(facts, gpus) -> str:
    return counted([name for name, _ in gpus]) if gpus else f"{facts['cores']} cores {facts['machine']}"


def _short(value):
    """A number with the four digits that a measurement gives."""
    if isinstance(value, tuple):
        return tuple(map(_short, value))
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _shape(kind: str) -> Shape:
    return GPU if kind == "cuda" else CORE


def _numbers(*sizes, device) -> torch.Tensor:
    return torch.randn(*sizes, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)


def _matmul(m, k, n, device) -> list[float]:
    a, b = _numbers(m, k, device=device), _numbers(k, n, device=device)
    return repeated(lambda: a @ b, device, REPEATS)


def _copy(size, device) -> list[float]:
    x = torch.ones(size, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    return repeated(lambda: y.copy_(x), device, REPEATS)


def _block(shape, device) -> list[float]:
    with torch.device(device):
        block = Block(shape)
    x = _numbers(1, shape.context, shape.width, device=device).requires_grad_()
    block, gradient = block.to(x.dtype), torch.randn_like(x)

    def work():
        block.zero_grad()
        block(x).backward(gradient)

    return repeated(work, device, REPEATS)
