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
from hybridlab.core.what.machines import written
from hybridlab.core.what.shape import Shape
from hybridlab.measuring.links import measured_link
from hybridlab.measuring.one_device import on_one_thread
from hybridlab.measuring.row import row, where
from hybridlab.measuring.timed import repeated
from hybridlab.predict.judged.blocks import share_of
from hybridlab.training.models.gpt import Block
from hybridlab.world.devices.meet import take_device
from hybridlab.world.devices.placement import placement
from hybridlab.world.processes.launch import ranks

REPEATS, COPIED = 7, {"cuda": 1 << 30, "cpu": 1 << 26}  # repetitions; bytes
GPU, CORE = Shape(1, 8192, 64, 2048), Shape(1, 512, 8, 256)  # whose block is measured
MATMUL, BLOCK, COPY, SUM = "matmul", "a block's forward and backward", "copy", "all_reduce of two ranks, fitted"


def rows() -> Iterator[dict]:
    """Yield row after row, each as soon as it is measured."""
    placed = placement(1)
    device = take_device(placed, 0)
    shape, about = _shape(device.type), where(placed)
    for k, n in ((1, 4), (4, 1), (1, 3)):  # up, down, and queries, keys and values together
        sizes = shape.context, k * shape.width, n * shape.width
        rates = [2 * math.prod(sizes) / seconds for seconds in _matmul(*sizes, device)]
        name = f"{MATMUL} {sizes[0]} × {sizes[1]} × {sizes[2]}"
        yield row(name, "FLOP/s", rates, device=device.type, **about)
    yield row(BLOCK, "s", _block(shape, device), device=device.type, **about)
    size = COPIED[device.type]
    yield row(COPY, "B/s", [2 * size / seconds for seconds in _copy(size, device)], device=device.type, **about)
    two = placement(2)
    if not two.shared:  # a message between ranks of one GPU says nothing about a link
        with ranks(2) as pool:
            link, _ = measured_link(pool, "all_reduce")
        yield {"name": SUM, "device": device.type, **where(two), "alpha": link.alpha, "beta": link.beta}


def described(record: dict) -> str:
    """The text of the file that describes the machine of a record of this suite."""
    facts, found = record["machine"], {one["name"]: one for one in record["rows"]}
    device, when = facts["device"], facts["when"][:10]
    wide = 1 if device == "cuda" else 2  # our numbers are so many times as long as those of the model
    like = next((name for name in MACHINES for gpu, _ in facts["gpus"][:1] if name in gpu.lower().split()), "")
    rates = [one["median"] for name, one in found.items() if name.startswith(MATMUL)]
    given = {"name": f"{like or device}-measured", "label": _label(facts)}
    given |= {} if like else {"node": len(facts["gpus"]) or facts["cores"]}
    given |= {} if like else {"peak": max(rates)}
    given |= {"memory": facts["gpus"][0][1] if facts["gpus"] else facts["memory"] / facts["cores"]}
    given |= {"bandwidth": found[COPY]["median"] / wide}
    if SUM in found:
        given |= {"inside": 1 / found[SUM]["beta"] / wide, "latency": (found[SUM]["alpha"],) * 2}
    elif not like:
        given |= {"inside": given["bandwidth"]}
    kind = replace(MACHINES[like], **given) if like else Machine(**_ONE_NODE | given | {"across": given["inside"]})
    given["share"] = min(1.0, share_of(found[BLOCK]["median"], _shape(device), 1, kind))
    measured = f"measured on {when}, torch {facts['torch']}"
    return written({key: _short(value) for key, value in given.items()}, like, dict.fromkeys(given, measured))


_ONE_NODE = {"sources": {}, "latency": (0.0, 0.0)}


def _label(facts) -> str:
    names = [name for name, _ in facts["gpus"]]
    return f"{len(names)} × {names[0]}" if names else f"{facts['cores']} cores {facts['machine']}"


def _short(value):
    """A number with four digits, as far as it was measured."""
    if isinstance(value, tuple):
        return tuple(map(_short, value))
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _shape(kind: str) -> Shape:
    return GPU if kind == "cuda" else CORE


def _numbers(*sizes, device) -> torch.Tensor:
    return torch.randn(*sizes, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)


@on_one_thread
def _matmul(m, k, n, device) -> list[float]:
    a, b = _numbers(m, k, device=device), _numbers(k, n, device=device)
    return repeated(lambda: a @ b, device, REPEATS)


@on_one_thread
def _copy(size, device) -> list[float]:
    x = torch.ones(size, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    return repeated(lambda: y.copy_(x), device, REPEATS)


@on_one_thread
def _block(shape, device) -> list[float]:
    with torch.device(device):
        block = Block(shape)
    x = _numbers(1, shape.context, shape.width, device=device).requires_grad_()
    block, gradient = block.to(x.dtype), torch.randn_like(x)

    def work():
        block.zero_grad()
        block(x).backward(gradient)

    return repeated(work, device, REPEATS)
