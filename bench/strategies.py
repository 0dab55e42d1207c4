"""Strategies of small programs, predicted beside measured: does the simulator tell the faster one from the slower?

    python bench/strategies.py                  a table: each program on two ranks and on 2 × 2
    python bench/strategies.py --clock core     seconds in which a rank had a core: for a machine that is busy
    python bench/strategies.py --json           the same, and one JSON object on the last line
    python bench/strategies.py --ranks 2        only two ranks; --device cuda for GPUs

Strategies are drawn by a seed: half of them operator by operator, half from the tables of rules, which differ more.
Pieces, collectives and whole steps are measured in turns, in one run (`measuring.strategies`); predictions come from
the pieces and collectives alone. *agree*: of all pairs of strategies whose predictions differ by more than 20 %, the
share that is measured in the same order. *ratio*: measured over predicted, median and middle half. All strategies give
the same numbers (tests/modes/test_strategies.py).
"""

import argparse
import itertools
import json
import random
import statistics
import time

import where

from hybridlab.core.what import programs
from hybridlab.core.what.operators import drawn, every_rules, shared
from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.strategies import timed
from hybridlab.predict.search.problem import Problem
from hybridlab.world.processes.launch import ranks

APART = 1.2
MESHES = {2: Mesh(i=2), 4: Mesh(i=2, j=2)}
PROGRAMS = {
    "cpu": {
        "mlp": programs.mlp(16, 32, 256, 1024),
        "classifier": programs.classifier(64, 16, 192, 64, 1024, 64),
        "transformer": programs.transformer(8, 64, 256, 512, 8, 32),
        "net": programs.net(16, 8, 16, 32, 32, 3, 64),
    },
    "cuda": {
        "mlp": programs.mlp(64, 128, 2048, 8192),
        "classifier": programs.classifier(1024, 64, 768, 256, 8192, 1024),
        "transformer": programs.transformer(16, 1024, 2048, 8192, 16, 128),
        "net": programs.net(64, 64, 128, 128, 128, 3, 1024),
    },
}


def some(graph, mesh, count: int, seed: int) -> list:
    """So many strategies, none twice: half drawn operator by operator, half from the tables of rules."""
    tables = [shared(graph, rules, mesh) for rules in every_rules(graph, mesh)]
    chosen = random.Random(seed).sample(tables, min(count // 2, len(tables)))
    every = [*chosen, *drawn(graph, mesh, count - len(chosen), seed)]
    return list({tuple(one.items()): one for one in every}.values())


def agreement(predicted: list[float], measured: list[float], apart: float = APART) -> tuple[int, int]:
    """(pairs in the same order, pairs) of those whose predictions differ by more than this factor."""
    pairs = itertools.combinations(zip(predicted, measured), 2)
    told = [(a < b) == (x < y) for (a, x), (b, y) in pairs if max(a, b) > apart * min(a, b)]
    return sum(told), len(told)


def compared(graph, mesh, chosen, placed) -> dict:
    """One row of the table."""
    strategies = some(graph, mesh, chosen.strategies, chosen.seed)
    with ranks(mesh, placement=placed, timeout=600.0) as pool:
        found = timed(pool, graph, strategies, chosen.rounds, chosen.clock)
    problem = Problem(graph, mesh, found.profile)
    predicted = [problem.seconds(one) for one in strategies]
    measured = [statistics.median(one) for one in found.steps]
    same, pairs = agreement(predicted, measured)
    ratios = statistics.quantiles([real / said for said, real in zip(predicted, measured)], n=4)
    return {
        "strategies": len(strategies),
        "pieces": len(found.profile.seconds),
        "pairs": pairs,
        "agree": same,
        "predicted_ms": [1e3 * min(predicted), 1e3 * max(predicted)],
        "measured_ms": [1e3 * min(measured), 1e3 * max(measured)],
        "ratio": ratios,
    }


def main():
    parser = argparse.ArgumentParser(description="Predicted beside measured steps of strategies drawn by a seed.")
    parser.add_argument("--strategies", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", choices=("wall", "core"), default="wall")
    parser.add_argument("--ranks", type=int, choices=(2, 4), help="only so many ranks")
    parser.add_argument("--json", action="store_true")
    where.add_flags(parser)
    chosen = parser.parse_args()
    results = {"when": time.strftime("%Y-%m-%d"), "clock": chosen.clock}
    for count in (chosen.ranks,) if chosen.ranks else MESHES:
        placed = where.placed(chosen, count)
        for name, graph in PROGRAMS[placed.kind].items():
            what = f"{name}, {count} ranks"
            row = results[what] = compared(graph, MESHES[count], chosen, placed)
            share = row["agree"] / max(1, row["pairs"])
            low, middle, high = row["ratio"]
            print(f"{what:20}  agree {row['agree']:4} of {row['pairs']:4} = {share:.2f}", end="  ")
            print(f"ratio {middle:.2f} ({low:.2f} to {high:.2f})", end="  ")
            print("predicted {:.1f} to {:.1f} ms".format(*row["predicted_ms"]), flush=True)
    rows = [row for row in results.values() if isinstance(row, dict)]
    same, pairs = (sum(row[what] for row in rows) for what in ("agree", "pairs"))
    print(f"all together: agree {same} of {pairs} = {same / max(1, pairs):.3f}")
    if chosen.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
