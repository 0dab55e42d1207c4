"""Soak: every row of the table that can be tried here, several times, and a thousand healthy runs; writes figures.

    python tests/faults/soak.py [--rounds 3] [--healthy 1000] [--out results/faults.json]

A fault counts as named when the sentence has the rank, the operation and the line (see `suffer.complaint`). Times are
from the fault until the sentence is there and every rank has gone.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from faults.suffer import complaint, suffer  # the path comes first
from faults.table import ROWS, Elsewhere, Needs, Run

from hybridlab.core.where.mesh import Mesh
from hybridlab.training.run import provenance
from hybridlab.world.processes.launch import RankError, ranks

HANG_S = 1.0
OPERATIONS = 100
COMMUNICATION = ("mismatch", "order", "tag", "deadlock", "left")


def faults(rounds: int) -> list[dict]:
    """Suffer every `Run` this often, in each of its kinds of work."""
    told = []
    with contextlib.ExitStack() as at_end:
        pools = {}
        for number in range(rounds):
            for row in (row for row in ROWS if isinstance(row.outcome, Run)):
                mesh = row.outcome.mesh
                if mesh not in pools:
                    pools[mesh] = at_end.enter_context(ranks(mesh, hang_s=HANG_S, timeout=30))
                for work in row.outcome.works or (None,):
                    told.append(_tried(pools[mesh], row, work))
                    wrong = told[-1]["wrong"]
                    if wrong:
                        print(f"round {number}, row {row.number}, {work}: {wrong}", flush=True)
    return told


def _tried(pool, row, work) -> dict:
    suffered = suffer(pool, row.outcome, work)
    try:
        goes_on = pool.run(lambda comm: comm.rank) == list(range(pool.size))
    except RankError:
        goes_on = False
    group = "hang" if row.outcome.hangs else "communication" if row.outcome.kind in COMMUNICATION else "crash"
    return {
        "row": row.number,
        "work": work,
        "group": group,
        "seconds": round(suffered.seconds, 3),
        "wrong": complaint(row.outcome, suffered),
        "left": len(suffered.left),
        "goes_on": goes_on,
    }


def healthy(comm, seed: int):
    """Operations by chance, the same on every rank, with nothing wrong in them; half of them torch's own."""
    chance = random.Random(seed)
    for _ in range(OPERATIONS):
        x, axis = torch.ones(chance.choice([1, 100, 5000])), chance.choice([None, "dp", "pp"])
        match chance.randrange(10):
            case 0:
                comm.all_reduce(x, axis)
            case 1:
                comm.all_gather(x, axis)
            case 2:
                comm.broadcast(x, chance.randrange(2), axis)
            case 3:
                comm.barrier(axis)
            case 4:
                ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                messages = [comm.isend(x, ahead), comm.irecv(torch.empty_like(x), behind)]
                for message in chance.sample(messages, 2):
                    message.wait()
            case 5:
                dist.all_reduce(x, async_op=True).wait()
            case 6:
                dist.all_gather([torch.empty_like(x) for _ in range(comm.size)], x)
            case 7:
                dist.broadcast(x, chance.randrange(comm.size))
            case 8:
                functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))
            case 9:
                ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                messages = [dist.P2POp(dist.isend, x, ahead), dist.P2POp(dist.irecv, torch.empty_like(x), behind)]
                for message in chance.sample(dist.batch_isend_irecv(messages), 2):
                    message.wait()


def alarms(runs: int) -> int:
    """How many of so many healthy runs were taken for faulty."""
    found = 0
    with ranks(Mesh(dp=2, pp=2), hang_s=HANG_S) as pool:
        for seed in range(runs):
            try:
                pool.run(healthy, seed)
            except RankError as error:
                found += 1
                print(f"false alarm, seed {seed}: {error}", flush=True)
    return found


def elsewhere() -> dict[str, str]:
    """The tests that the table names, run: by name, passed, failed or skipped."""
    files = sorted({f"tests/{row.outcome.name.split('::')[0]}" for row in ROWS if isinstance(row.outcome, Elsewhere)})
    names = {row.outcome.name.split("::")[1] for row in ROWS if isinstance(row.outcome, Elsewhere)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--slow",
        "--long",
        "--soak",
        "-v",
        "-p",
        "no:cacheprovider",
        "-k",
        " or ".join(names),
        *files,
    ]
    environ = {"FAULTS_REPEAT": "30", **os.environ}
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environ).stdout
    outcomes: dict[str, str] = {}
    for file, name, outcome in re.findall(r"^tests/(\S+?)::(\w+).*? (PASSED|FAILED|SKIPPED|ERROR)", out, re.MULTILINE):
        key = f"{file}::{name}"
        outcomes[key] = outcome.lower() if outcomes.get(key, "passed") == "passed" else outcomes[key]
    return outcomes


def summary(told: list[dict], outcomes: dict[str, str], runs: int, false: int) -> dict:
    """The figures, and what became of each row."""
    rows = []
    for row in ROWS:
        if isinstance(row.outcome, Needs):
            became = f"needs {row.outcome.what}"
        elif isinstance(row.outcome, Elsewhere):
            became = f"{outcomes.get(row.outcome.name, 'missing')}: {row.outcome.name}"
        else:
            tries = [one for one in told if one["row"] == row.number]
            became = f"named {sum(not one['wrong'] for one in tries)} of {len(tries)}"
        rows.append({"row": row.number, "fault": row.fault, "outcome": became})
    groups = {}
    for group in ("crash", "communication", "hang"):
        seconds = [one["seconds"] for one in told if one["group"] == group]
        groups[group] = {"median": statistics.median(seconds), "largest": max(seconds), "tries": len(seconds)}
    return {
        "hang_s": HANG_S,
        "tries": len(told),
        "named": sum(not one["wrong"] for one in told),
        "seconds": groups,
        "orphans": sum(one["left"] for one in told),
        "next_run_works": sum(one["goes_on"] for one in told),
        "healthy_runs": runs,
        "healthy_operations_per_rank": runs * OPERATIONS,
        "false_alarms": false,
        "rows": rows,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "faults.json")
    chosen = parser.parse_args()
    begin = time.monotonic()
    print("== 1 of 3: every fault of the table", flush=True)
    told = faults(chosen.rounds)
    print("== 2 of 3: healthy runs", flush=True)
    false = alarms(chosen.healthy)
    print("== 3 of 3: the tests that the table names", flush=True)
    outcomes = elsewhere()
    found = summary(told, outcomes, chosen.healthy, false)
    machine = provenance() | {"load": round(os.getloadavg()[2], 1)}
    record = {"command": "make soak", "took": round(time.monotonic() - begin), "machine": machine} | found
    chosen.out.write_text(json.dumps(record | {"repetitions": told}, indent=1, ensure_ascii=False) + "\n")
    for key in ("tries", "named", "seconds", "orphans", "next_run_works", "healthy_runs", "false_alarms"):
        print(f"{key}: {found[key]}")
    bad = [row for row in found["rows"] if "failed" in row["outcome"] or "missing" in row["outcome"]]
    for row in bad:
        print(f"row {row['row']}, {row['fault']}: {row['outcome']}")
    whole = (
        found["named"] == found["tries"] == found["next_run_works"] and not found["orphans"] and not false and not bad
    )
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
