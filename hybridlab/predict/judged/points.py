"""Points: one published measurement each, with our prediction of it.

Each function predicts the rows of one kind of table. Relative: `predict.judged.on_gpus`, which groups them by topic.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.catalog import Machine, machine
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.judged.run import Run
from hybridlab.predict.papers.long_and_sparse import H800
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.replicated import Layer, replicated
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule


class Point(NamedTuple):
    """A measurement, its prediction or None, and the relative error that nine of ten predictions stay below, or None.

    name  the name of the point;  measured, predicted  in the unit of its panel
    """

    name: str
    measured: float
    predicted: float | None = None
    within: float | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured, minus one; None without a prediction."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def bar(self) -> tuple[float, float] | None:
        """The measurements of which the prediction is off by at most `within`: without an upper end from 1 on.

        >>> Point("", 10, 12, 0.5).bar, Point("", 10, 12, 1).bar, Point("", 10, 12).bar
        ((8.0, 24.0), (6.0, inf), None)
        """
        if self.predicted is None or self.within is None:
            return None
        return self.predicted / (1 + self.within), self.predicted / (1 - self.within) if self.within < 1 else math.inf


def unpredicted(rows: list[dict]) -> list[None]:
    """Points without a prediction: the source does not give its inputs."""
    return [None] * len(rows)


def of_run(run: Run, unit: str, name: str) -> Point:
    """A training run, predicted by `plan`; "TFLOP/s" count recomputation, as their sources do.

    The point has no prediction if the planner refuses the plan, for example because it does not fit into memory.
    """
    work = flops(run.shape, run.batch, RECOMPUTE[run.plan.recompute]).total / run.plan.devices / 1e12
    done = work if unit == "TFLOP/s" else run.tokens * run.seconds
    try:
        planned = run.planned()
    except ValueError:
        return Point(name, done / run.seconds)
    return Point(name, done / run.seconds, done / float(planned.best.step.total), planned.error.nine_of_ten)


# --- schedules ----------------------------------------------------------------------------------------------------

COLUMNS = {"1f1b": "1F1B", "interleaved": "1F1B_I", "zb_h1": "ZB_1p", "zb_h2": "ZB_2p"}  # as in the tables
WITHIN = {"torchgpipe": 0.17, "zero bubble": 0.40}  # for each, the errors of the other: a test computes both
NAMES = {"1f1b": "1F1B", "interleaved": "v={v}", "zb_h1": "ZB-1p", "zb_h2": "ZB-2p"}


def schedules(names: Iterable[str], rows: Iterable[dict]) -> Iterator[Point]:
    """Sequences per second on one GPU, from the published durations of F, I, W and a message; nothing else counts.

    ZB-1p and ZB-2p, which a search finds, are as fast as the handmade ZB-H1 and ZB-H2 (a test compares).
    """
    names = tuple(names)
    for row in rows:
        for name in names:
            shown = NAMES[name].format(v=row["chunks_v_for_1F1B_I"])
            label = f"{row['model']}, p={row['stages_p']}, m={row['microbatches_m']}, {shown}"
            yield Point(label, row[f"samples_per_gpu_s_{COLUMNS[name]}"], _rate(name, row), WITHIN["zero bubble"])


def _rate(name: str, row: dict) -> float:
    more = {"chunks": row["chunks_v_for_1F1B_I"]} if name == "interleaved" else {}
    ranks, microbatches = row["stages_p"], row["microbatches_m"]
    one = schedule(name, ranks=ranks, microbatches=microbatches, **more)
    F, I, W = (row[column] / 1e3 / one.chunks for column in ("TF_ms", "TB_ms", "TW_ms"))
    length = simulate(one, Costs(F=F, I=I, W=W, latency=row["Tcomm_ms"] / 1e3)).length
    return microbatches * row["microbatch_size"] / length / ranks


def gpipe(microbatches: tuple[int, ...]) -> Iterator[Point]:
    """The speed of torchgpipe with equal stages, no messages, and the recomputation of its benchmark."""
    one = _speed(2, 1)
    for row in published("torchgpipe_amoebanet_speed"):
        n, m = row["partitions_n"], row["microbatches_m"]
        if m in microbatches:
            name = f"{n} GPUs" + f", m={m}" * (m > 1)
            yield Point(name, row["speedup_torchgpipe"], _speed(n, m) / one, WITHIN["torchgpipe"])


def _speed(n: int, m: int) -> float:
    again = "except_last" if m > 1 else "always"
    one = schedule("gpipe", ranks=n, microbatches=m, backward="lifo", recompute=again)
    return m / simulate(one, Costs(F=1 / n, B=2 / n)).length


# --- messages and matmuls, from data sheets ---------------------------------------------------------------------------


def _inside(one: Machine) -> Link:
    return Link(one.latency[0], 1 / one.inside)


def sends(rows: list[dict]) -> list[float]:
    """GB/s of a message over NVLink."""
    link = _inside(machine("a100"))
    return [row["size"] / link.seconds("send", 2, row["size"]) / 1e9 for row in rows]


def all_reduces(rows: list[dict]) -> list[float]:
    """GB/s on the bus of a ring of 8: the bytes that each GPU must send, over the time."""
    link, p = _inside(machine("h200")), 8
    return [2 * (p - 1) / p * row["size"] / link.seconds("all_reduce", p, row["size"]) / 1e9 for row in rows]


def dispatch() -> Iterator[Point]:
    """GB/s of DeepEP's dispatch: the bandwidth of the slowest link on its way."""
    for row in published("deepep_v1_h800"):
        rate = H800.inside if row["link"] == "NVLink" else H800.across
        yield Point(f"ep={row['ep']}, {row['link']}", row["dispatch_GBps"], rate / 1e9)


def rooflines(rows: list[dict]) -> list[float]:
    """An upper bound on the TFLOP/s of a SIDE × K by K × SIDE matmul in 16 bits: the peak, or the limit by the bytes of
    the three matrices.
    """
    bound = lambda K: min(H800.peak, 2 * SIDE * SIDE * K / (2 * (2 * SIDE * K + SIDE * SIDE)) * H800.bandwidth)
    return [bound(row["size"]) / 1e12 for row in rows]


SIDE = 8192  # of the product of `rooflines`
PICTURES, BUCKET = 32, 25 * 2**20  # of a GPU; bytes of DDP's usual bucket


def overlapped(rows: list[dict]) -> list[float | None]:
    """Pictures per second per GPU, from two times: the measured step of one GPU, which we do not predict, and the
    all-reduce of the last bucket, which is exposed.
    """
    one, v100 = PICTURES / rows[0]["value"], machine("v100")
    across = Link(v100.latency[1], 1 / (v100.node * v100.across))  # a ring crosses each node's border once
    links = {True: _inside(v100), False: across}
    last = lambda p: links[p <= v100.node].seconds("all_reduce", p, BUCKET)
    return [PICTURES / (one + last(row["size"])) if row["size"] > 1 else None for row in rows]


def copied(rows: list[dict]) -> list[float]:
    """The speed-up by PipeDream's partitioner, with all messages hidden, from the profile that its authors released."""
    took = lambda row: (row["forward_ms"] + row["backward_ms"]) / 1e3
    layers = [Layer(took(row), row["output_bytes"], row["weight_bytes"]) for row in published("pipedream_vgg16")]
    whole = added(map(took, published("pipedream_vgg16")))
    rate = {"Titan X": 25e9 / 8, "V100": 10e9 / 8}
    bandwidth = rate[rows[0]["machine"].partition(",")[0]]
    return [whole / replicated(layers, (row["size"], bandwidth)).seconds for row in rows]
