"""Notebook 42: the fraction of this machine's GEMM rate that one layer of the reference model reaches, measured."""

import math
from typing import NamedTuple

import torch

import hybridlab as hl
from hybridlab.labs.sc21.table import ROWS
from hybridlab.measuring.timed import own_clock
from hybridlab.predict.papers.sc21 import A100, Row
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure
from hybridlab.training.models.gpt import Block

WIDTHS, CONTEXT, SEQUENCES, SQUARE, ROUNDS = (16, 64, 256, 512), 128, 2, 1024, 4


class Measured(NamedTuple):
    """FLOP/s in single precision: of a square GEMM, and of a layer's forward and backward, {width: FLOP/s}."""

    product: float
    block: dict[int, float]

    @property
    def used(self) -> dict[int, float]:
        """{width: the fraction of the GEMM's rate that the layer reaches}: MFU, with the GEMM as the peak."""
        return {width: rate / self.product for width, rate in self.block.items()}


def shape_of(width: int) -> hl.Shape:
    """The shape of one block of this width, with heads of 16."""
    return hl.Shape(layers=1, width=width, heads=width // 16, context=CONTEXT)


def work(width: int) -> float:
    """The operations of one layer, forward and backward, by the formula; scores are counted without the causal mask.

    >>> work(256) / (72 * SEQUENCES * CONTEXT * 256**2 * (1 + CONTEXT / (6 * 256)))
    1.0
    """
    one = flops(shape_of(width), SEQUENCES)
    return one.blocks + one.attention


def measured(widths=WIDTHS) -> Measured:
    """The rates measured by one rank on its device, with that device's clock; each time is the fastest of several
    rounds.
    """
    with hl.ranks(1) as pool:
        product, *blocks = pool.run(_measure, tuple(widths))[0]
    seconds = dict(zip(widths, blocks))
    return Measured(2 * SQUARE**3 / product, {width: work(width) / seconds[width] for width in widths})


def _measure(comm, widths):
    """Seconds of the GEMM, then of each width's layer."""
    device, clock = comm.device, own_clock(comm.device)
    a, b = torch.randn(2, SQUARE, SQUARE, device=device)
    jobs = [lambda: a @ b, *(_step(Block(shape_of(width)).to(device), width, device) for width in widths)]
    best = [float("inf")] * len(jobs)
    for _ in range(ROUNDS):
        for place, job in enumerate(jobs):
            best[place] = min(best[place], *(_seconds(job, clock) for _ in range(2)))
    return best


def _step(block, width, device):
    x_BTD = torch.randn(SEQUENCES, CONTEXT, width, device=device, requires_grad=True)

    def step():
        block(x_BTD).sum().backward()
        block.zero_grad()
        x_BTD.grad = None

    return step


def _seconds(job, clock) -> float:
    begin = clock()
    job()
    return clock() - begin


def picture(real: Measured) -> Figure:
    """The fraction of its peak that a machine uses: one layer here over its width, and the models of table 1."""
    here = [(math.log2(width), 100 * share) for width, share in real.used.items()]
    there = [(math.log2(row.shape.width), 100 * mfu(row)) for row in ROWS.values()]
    curves = [
        Curve("one layer on this machine, measured", *zip(*here), 5, "solid", "circle"),
        Curve("whole models on A100s, printed, as MFU", *zip(*there), 1, "dash", "square"),
    ]
    told = f"One layer here: {here[0][1]:.0f}% at width {min(real.used)}, {here[-1][1]:.0f}% at {max(real.used)}"
    x = Axis("width h", 3.8, 14.8, marks={place: str(2**place) for place in range(4, 15, 2)})
    return chart(curves, x, Axis("% of the peak", 0, 105), "MFU over the width of the model", told)


def mfu(row: Row) -> float:
    """The fraction of the peak that a row of table 1 uses for the model's own operations, without recomputed ones.

    >>> f"{mfu(ROWS['1008B']):.1%} of 52%"
    '39.2% of 52%'
    """
    done, own = (flops(row.shape, row.batch, how).total for how in ("full", "none"))
    return row.printed * 1e12 / A100.peak * own / done
