"""Every kind of job, proved on a GPU: the real ones of this machine, or the emulated accelerator.

    python tests/accelerator/matrix.py [WORD…] [--devices N] [--jobs N] [--list]

Real processes train as one device does, job by job, on emulated devices two at a time, or as many as --jobs says: all
schedules, all modes and forms, the reference models, and the table in which every two choices meet (tests/equality.py).
Each tells one line of JSON: name, ok, largest_gap, seconds, error. Words choose the jobs whose names hold one of them;
the whole name of a job chooses that one. The exit code is 1 when anything differs.

Where torch sees no GPU, or HYBRIDLAB_DEVICES says gpu:N, devices are emulated: eight, so that each rank has its own and
communicates as via NCCL; with --devices 1 all share one and communicate via gloo.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the table of combinations is there

import equality

import hybridlab as hl
from accelerator.environment import on_devices
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.scheduling.dispatched import dual_batch
from hybridlab.scheduling.registry import schedule, schedules
from hybridlab.scheduling.rerouted import rerouted

DEEP = Shape(layers=8)
SKIPPED = Shape(layers=4, skips=True)
BRANCHED = Shape(layers=2, parallel=True)
EXPERTS = Shape(layers=2, experts=5, chosen=2)


def of_schedules() -> dict:
    """Every schedule on two ranks, and on four."""
    shape = lambda name: BRANCHED if name == "subgraph" else DEEP
    more = lambda name: {"schedule": name, "shape": shape(name), "microbatches": 8}
    return {f"schedule {name} p={p}": (Mesh(pp=p), more(name)) for name in schedules() for p in (2, 4)}


MODES = {
    "dp": (Mesh(dp=2), {}),
    "dp each": (Mesh(dp=2), {"sums": "each"}),
    "dp buckets": (Mesh(dp=4), {"sums": "buckets"}),
    "dp muon blocks": (Mesh(dp=2, tp=2), {"optimizer": "muon", "muon": "blockwise", "rate": 0.01, "zero": 1}),
    "dp local": (Mesh(dp=2), {"sums": "local", "sync_every": 1}),
    "dp local streaming": (Mesh(dp=2), {"sums": "local", "fragments": 2, "sync_delay": 1, "mix": 0.5}),
    "copies 3-1": (Mesh(pp=4), {"schedule": "pipedream", "copies": (3, 1), "microbatches": 6}),
    "predicted weights": (
        Mesh(pp=4),
        {"schedule": "pipedream", "predict_weights": True, "optimizer": "adamw", "rate": 0.01},
    ),
    "dp accumulate": (Mesh(dp=2), {"accumulate": 2, "sums": "buckets"}),
    "zero 1": (Mesh(dp=2), {"zero": 1}),
    "zero 2": (Mesh(dp=2), {"zero": 2}),
    "zero 3": (Mesh(dp=2), {"zero": 3}),
    "zero 3 pipeline": (Mesh(dp=2, pp=2), {"zero": 3, "schedule": "interleaved"}),
    "zero 1 hybrid": (Mesh(dp=4), {"zero": 1, "owners": 2}),
    "zero 3 hybrid": (Mesh(dp=4), {"zero": 3, "owners": 2}),
    "zero 1 two levels": (Mesh(dp=4), {"zero": 1, "owners": 2, "two_levels": True}),
    "zero 3 two levels": (Mesh(dp=4), {"zero": 3, "owners": 2, "two_levels": True}),
    "zero 3 second copies": (Mesh(dp=4), {"zero": 3, "secondary": 2}),
    "tp": (Mesh(tp=2), {}),
    "tp sequence": (Mesh(tp=2), {"sequence": True}),
    "tp sequence one kv head": (Mesh(tp=4), {"sequence": True, "shape": Shape(kv_heads=1)}),
    "tp overlap both ways": (Mesh(tp=4), {"sequence": True, "overlap": True, "directions": 2}),
    "tp scatter": (Mesh(pp=2, tp=2), {"scatter": True}),
    "all three": (Mesh(dp=2, pp=2, tp=2), {"zero": 1}),
    "bf16 adamw clip": (Mesh(dp=2, pp=2), {"dtype": "bfloat16", "optimizer": "adamw", "clip": 1.0, "rate": 0.01}),
    "bf16 zero 2": (Mesh(dp=2), {"dtype": "bfloat16", "optimizer": "adamw", "zero": 2, "rate": 0.01}),
    "float32": (Mesh(dp=2, pp=2), {"dtype": "float32"}),
    "adamw decay": (Mesh(dp=2), {"optimizer": "adamw", "decay": 0.1, "rate": 0.01}),
    "clip": (Mesh(dp=2, pp=2, tp=2), {"clip": 0.05}),
    "clip validated": (Mesh(pp=2, tp=2), {"clip": 0.5, "validated": "after", "schedule": "zb_h2"}),
    "offload": (Mesh(dp=2, pp=2), {"offload": True, "optimizer": "adamw", "rate": 0.01, "clip": 0.05}),
    "offload zero 3": (Mesh(dp=2), {"offload": True, "zero": 3}),
    "weights on hosts": (Mesh(dp=2, pp=2), {"offload": True, "zero": 3, "owners": 1, "schedule": "interleaved"}),
    "swapped": (Mesh(dp=2, pp=2), {"schedule": "gpipe", "device_memory": 0.5, "zero": 1}),
    "swapped skips": (
        Mesh(pp=4),
        {"schedule": "gpipe", "device_memory": 0.4, "shape": SKIPPED, "accumulate": 2},
    ),
    "dropout": (Mesh(dp=2, pp=2), {"shape": Shape(dropout=0.1)}),
    "dropout sequence": (Mesh(tp=2), {"shape": Shape(dropout=0.1), "sequence": True}),
    "tied": (Mesh(pp=2), {"shape": Shape(tied=True)}),
    "tied tp": (Mesh(pp=2, tp=2), {"shape": Shape(tied=True)}),
    "tied chimera": (Mesh(pp=4), {"shape": Shape(layers=8, tied=True), "schedule": "chimera"}),
    "tied buckets": (Mesh(pp=4), {"shape": Shape(layers=8, tied=True), "schedule": "interleaved", "sums": "buckets"}),
    "skips": (Mesh(pp=4), {"shape": SKIPPED}),
    "skips dp": (Mesh(dp=2, pp=2), {"shape": SKIPPED, "zero": 1}),
    "ahead 1": (Mesh(pp=4), {"ahead": 1}),
    "ahead 2": (Mesh(pp=4), {"ahead": 2, "microbatches": 8}),
    "ahead skips": (Mesh(pp=4), {"ahead": 1, "shape": SKIPPED}),
    "ahead interleaved": (Mesh(pp=4), {"ahead": 2, "schedule": "interleaved", "shape": DEEP}),
    "ahead dualpipe": (Mesh(pp=4), {"ahead": 1, "schedule": "dualpipe", "shape": DEEP, "microbatches": 8}),
    "slices": (Mesh(dp=2, pp=2), {"schedule": "seq1f1b", "slices": (14, 10, 8), "zero": 3}),
    "slices of equal cost tp": (Mesh(pp=2, tp=2), {"schedule": "terapipe", "slices": 3, "slicing": "cost"}),
    "context documents": (Mesh(cp=2), {"zigzag": True, "shape": Shape(documents=(21, 11), style="llama")}),
    "context groups": (Mesh(cp=4), {"attend": "usp", "shape": Shape(documents=(21, 11), style="llama")}),
    "experts lent": (Mesh(ep=2), {"shape": EXPERTS, "expert_copies": {0: 1, 3: 0}, "zero": 1}),
    "experts lent tp": (Mesh(ep=2, tp=2), {"shape": EXPERTS, "expert_copies": {0: 1}, "sequence": True}),
    "experts dual batch": (Mesh(ep=2), {"schedule": dual_batch(3), "shape": replace(EXPERTS, layers=1), "batch": 6}),
    "lost rank": (Mesh(pp=4), {"schedule": rerouted(schedule("1f1b", 2, 4), 2, [1]), "shape": Shape(layers=2)}),
    "lost rank zero 3": (
        Mesh(pp=4, cp=2),
        {"schedule": rerouted(schedule("zb_h1", 2, 4), 2, [1]), "shape": Shape(layers=2), "zero": 3},
    ),
    "driven": (Mesh(pp=4), {"driven": True, "microbatches": 8}),
    "driven dp": (Mesh(dp=2, pp=2), {"driven": True}),
}
MODELS = {
    "model conv": (Mesh(dp=2, pp=2), {"model": "conv"}),
    "model conv zero 3": (Mesh(dp=2), {"model": "conv", "zero": 3}),
    "model unet": (Mesh(pp=2), {"model": "unet"}),
    "model unet dp": (Mesh(dp=2, pp=2), {"model": "unet", "zero": 1}),
    "model inception": (Mesh(pp=4), {"model": "inception", "schedule": "subgraph"}),
    "model resnet": (Mesh(dp=2, pp=2), {"model": "resnet"}),
    "model modern": (Mesh(dp=2, pp=2), {"model": "modern"}),
    "model modern tp": (Mesh(pp=2, tp=2), {"model": "modern"}),
    "model multi_token": (Mesh(dp=2, pp=2), {"model": "multi_token", "zero": 1}),
    "model multi_token tp": (Mesh(pp=2, tp=2), {"model": "multi_token"}),
}


def of_pairs() -> dict:
    """The combinations in which every legal pair of choices meets."""
    return {f"pair {equality.name_of(one)}": equality.asked(one) for one in equality.pairwise("texts")}


@cache
def jobs() -> dict:
    """{name: (mesh, the other arguments of hl.check)}."""
    return {f"mode {name}": job for name, job in MODES.items()} | of_schedules() | MODELS | of_pairs()


def chosen_by(words: list[str]) -> list[str]:
    """The names of the jobs that these words choose; all, where there are none."""
    chooses = lambda word, name: word == name if word in jobs() else word in name
    return [name for name in jobs() if not words or any(chooses(word, name) for word in words)]


def proved(name: str) -> dict:
    """What one job tells. Its ranks are new ones: those that have met before cannot stand still for each other."""
    mesh, arguments = jobs()[name]
    begin, told = time.monotonic(), {"name": name, "ok": False, "largest_gap": None, "error": ""}
    try:
        report = hl.check(mesh, **arguments)
        told |= {"ok": report.ok, "largest_gap": report.largest_gap, "error": "" if report.ok else str(report)}
    except Exception as error:  # whatever it is, the other jobs are proved
        told["error"] = f"{type(error).__name__}: {error}"
    return told | {"seconds": round(time.monotonic() - begin, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="of the names of the jobs to prove; all, unless given")
    parser.add_argument("--devices", type=int, default=8, help="emulated ones, where there is no GPU")
    parser.add_argument("--jobs", type=int, help="at the same time; default 1 on GPUs, 2 on emulated ones")
    parser.add_argument("--list", action="store_true", help="say the names of these jobs, and prove none")
    chosen = parser.parse_args()
    found = chosen_by(chosen.words)
    if chosen.list:
        print(*found, sep="\n")
        return 0
    where, emulating = on_devices(chosen.devices)
    told, begin = [], time.monotonic()
    at_once = chosen.jobs or (2 if emulating else 1)  # on GPUs, jobs share memory, which may be too little for two
    with ProcessPoolExecutor(at_once, get_context("spawn")) as drivers:
        for one in drivers.map(proved, found):
            told.append(one)
            print(json.dumps(one), flush=True)
    wrong = [one["name"] for one in told if not one["ok"]]
    seconds = time.monotonic() - begin
    print(f"{len(told)} jobs on {where} in {seconds:.0f} s; {len(wrong)} differ", *wrong, sep="\n  ")
    return 1 if wrong or not told else 0


if __name__ == "__main__":
    sys.exit(main())
