"""Others: runs that judge the predictor and are in none of our tables, and the published accuracy of other predictors.

vTrain's measured steps are read from a folder, since the project stores their errors only.

    python -m tools.scoreboard --against vTrain/data

Relatives: `predict.judged.held_out` (rows of our tables without their source), docs/predictor.md.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import NONE, RECOMPUTE
from hybridlab.predict.judged.run import Run
from hybridlab.predict.plans.plan import Plan

FILES = {"ground_truth_multi.csv": "64 to 512 A100s", "ground_truth_single.csv": "2 to 8 A100s of one node"}
VOCABULARY = 50257  # the default in vTrain's src/config.py


class Aside(NamedTuple):
    """The errors of `hl.plan` on rows that are not in our tables, with every field fixed.

    goal  for the median; 0.0: these assumptions only show what another choice would give
    """

    what: str
    software: str
    recompute: str
    rows: int
    median: float
    nine_of_ten: float
    goal: float = 0.0


ASIDE = (
    Aside("64 to 512 A100s", "megatron-2021", "full", 109, 0.079, 0.169, 0.07),
    Aside("64 to 512 A100s", "megatron-2022", "full", 109, 0.078, 0.404),
    Aside("2 to 8 A100s of one node", "megatron-2021", "full", 1440, 0.229, 0.341, 0.10),
    Aside("2 to 8 A100s of one node", "megatron-2021", "none", 1440, 0.080, 0.210),
    Aside("2 to 8 A100s of one node", "megatron-2022", "full", 1440, 0.571, 3.715),
)
OVER = 87  # the runs on several nodes that do not fit without recomputation


def vtrain(file: Path, software: str = "megatron-2021", recompute: str = "full") -> Iterable[Run]:
    """The runs of one of vTrain's two files, with these assumptions."""
    with open(file, newline="") as rows:
        for row in csv.DictReader(rows):
            yield _vtrain({name: float(cell) for name, cell in row.items()}, software, recompute)


def _vtrain(row: dict, software: str, recompute: str) -> Run:
    size = lambda name: int(row[name])
    length = size("sequence length")
    shape = Shape(size("# layers"), size("hidden size"), size("attention heads"), length, VOCABULARY, tied=True)
    p, t, d = (size(f"{name} parallelism") for name in ("pipeline", "tensor", "data"))
    plan = Plan(p, t, d, size("micro batch"), recompute=RECOMPUTE.index(recompute))
    seconds = row["iteration time (ms)"] / 1e3
    return Run("vtrain", "gpt", "a100", software, shape, plan, size("global batch"), seconds)


def found(folder: str | Path) -> list[Aside]:
    """The same as `ASIDE`, computed from vTrain's folder `data` by the public call."""
    names = {what: name for name, what in FILES.items()}
    return [_found(one, Path(folder) / names[one.what]) for one in ASIDE]


def _found(one: Aside, file: Path) -> Aside:
    sizes = np.abs([run.called() for run in vtrain(file, one.software, one.recompute)])
    median, most = (round(float(np.quantile(sizes, share)), 3) for share in (0.5, 0.9))
    return one._replace(rows=len(sizes), median=median, nine_of_ten=most)


def without_room(folder: str | Path) -> int:
    """`OVER`, computed from the same folder."""
    several, _ = FILES
    return [run.fits for run in vtrain(Path(folder) / several, recompute=RECOMPUTE[NONE])].count(False)


class Peer(NamedTuple):
    """Another predictor, its published accuracy, and the source."""

    name: str
    said: str
    source: str


UNCHECKED = "number from memory, not checked"
PEERS = (
    Peer(
        "Calculon",
        "3.65 % on average over runs of Megatron-LM on A100s (our rows `selective_recomputation`); the efficiencies of "
        "operations are set by hand",
        f"Isaev et al. 2023, SC'23, doi 10.1145/3581784.3607102; {UNCHECKED}",
    ),
    Peer(
        "vTrain",
        "8.37 % on one node and 14.73 % on several, on average over the runs above; kernels are profiled on the "
        "predicted GPU",
        f"Bang et al. 2024, MICRO'24, arXiv:2312.12391; {UNCHECKED}",
    ),
    Peer(
        "SimAI",
        "98.1 % alignment on average; kernels are measured on the predicted machine, the network is simulated packet "
        "by packet",
        "Wang et al. 2025, NSDI'25, abstract",
    ),
    Peer(
        "SimuMax",
        "43 rows on 8 B200s: time 5.6 % median, 13.5 % at most; memory 0.4 % median, 1.4 % at most; the efficiency of "
        "each shape is measured",
        "MooreThreads/SimuMax, docs/b200, summary 1.2, commit 4dcaae5; medians computed from its table",
    ),
    Peer(
        "Zhang et al.",
        "4.98 % on A100s and 9.38 % on GH200s on average, up to 128 GPUs; regressions are trained on samples of each "
        "operator on the predicted machine",
        "Zhang et al. 2025, arXiv:2509.22832, abstract",
    ),
    Peer(
        "Maya",
        "less than 5 %; the real program runs on an emulated device, and its kernels are predicted",
        "Yarlagadda et al. 2025, arXiv:2503.20191, abstract",
    ),
    Peer(
        "Charon",
        "less than 5.35 %, and less than 3.74 % for training on a large cluster; a simulator of operators",
        "Yang et al. 2026, arXiv:2605.17164, abstract",
    ),
)
