"""Measure the time of each matmul and each message of a grid layer, without overlap.

`predict.time.overlap` predicts a step from such pieces. See also `modes.products.grid_layer` (the layer), and notebook
36 and `bench/grids.py`, which compare the prediction with a real step.

Shape suffixes as in `modes.products.grid_layer`: B rows, I inputs, O outputs that are here
"""

from collections.abc import Callable

import torch

from hybridlab.measuring.timed import now
from hybridlab.modes.products.grid_layer import GridLinear
from hybridlab.predict.time.overlap import Layer


def pieces(comm, layer: GridLinear, rows: int, times: int, choose: Callable = min) -> Layer:
    """The seconds of a layer's three matmuls and four messages, each measured alone; the result is the same on every
    rank.

    rows    of the batch on this rank
    choose  the function that selects one of the repetitions: `min`, or a median
    """
    share, outputs = layer.share.detach(), sum(layer.sizes)
    make = lambda *shape: torch.randn(*shape, dtype=share.dtype, device=share.device)
    x_BI, w_OI, g_BO = make(rows, share.shape[1]), make(outputs, share.shape[1]), make(rows, outputs)
    seconds = lambda does: choose(tries(comm, does, times))
    sent = lambda axis, does: seconds(does) if comm.mesh[axis] > 1 else 0.0
    return Layer(
        forward=seconds(lambda: x_BI @ w_OI.T),
        by_x=seconds(lambda: g_BO @ w_OI),
        by_w=seconds(lambda: g_BO.T @ x_BI),
        gather=sent("z", lambda: comm.all_gather(share, "z", 0, layer.sizes)),
        sum_y=sent(layer.inner, lambda: comm.all_reduce(g_BO, layer.inner)),
        sum_x=sent(layer.outer, lambda: comm.all_reduce(x_BI, layer.outer)),
        scatter=sent("z", lambda: comm.reduce_scatter(w_OI, "z", 0, layer.sizes)),
    )


def tries(comm, does: Callable, times: int) -> list[float]:
    """The seconds of some work, one number for each repetition, if all ranks do only this work; the slowest rank
    counts.

    One more repetition before them is a warm-up.
    """
    taken = []
    for _ in range(times + 1):
        comm.barrier()
        begin = now(comm.device)
        does()
        taken.append(now(comm.device) - begin)
    return comm.all_reduce(torch.tensor(taken[1:], dtype=torch.float64), op="max").tolist()
