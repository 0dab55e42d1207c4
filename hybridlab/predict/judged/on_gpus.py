"""Measurements on GPUs for each notebook of the course, with our predictions if a source gives the sizes.

A panel is one table of one source: points on a named machine, their date, and how reliable they are. The predictions
are those of the public calls: `plan` for training runs, `simulate` for schedules, the formulas of `hl.bytes` for
messages. The bars are errors; nine of ten predictions have smaller ones. Formulas of messages have none, since their
numbers are from data sheets. A *limit* is not a prediction: measurements stay below it.

    panels("gpipe")

Relatives: `predict.papers.published` (the tables), `predict.judged.run` (training runs), `labs.on_gpus` (the picture).
"""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby
from typing import NamedTuple

from hybridlab.core.what.catalog import machine
from hybridlab.predict.judged import blocks, points, sc21_runs
from hybridlab.predict.judged.megatron import dgxc, folding, llama3, mixtral
from hybridlab.predict.judged.points import Point
from hybridlab.predict.judged.run import Run
from hybridlab.predict.judged.sharded import mpt, torchtitan
from hybridlab.predict.papers.published import SOURCES, published

# how a panel is predicted
PLAN, BLOCK, SCHEDULE, FORMULA, LIMIT, NONE = "plan", "block", "schedule", "formula", "limit", ""
SURE = {"printed": "", "abstract": "printed in the abstract", "quoted": "quoted from a secondary source"}
WHAT = {"TFLOP/s": "throughput of one GPU", "tokens/s": "tokens of one GPU"}


class Panel(NamedTuple):
    """Points of one source.

    system, machine, when, source  the program, its machine, the date ("" if none is printed), the publication
    what, unit  of the values;  sure  how we know them, "" if from a printed table or as the source says
    how         the way of the prediction, one of the names above;  points  with their predictions
    runs        the runs of which nine of ten are within bars as long as these
    """

    system: str
    machine: str
    when: str
    source: str
    what: str
    unit: str
    sure: str
    how: str
    points: tuple[Point, ...]
    runs: str = "published runs of this kind"

    @property
    def errors(self) -> list[float]:
        """Predicted over measured, minus one, for each predicted point."""
        return [size for one in self.points if (size := one.error) is not None]


def topics() -> tuple[str, ...]:
    """The names of the topics, as the notebooks have them without their numbers."""
    printed = (row["topic"] for row in published("on_gpus"))
    return tuple(dict.fromkeys([*printed, *_RUNS, *_MORE]))


@cache
def panels(topic: str) -> tuple[Panel, ...]:
    """The panels of a topic, with the bars of their predictions.

    topic  the name of a notebook, as "gpipe" or "11_gpipe"

    raises  ValueError for a topic without published measurements

    >>> one, = panels("naive")
    >>> [(point.name, point.measured, f"{point.predicted:.2f}") for point in one.points][:2]
    [('2 GPUs', 1, '1.00'), ('4 GPUs', 1.004, '1.08')]
    """
    topic = topic.lstrip("0123456789").removeprefix("_") if topic not in topics() else topic
    if topic not in topics():
        raise ValueError(f"topic={topic!r} is invalid: there are no data for it. Choose one of {', '.join(topics())}.")
    more = _MORE.get(topic, tuple)()
    return (*_printed(topic), *more, *(_of_runs(*one) for one in _RUNS.get(topic, ())))


def _printed(topic: str) -> Iterable[Panel]:
    """The panels of the table `on_gpus`: neighbouring rows of one system, machine and quantity."""
    how, predicted = _PREDICTED.get(topic, (NONE, points.unpredicted))
    mine = [row for row in published("on_gpus") if row["topic"] == topic]
    for _, rows in groupby(mine, lambda row: (row["system"], row["machine"], row["what"])):
        row, *_ = rows = list(rows)
        found = tuple(Point(one["point"], one["value"], value) for one, value in zip(rows, predicted(rows)))
        facts = row["system"], row["machine"], str(row["when"]), row["source"], row["what"], row["unit"]
        yield Panel(*facts, SURE[row["sure"]], how, found)


# --- training runs ------------------------------------------------------------------------------------------------


def _of_runs(system: str, when: str, unit: str, runs: Callable[[], list[Run]], name: str) -> Panel:
    first, *_ = found = runs()
    each = tuple(points.of_run(run, unit, _named(run, name)) for run in found)
    facts = system, machine(first.machine).label, when, _source(first.source), WHAT[unit], unit
    return Panel(*facts, "", PLAN, each)


def _grid(run: Run) -> str:
    """The axes along which a run has several ranks, such as "p=2 t=8"."""
    ways = {axis: getattr(run.plan, axis) for axis in ("p", "t", "d", "cp", "ep")}
    return " ".join(f"{axis}={size}" for axis, size in ways.items() if size > 1)


def _source(table: str) -> str:
    """The publication of a table: its source, without our notes on its other columns."""
    said = SOURCES[table].partition("mcore: ")[2] or SOURCES[table]
    return said.partition(";")[0].partition(": mapping")[0]


def _named(run: Run, text: str) -> str:
    """The name of a point, such as "{grid}, b={plan.b}"."""
    facts = {"run": run, "plan": run.plan, "grid": _grid(run), "K": run.shape.context // 1024}
    size = run.model.removeprefix("gpt-").removesuffix("b").removesuffix(".0")
    return text.format(**facts, size=size)


def _figure(number: int, *batches: int) -> Callable[[], list[Run]]:
    note = f"figure {number}"
    return lambda: [run for run in sc21_runs.figures() if run.note == note and (not batches or run.batch in batches)]


def _zero_3() -> list[Run]:
    return [run for run in sc21_runs.table_2() if run.plan.zero and run.model == "gpt-174.6b"]


def _fsdp() -> list[Run]:
    return [run for run in mpt() if run.machine == "h100" and run.plan.zero == 3 and run.plan.devices in (128, 512)]


def _recipe(model: str) -> Callable[[], list[Run]]:
    some = (8, 64, 128, 512, 2048)
    return lambda: [run for run in dgxc() if (run.model, run.precision) == (model, "bf16") and run.plan.devices in some]


GRID, SIZE, GPUS = "{grid}", "{size}B, {grid}", "{run.model}, {plan.devices} GPUs"  # names of points, see `_named`
BATCH, PRECISE = "{grid}, b={plan.b}, B={run.batch}", "{run.model}, {run.precision}, {grid}"
MEGATRON, NEMO = "Megatron-LM, SC'21", "NeMo: NVIDIA's recipe"
_RUNS = {  # topic: (system, date, unit, runs, name of a point)
    "interleaved": [(f"{MEGATRON}, figure 12: GPT-3 on 96 GPUs", "2021", "TFLOP/s", _figure(12),
                     "v={plan.v}, B={run.batch}")],
    "data_parallel": [(f"{MEGATRON}, table 1: copies only", "2021", "TFLOP/s",
                       lambda: sc21_runs.table_1()[:1], SIZE)],
    "zero_fsdp": [("DeepSpeed, ZeRO 3 in SC'21: GPT-3", "2021", "TFLOP/s", _zero_3, GPUS),
                  ("llm-foundry: MPT with FSDP", "2024-01", "tokens/s", _fsdp, GPUS),
                  ("torchtitan: FSDP 2 on 64 GPUs", "2024-04", "tokens/s", lambda: torchtitan()[:3:2], GPUS)],
    "megatron": [(f"{MEGATRON}, table 1", "2021", "TFLOP/s", lambda: sc21_runs.table_1()[1:4], SIZE),
                 (f"{MEGATRON}, figure 15: a node has 8 GPUs", "2021", "TFLOP/s", _figure(15, 128), GRID)],
    "experts": [("Megatron-Core: Mixtral 8x7B", "2024", "tokens/s", mixtral, PRECISE),
                ("Megatron-Core: Mixtral 8x22B", "2025", "tokens/s", folding, PRECISE)],
    "context": [("Llama 3 405B on 16,384 GPUs", "2024", "tokens/s", lambda: llama3()[1:], "{K}K tokens, {grid}"),
                (f"{NEMO} for Llama 3.1 8B, 8K tokens", "2025-01", "tokens/s", _recipe("llama3-8b"), GPUS)],
    "hybrid": [(f"{MEGATRON}, table 1", "2021", "TFLOP/s", lambda: sc21_runs.table_1()[4:], SIZE)],
    "choosing": [(f"{MEGATRON}, figure 13: 162B on 64 GPUs", "2021", "TFLOP/s", _figure(13, 128), GRID),
                 (f"{MEGATRON}, figure 14: 5.9B on 64 GPUs", "2021", "TFLOP/s", _figure(14), BATCH)],
    "sc21": [(f"{MEGATRON}, figure 11: weak scaling of p", "2021", "TFLOP/s", _figure(11), BATCH),
             (f"{MEGATRON}, figure 16: microbatches of 91B", "2021", "TFLOP/s", _figure(16), BATCH)],
    "capstone": [(f"{NEMO} for Llama 3.1 70B", "2025-01", "tokens/s", _recipe("llama3-70b"), GPUS)],
}  # fmt: skip

# --- schedules and messages ---------------------------------------------------------------------------------------

ZERO_BUBBLE = "2023", _source("zero_bubble_tables"), "sequences of one GPU", "1/s", "", SCHEDULE
GPTS = "A100 80 GB, one for each stage"


def _bubbles(system: str, *names: str, rows: slice = slice(None)) -> Callable[[], tuple[Panel, ...]]:
    found = lambda: tuple(points.schedules(names, published("zero_bubble_tables")[rows]))
    return lambda: (Panel(system, GPTS, *ZERO_BUBBLE, found(), "runs of torchgpipe"),)


def _gpipe(system: str, *microbatches: int) -> Callable[[], tuple[Panel, ...]]:
    facts = "Tesla P40", "2019-09", _source("torchgpipe_amoebanet_speed"), "speed", "×"
    return lambda: (Panel(system, *facts, "", SCHEDULE, tuple(points.gpipe(microbatches)), "runs of Qi et al."),)


def _dispatch() -> tuple[Panel, ...]:
    where = "H800 nodes of 8, one InfiniBand link of 400 Gb/s for each GPU"
    facts = (
        "DeepEP: tokens to experts",
        where,
        "2025",
        _source("deepep_v1_h800"),
        "bandwidth of the dispatch",
        "GB/s",
        "",
    )
    return (Panel(*facts, FORMULA, tuple(points.dispatch())),)


def _blocks() -> tuple[Panel, ...]:
    """The block of one rank along tp, measured on one GPU."""
    facts = "1 × H200", "2026-11", _source(blocks.TABLE)
    return (
        Panel("This course: a block's shard, 2,048 tokens", *facts, "forward and backward", "ms", "", BLOCK,
              tuple(blocks.times(6144, b=1))),
        Panel("This course: the activations that it saves", *facts, "saved by a block", "MB", "", BLOCK,
              tuple(blocks.saved(6144, b=1))),
    )  # fmt: skip


_PREDICTED = {  # of the table `on_gpus`: topic: (the way, the predictions of some rows)
    "start": (FORMULA, points.sends),
    "collectives": (FORMULA, points.all_reduces),
    "one_device": (LIMIT, points.rooflines),
    "data_parallel": (FORMULA, points.overlapped),
    "pipedream": (LIMIT, points.copied),
}
ONE_F_ONE_B = _bubbles("Megatron-LM: 1F1B", "1f1b")
_MORE = {
    "tour": ONE_F_ONE_B,
    "naive": _gpipe("torchgpipe: AmoebaNet-D without microbatches; 2 GPUs are 1", 1),
    "gpipe": _gpipe("torchgpipe: AmoebaNet-D; m = 1 on 2 GPUs is 1", 4, 32),
    "1f1b": ONE_F_ONE_B,
    "interleaved": _bubbles("Megatron-LM: interleaved 1F1B", "interleaved"),
    "zero_bubble": _bubbles("Zero bubble, in Megatron-LM", "1f1b", "zb_h1", "zb_h2", rows=slice(0, 6, 2)),
    "megatron": _blocks,
    "experts": _dispatch,
}
