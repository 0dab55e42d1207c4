"""What it costs to write everything down: ledger and journal, for each operation and as a share of a training step.

    python bench/journal.py           two lines and PASS or MISS
    python bench/journal.py --json    the same, and one JSON object on the last line

One operation is written down three times, as a rank does: announced, waited for, ended. The share of a step is derived:
operations of the busiest rank in a step of a small GPT on four ranks, times the cost of one, over the step's length.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.training.run import provenance
from hybridlab.world.talk.groups import Group
from hybridlab.world.talk.journal import RING, Journal, Pen, create
from hybridlab.world.talk.ledger import Ledger

MOST = 10e-6  # seconds for one operation
ROUNDS = 40


def one_operation(ledger: Ledger, reader: Journal | None = None) -> float:
    """Seconds of processor time for writing down one operation, the median of rounds."""
    group, x, rounds = Group("dp", (0, 1, 2, 3), None), torch.ones(64, 64), []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(RING):
            row = ledger.begin("all_reduce", group, x.nbytes, x, how="sum", waits=False)
            ledger.waiting(row)
            ledger.end(row)
        rounds.append((time.process_time() - begin) / RING)
        if reader:
            reader.news(0, 1)
        ledger.clear()
    return statistics.median(rounds)


def costs() -> tuple[float, float]:
    """Seconds for one operation, in the ledger alone and with the journal."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "journal")
        reader, pen = create(path, 1), Pen(path, 0)
        pen.begin_run(1)
        return one_operation(Ledger(Mesh(dp=4))), one_operation(Ledger(Mesh(dp=4), pen), reader)


def step() -> tuple[float, float]:
    """Seconds of one training step of a pipeline of four ranks, and the operations of its busiest rank."""
    steps = 4
    measured = hl.run(hl.schedule("1f1b", ranks=4, microbatches=8), work="model", steps=steps)
    counts = [sum(row["rank"] == rank for row in measured.ledger) for rank in range(4)]
    return measured.length, max(counts) / (steps + 1)  # the ledger holds one step more, which is not measured


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    alone, both = costs()
    length, operations = step()
    share = operations * both / length
    print(f"one operation: {both * 1e6:.1f} µs with the journal, {alone * 1e6:.1f} µs in the ledger alone")
    print(f"a step of {length * 1e3:.0f} ms has {operations:.0f} operations on a rank: {share:.2%} of it")
    print("PASS" if both <= MOST else "MISS", f"(at most {MOST * 1e6:.0f} µs)")
    if chosen.json:
        found = {"ledger_s": alone, "both_s": both, "step_s": length, "operations": operations, "share": share}
        print(json.dumps(found | {"machine": provenance()}))


if __name__ == "__main__":
    main()
