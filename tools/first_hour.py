"""Run the first hour on a GPU as one command: everything that a GPU should run once, with a record of the results.

    python -m tools.first_hour            every step that was not yet run on this machine with this code
    python -m tools.first_hour --again    all of them
    python -m tools.first_hour --only ways course   these steps
    python -m tools.first_hour --nccl     ranks that share a GPU communicate via NCCL where torch's own code needs it
    python -m tools.first_hour --emulated what can be run on the emulated accelerator, without a GPU

Each step, or each of its notebooks and jobs, has a limit of ten minutes. You can stop the command and continue later.
The results are in results/first-hour/, with a summary page. With one GPU the ranks share it, so no result shows a
speed-up; with several GPUs, each rank has one.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from hybridlab.measuring import course_suite, machine
from hybridlab.measuring.recorded import counted
from hybridlab.measuring.row import in_words
from hybridlab.world.devices import gpus
from hybridlab.world.devices.placement import ASKED
from tools import steps
from tools.course import FOLDER, HOUSE
from tools.steps import Step

MATRIX = "tests/accelerator/matrix.py"
EMULATED = "gpu:8"  # as HYBRIDLAB_DEVICES names devices that are emulated
WHERE = "placement"  # in what a benchmark found; all else are its rows
MOST = 8  # ranks of a job
TITLE = "The first hour on a GPU, written by `make gpu`"
BLOCK = ("forward_s", "backward_s", "saved_bytes")  # of what is measured, that which is predicted too
PROOF = ("tests/accelerator", "tests/equality.py")


def main(arguments=None) -> int:
    """Run the steps; returns the exit code: 0 if each step has results, or a reason why it cannot run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat what was run before")
    parser.add_argument("--nccl", action="store_true", help="on one GPU: let ranks share it by NCCL, where needed")
    parser.add_argument("--emulated", action="store_true", help="run what the emulated accelerator can")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="the steps to run; all, unless given")
    parser.add_argument("--minutes", type=float, default=10, help="the limit of a step, a notebook, a job (default 10)")
    parser.add_argument("--jobs", type=int, help="jobs and notebooks at the same time (default 1; 2 emulated jobs)")
    parser.add_argument("--results", type=Path, default=HOUSE / "results", help="default: results/")
    chosen = parser.parse_args(arguments)
    here = gpus.here()
    usable, why = here.for_ranks(MOST)
    if not usable and not chosen.emulated:
        would = ", ".join(step.name for step in on_a_gpu(1, False))
        what = f"There is a GPU here, but {why}" if why else "There is no GPU here that torch can use"
        print(f"{what}. With one, this would run {would}.", file=sys.stderr)
        return 2
    # an emulated GPU's speed says nothing
    todo = equality(chosen.jobs) if chosen.emulated else on_a_gpu(len(here), chosen.nccl, chosen.jobs)
    if unknown := set(chosen.only or ()) - {step.name for step in todo}:
        parser.error(f"there is no step {min(unknown)!r}: choose {', '.join(step.name for step in todo)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as at Ctrl-C, the step that runs is ended too
    os.environ.pop(ASKED, None)  # the devices that are here, whatever was said before
    if chosen.emulated:
        os.environ[ASKED] = EMULATED
    on = "an emulated accelerator" if chosen.emulated else counted([gpu.name for gpu in here.usable])
    folder = chosen.results / "first-hour" / re.sub(r"[^a-z0-9]+", "-", on.lower()).strip("-")
    key = {"machine": on, **_build(here.driver)}
    records = steps.run(todo, folder, TITLE, key, limit=60 * chosen.minutes, again=chosen.again, only=chosen.only or ())
    print(f"The page: {folder / 'README.md'}")
    asked = [record for record in records if not chosen.only or record["step"] in chosen.only]
    return int(any("found" not in record and "why" not in record for record in asked))


def on_a_gpu(gpus: int, nccl: bool, jobs: int | None = None) -> list[Step]:
    """The steps on a machine with so many GPUs, with so many jobs and notebooks at the same time."""
    shared = gpus < 2
    backend = ("--backend", "nccl") if shared and nccl else ()
    needs = "torch's pipelining cannot send by gloo: it needs two GPUs, or --nccl" if shared and not nccl else ""
    return [
        Step(
            "doctor",
            "whether ranks start and talk",
            ("-m", "hybridlab", "doctor", "--json"),
            _of_the_doctor,
            code=steps.code(),
        ),
        *equality(jobs),
        Step(
            "blocks",
            "how long a transformer block takes, and what it saves, next to our prediction",
            ("bench/blocks.py", "--json"),
            _of_blocks,
            code=steps.code("bench"),
        ),
        Step(
            "pipelining",
            "our pipeline runtime next to torch.distributed.pipelining",
            ("bench/pipeline.py", "--json", *backend),
            _of_pipelining,
            needs,
            code=steps.code("bench"),
        ),
        Step(
            "sharding",
            "our data, sharded and tensor parallelism next to DDP, FSDP2 and torch's tensor parallelism",
            ("bench/sharding.py", "--json", *backend),
            _of_sharding,
            code=steps.code("bench", "tests/training/test_oracle.py"),
        ),
        Step(
            "ways",
            "by which ways ranks share a GPU, and what a GPU for each changes",
            suite("gpu"),
            _of_ways,
            code=steps.code(),
        ),
        Step(
            "course",
            "what the notebooks measure",
            (*suite("course"), *_at_once(jobs), "--only"),
            _of_the_course,
            parts=lambda: [path.stem for path in course_suite.notebooks(FOLDER)],
            part="notebook",
            code=" ".join((steps.code("notebooks"), *_at_once(jobs))),  # a record is of one number of notebooks at once
        ),
    ]


def equality(jobs: int | None = None) -> list[Step]:
    """Check that every kind of parallelism equals one device, in four steps, selected by words in the jobs' names."""
    missing = "" if (HOUSE / MATRIX).exists() else f"{MATRIX} is not in this copy"
    kinds = {
        "modes": ("mode ", "every mode and form"),
        "schedules": ("schedule ", "every schedule on two and on four ranks"),
        "models": ("model ", "every reference model"),
        "pairs": ("pair ", "every two choices that can be joined"),
    }
    return [
        Step(
            name,
            f"whether {what} equals one device",
            (MATRIX, *_at_once(jobs)),
            _of_equality,
            missing,
            parts=partial(_jobs, word),
            code=steps.code(*PROOF),
        )
        for name, (word, what) in kinds.items()
    ]


def _at_once(jobs: int | None) -> tuple[str, ...]:
    return ("--jobs", str(jobs)) if jobs else ()


def _jobs(word: str) -> list[str]:
    """The names of the jobs that contain a word."""
    asked = [sys.executable, MATRIX, "--list", word]
    return subprocess.run(asked, cwd=HOUSE, capture_output=True, text=True, check=True).stdout.splitlines()


def suite(name: str) -> tuple[str, ...]:
    """The command that measures a suite."""
    return "-m", "hybridlab", "measure", "--suite", name, "--json"


def _build(driver: str) -> dict:
    """The driver, torch, and the CUDA that this build of torch was made with; a missing one is left out."""
    import torch

    found = {"driver": driver, "torch": machine.version("torch"), "CUDA": torch.version.cuda}
    return {name: version for name, version in found.items() if version}


def _of_the_doctor(found):
    (facts,) = found
    told = ("4 ranks", "GPU driver", "ranks fail", "alpha, µs", "beta, s per GB", "alpha and beta on", "what to do")
    return [f"{name}: {facts[name]}" for name in told if name in facts]


def _of_equality(jobs):
    wrong = [job for job in jobs if not job["ok"]]
    largest = max((job["largest_gap"] for job in jobs if job["ok"]), default=0.0)
    told = f"{len(jobs) - len(wrong)} of {len(jobs)} equal; the largest gap of these {largest:.1e}"
    return [told, *(f"{job['name']}: {job['error']}" for job in wrong)]


def _of_pipelining(found):
    (one,) = found
    told = "{}: torch / ours {ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f}), {tokens_per_second:,.0f} tokens/s"
    return [one[WHERE], *(told.format(name, **row) for name, row in one.items() if name != WHERE)]


def _of_blocks(found):
    (one,) = found
    off = lambda name: [abs(row["predicted"][name] / row[name] - 1) for row in one["rows"]]
    told = [f"{name.partition('_')[0]} predicted within {statistics.median(off(name)):.0%} (median)" for name in BLOCK]
    return [f"{one['gpu']}: a large matmul at {one['product_flops'] / 1e12:.0f} TFLOP/s", *told]


def _of_sharding(found):
    (one,) = found
    told = "{}: ours / {peer} {ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f}), {ours_ms:.1f} ms"
    failed = "{}: {failed}"
    rows = {name: row for name, row in one.items() if name != WHERE}
    return [one[WHERE], *((failed if "failed" in row else told).format(name, **row) for name, row in rows.items())]


def _of_ways(found):
    (one,) = found
    return [in_words(row) for row in one["rows"]]


def _of_the_course(notebooks):
    failed = [f"{one['notebook']}: {one['failed']}" for one in notebooks if "failed" in one]
    return [f"{len(notebooks) - len(failed)} of {len(notebooks)} notebooks ran", *failed]


if __name__ == "__main__":
    sys.exit(main())
