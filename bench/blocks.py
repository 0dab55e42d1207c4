"""How long a transformer block takes on one GPU, and what it saves for the backward, beside the planner's prediction.

    python bench/blocks.py              one table
    python bench/blocks.py --json       the same, and one JSON object on the last line

The blocks are those of a rank along tp too, which one GPU computes without messages. Weights and activations are
bfloat16, attention is fused, forward and backward are timed by the GPU's events, and each time is the median of its
repetitions. The prediction is that of `predict.judged.blocks` for the machine in the catalog that the GPU's name
contains. The results of one H200 are in hybridlab/predict/papers/tables/blocks_h200.csv.
"""

import argparse
import json
import statistics

import torch

from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.machines import recognised
from hybridlab.core.what.shape import Shape
from hybridlab.predict.judged import blocks
from hybridlab.training.models.gpt import Block, Head, token_loss
from hybridlab.world.devices.meet import take_device
from hybridlab.world.devices.placement import placement

REPEATS, WARM = 15, 4
SIZES = ((1024, 16), (2048, 16), (4096, 32), (6144, 48), (8192, 64), (12288, 96))  # width and heads
WAYS, SEQUENCES = (1, 2, 4, 8), (1, 2, 4)
SIDE = 8192  # of the largest product


def made(module: type[torch.nn.Module], shape: Shape, device: str) -> torch.nn.Module:
    """A module of this shape, with its weights drawn on the device."""
    with torch.device(device):
        return module(shape).to(torch.bfloat16)


def measured(shape: Shape, sequences: int, device: str) -> dict:
    """Seconds of a block's forward and backward, and the bytes that it saves for the backward, its input included."""
    block = made(Block, shape, device)
    x = torch.randn(sequences, shape.context, shape.width, device=device, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(x)
    forward, backward = timed(lambda: block(x), lambda y: y.backward(gradient), block, device)
    before = held(device)
    y = block(x)
    return {"forward_s": forward, "backward_s": backward, "saved_bytes": held(device) - before - y.nbytes + x.nbytes}


def of_head(shape: Shape, sequences: int, device: str) -> dict:
    """Seconds of the head and the loss, forward and backward."""
    head = made(Head, shape, device)
    x = torch.randn(sequences, shape.context, shape.width, device=device, dtype=torch.bfloat16, requires_grad=True)
    tokens = torch.randint(shape.vocabulary, (sequences, shape.context), device=device)
    both = timed(lambda: token_loss(head(x), tokens), lambda y: y.backward(), head, device)
    return {"head_s": sum(both)}


def timed(forward, backward, module: torch.nn.Module, device: str) -> list[float]:
    """The median seconds of a forward and of its backward."""
    marks = []
    for _ in range(WARM + REPEATS):
        module.zero_grad()
        marks.append([mark(device)])
        y = forward()
        marks[-1].append(mark(device))
        backward(y)
        marks[-1].append(mark(device))
    torch.cuda.synchronize(device)
    spans = [(a.elapsed_time(b) / 1e3, b.elapsed_time(c) / 1e3) for a, b, c in marks[WARM:]]
    return [statistics.median(one) for one in zip(*spans)]


def mark(device: str) -> torch.cuda.Event:
    """An event on the device's stream, with its time."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def held(device: str) -> int:
    """Bytes of tensors on the device."""
    return torch.cuda.memory_allocated(device)


def rate_of_products(device: str) -> float:
    """FLOP/s of a large bfloat16 product."""
    a, b = torch.randn(2, SIDE, SIDE, device=device, dtype=torch.bfloat16)
    seconds, _ = timed(lambda: a @ b, lambda y: None, torch.nn.Module(), device)
    return 2 * SIDE**3 / seconds


def machine_here(name: str) -> Machine:
    """The machine in the catalog with this GPU.

    raises  ValueError when there is none
    """
    if known := recognised(name):
        return catalog.machine(known)
    raise ValueError(f"the catalog has no {name}: its machines are {', '.join(catalog.MACHINES)}")


def rows(device: str, machine: Machine):
    """One row for each block, with each shard of it and each number of sequences."""
    for width, heads in SIZES:
        for t in WAYS:
            for b in SEQUENCES:
                shape = blocks.shard(width, heads, t)
                row = {"width": width, "heads": heads, "t": t, "b": b} | measured(shape, b, device)
                if t == 1:
                    row |= of_head(shape, b, device)
                told = blocks.predicted(shape, b, machine)
                told = {"forward_s": told.forward, "backward_s": told.backward, "saved_bytes": told.saved}
                yield row | {"predicted": told}


def line(row: dict) -> str:
    """A row of the table."""
    pair = lambda name, unit, digits: f"{row[name] / unit:11.{digits}f}  {row['predicted'][name] / unit:9.{digits}f}"
    pairs = pair("forward_s", 1e-3, 3), pair("backward_s", 1e-3, 3), pair("saved_bytes", 1e6, 0)
    return f"  {row['width']:5}  {row['t']}  {row['b']}   {'   '.join(pairs)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    device = str(take_device(placement(1), 0))
    name = torch.cuda.get_device_name(device)
    machine, found = machine_here(name), []
    rate = rate_of_products(device)
    print(f"{name}, as {machine.label}; a product of {SIDE}³ in bfloat16: {rate / 1e12:.0f} TFLOP/s")
    print("  width  t  b   forward, ms  predicted  backward, ms  predicted    saved, MB  predicted")
    for row in rows(device, machine):
        found.append(row)
        print(line(row))
    if chosen.json:
        print(json.dumps({"gpu": name, "machine": machine.name, "product_flops": rate, "rows": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
