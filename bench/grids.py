"""Messages under products, beside the same ones behind them: SUMMA's panels, and the layers of a grid; and predicted.

    python bench/grids.py            a table with medians over interleaved rounds
    python bench/grids.py --json     the same, and one JSON object on the last line
    python bench/grids.py --ranks 2  only grids of two ranks; --device cuda for GPUs

One thread a rank. A step is a product of square matrices, or three linear layers, forward and backward, in float32. In
every round each form takes one step, in an order drawn anew. A ratio, overlapped over plain, is taken within a round;
beside its median stand the ends of the middle half of all rounds. Both forms make the same numbers, bit for bit, and
send the same words (tests/modes/test_products.py, tests/modes/test_grid_layer.py), so the ratio is of time alone.

*predicted* is what `predict.time.overlap` makes of products and messages that were timed one by one, on the same ranks
just before. It takes the link and the cores as independent. Where ranks and messages share cores they are not, and
less is hidden than is predicted: with as many ranks as cores a message is copied by a core that a product needs.
"""

import argparse
import json
import random
import statistics
import time

import torch
import where

from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.grid_layers import pieces, tries
from hybridlab.measuring.timed import now
from hybridlab.modes.products import matmul
from hybridlab.modes.products.grid_layer import GridChain, here
from hybridlab.predict.time.overlap import chain, length, panels
from hybridlab.world.processes.launch import ranks

WARM, TRIES, PANELS = 3, 7, 4
SIDES = {"cpu": 1024, "cuda": 8192}
LAYERS = {"cpu": (512, (512, 1024, 512, 512)), "cuda": (8192, (4096, 16384, 4096, 4096))}  # rows of the batch, features
GRIDS = {  # what is timed: its mesh
    "SUMMA 2×1": {"i": 2, "j": 1, "l": 1},
    "layers z=2": {"x": 1, "y": 1, "z": 2},
    "layers y=2": {"x": 1, "y": 2, "z": 1},
    "SUMMA 2×2": {"i": 2, "j": 2, "l": 1},
    "layers y=2 z=2": {"x": 1, "y": 2, "z": 2},
    "layers x=2 y=2": {"x": 2, "y": 2, "z": 1},
}


def summa(comm, side):
    """({form: a step}, the prediction of both)."""
    i, j = comm.coordinates["i"], comm.coordinates["j"]
    (a, b), (rows, columns) = even(side, comm.mesh["i"])[i], even(side, comm.mesh["j"])[j]
    make = lambda *shape: torch.randn(*shape, device=comm.device)
    x, w = make(b - a, columns - rows).requires_grad_(), make(b - a, columns - rows).requires_grad_()
    gradient, sizes = make(b - a, columns - rows), (side,) * 3

    def step(product):
        x.grad = w.grad = None
        product(comm, x, w, sizes, PANELS).backward(gradient)

    one, other = make(b - a, side // PANELS), make(side // PANELS, columns - rows)
    multiply = statistics.median(tries(comm, lambda: one @ other, TRIES))
    plain = statistics.median(tries(comm, lambda: step(matmul.summa), TRIES))
    move = max(0.0, plain - 3 * PANELS * multiply) / (2 * PANELS)  # what a step takes beyond its products is moves
    foreseen = [length(panels(PANELS, multiply, move, ahead)) for ahead in (False, True)]
    return {"plain": lambda: step(matmul.summa), "overlapped": lambda: step(matmul.summa_ahead)}, foreseen


def layers(comm, sizes):
    """The same of three layers on a grid."""
    rows, features = sizes
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(o, i, generator=draw).to(comm.device) for i, o in zip(features, features[1:])]
    x, gradient = (torch.randn(rows, width, generator=draw).to(comm.device) for width in (features[0], features[-1]))
    x, gradient = here(comm, x, "x").contiguous(), here(comm, gradient, "y").contiguous()
    steps = {}
    for name, overlapped in (("plain", False), ("overlapped", True)):
        model = GridChain(comm, weights, overlapped=overlapped)
        steps[name] = lambda model=model: (model.zero_grad(), model(x).backward(gradient))
    alone = [pieces(comm, layer, len(x), TRIES, statistics.median) for layer in model.layers]
    alone[0] = alone[0]._replace(by_x=0.0, sum_x=0.0)  # the first layer's input has no gradient
    return steps, [length(chain(alone, overlapped)) for overlapped in (False, True)]


def on_rank(comm, what, sizes, rounds):
    """({form: seconds of its rounds, of the slowest rank}, the prediction of both)."""
    steps, foreseen = (summa if what.startswith("SUMMA") else layers)(comm, sizes)
    taken, order = {name: [] for name in steps}, random.Random(0)
    for _ in range(WARM + rounds):
        for name in order.sample(list(steps), len(steps)):
            comm.barrier()
            begin = now(comm.device)
            steps[name]()
            took = torch.tensor([now(comm.device) - begin], dtype=torch.float64)
            taken[name].append(comm.all_reduce(took, op="max").item())
    return {name: times[WARM:] for name, times in taken.items()}, foreseen


def compared(what, rounds, placed) -> dict:
    """One row of the table."""
    sizes = (SIDES if what.startswith("SUMMA") else LAYERS)[placed.kind]
    with ranks(Mesh(**GRIDS[what]), placement=placed) as pool:
        taken, (plain, overlapped) = pool.run(on_rank, what, sizes, rounds)[0]
    low, middle, high = statistics.quantiles([a / b for a, b in zip(taken["overlapped"], taken["plain"])], n=4)
    each = {f"{name}_ms": statistics.median(times) * 1e3 for name, times in taken.items()}
    return each | {"ratio": middle, "interval": [low, high], "predicted": overlapped / plain}


def main():
    parser = argparse.ArgumentParser(description="Messages under products beside messages behind them.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ranks", type=int, choices=(2, 4), help="only grids of so many")
    parser.add_argument("--json", action="store_true")
    where.add_flags(parser)
    chosen = parser.parse_args()
    chosen_grids = [what for what, axes in GRIDS.items() if chosen.ranks in (None, Mesh(**axes).size)]
    results = {"when": time.strftime("%Y-%m-%d")}
    print(f"{'':15}  {'plain, ms':>9}  {'overlapped':>10}  overlapped / plain, middle half  predicted")
    for what in chosen_grids:
        placed = where.placed(chosen, Mesh(**GRIDS[what]).size)
        row = results[what] = compared(what, chosen.rounds, placed)
        low, high = row["interval"]
        print(
            f"{what:15}  {row['plain_ms']:9.1f}  {row['overlapped_ms']:10.1f}  "
            f"{row['ratio']:6.3f} ({low:.3f} to {high:.3f})         {row['predicted']:9.3f}",
            flush=True,
        )
    if chosen.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
