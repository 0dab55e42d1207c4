"""One transformer block on one GPU, as `bench/blocks.py` measures it, and its prediction by the planner's model.

A rank along tp computes a block with t times fewer heads and a t times narrower MLP. One GPU can do that alone, so the
GEMMs of a shard are measured without messages.

Relatives: `predict.judged.on_gpus`, which shows the points.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.catalog import Machine, machine
from hybridlab.core.what.shape import Shape
from hybridlab.predict.judged.points import Point
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.footprint import kept_on
from hybridlab.predict.plans.performance import pieces
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import SOFTWARE
from hybridlab.predict.plans.usual import fit_of, usual

CONTEXT, VOCABULARY = 2048, 51200
TABLE, GPU = "blocks_h200", "h200"


class Block(NamedTuple):
    """Seconds of a block's forward and backward for one microbatch, and the bytes that it saves for its backward."""

    forward: float
    backward: float
    saved: float


def shard(width: int, heads: int, t: int) -> Shape:
    """The shape of the part of a block that one rank along tp computes.

    >>> shard(4096, 32, 8).inside, shard(4096, 32, 8).head_width
    (2048, 128)
    """
    return Shape(1, width, heads // t, CONTEXT, VOCABULARY, per_head=width // heads, inner=4 * width // t)


def predicted(shape: Shape, sequences: int, machine: Machine) -> Block:
    """A block by the model of `plan`, with fused attention, without recomputation and without dropout.

    >>> one = predicted(shard(4096, 32, 1), 1, machine("h200"))
    >>> f"{one.forward * 1e3:.2f} ms, {one.backward * 1e3:.2f} ms, {one.saved / 1e6:.0f} MB"
    '1.58 ms, 3.19 ms, 268 MB'
    """
    plan, runs = Plan(b=sequences, fused=True), SOFTWARE[usual(machine).software]
    found = pieces(shape, plan, sequences, machine, fit_of(machine, runs), runs)
    masks = 2 * sequences * shape.context * shape.width  # dropout's mask: a byte for each number of both branches
    saved = kept_on(shape, plan).total - masks
    return Block(float(added(found.forward)), float(added(found.backward)), float(saved))


def share_of(seconds: float, shape: Shape, sequences: int, machine: Machine) -> float:
    """The fraction of a machine's peak at which the model predicts this time for a block's forward and backward. It is
    above 1 if the prediction is longer than this time even at the full peak.

    >>> one, here = shard(4096, 32, 1), machine("h200")
    >>> found = predicted(one, 1, here)
    >>> round(share_of(found.forward + found.backward, one, 1, here), 3)
    0.612
    """
    whole, half = (
        added(predicted(shape, sequences, replace(machine, share=share))[:2]) for share in (1.0, 0.5)
    )  # only matmuls take twice as long at half the share
    matmuls = half - whole
    return matmuls / max(seconds - (whole - matmuls), 1e-12)


def times(*widths: int, b: int) -> Iterator[Point]:
    """Milliseconds of a block's forward and backward on one H200."""
    for row, one in _rows(widths, b):
        yield Point(_name(row), row["forward_ms"] + row["backward_ms"], 1e3 * (one.forward + one.backward))


def saved(*widths: int, b: int) -> Iterator[Point]:
    """MB that a block saves for its backward on one H200."""
    for row, one in _rows(widths, b):
        yield Point(_name(row), row["saved_MB"], one.saved / 1e6)


def _rows(widths, b) -> Iterator[tuple[dict, Block]]:
    here = machine(GPU)
    for row in published(TABLE):
        if row["width"] in widths and row["b"] == b:
            yield row, predicted(shard(row["width"], row["heads"], row["t"]), b, here)


def _name(row: dict) -> str:
    return f"width {row['width']:,}, t={row['t']}"
