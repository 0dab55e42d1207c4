"""How well step times are predicted: real processes and messages, emulated work, predicted over measured.

    python bench/emulated.py            a line for each kind of run, and PASS or MISS (5 %)
    python bench/emulated.py slices cp  only the lines whose names contain one of these words
    python bench/emulated.py --json     the same, and one JSON object on the last line

Every rank needs its own core for part of the time only: it sleeps instead of computing. But messages and the actions
between two waits take time, so run this on a quiet machine. Of several runs, the fastest counts. A pipeline's step is
that of `hl.run`; a layer's time is that of its slowest rank.
"""

import argparse
import json
import time

import torch

import hybridlab as hl
from hybridlab.core.where.chunks import Chunks
from hybridlab.labs.context.on_ranks import timed, waiting
from hybridlab.labs.experts.lending import stepped_with_loans
from hybridlab.labs.interleaved.longest_stage import head_in_pieces
from hybridlab.labs.slices import runs
from hybridlab.modes.context_parallel import by_heads_and_positions
from hybridlab.world.processes.launch import ranks

WITHIN, ROUNDS = 0.05, 3
P, M, SLICES = 4, 8, 4  # ranks, microbatches, slices of a row
HEAD = 2.0  # time of the head over that of a stage's blocks
UNIT = 0.08  # seconds of a forward of a stage
POSITIONS, PAIR = 64, 1e-3  # in a row; seconds for a pair of a query and a key
GROUPS, HEADS = 2, 2  # of usp: groups in the ring; heads, one on each rank of a group after the all-to-all


def of_pipelines() -> dict:
    """{name: (schedule, costs in seconds)}."""
    plain = hl.schedule("1f1b", P, M)
    found = {"1f1b": (plain, hl.Costs(F=UNIT, B=2 * UNIT))}
    for name in ("seq1f1b", "terapipe"):
        made = hl.schedule(name, P, M, slices=SLICES)
        found[f"slices, {name}"] = made, runs.costs(SLICES, UNIT, P)
    unequal = runs.lengths(SLICES, "equal")
    found["slices, equal lengths"] = hl.schedule("seq1f1b", P, M, slices=SLICES), runs.costs(unequal, UNIT, P)
    found["vocabulary_1f1b"] = hl.schedule("vocabulary_1f1b", P, M), head_in_pieces(P, UNIT, HEAD * UNIT)
    halves = hl.Costs(F=UNIT, I=UNIT, W=UNIT)
    found["rerouted, 1f1b"] = hl.rerouted(hl.schedule("1f1b", 2, M), 2, [1]), halves
    found["rerouted, zb_h1"] = hl.rerouted(hl.schedule("zb_h1", 2, M), 2, [1]), halves
    return found


def pipeline(schedule, costs) -> tuple[float, float]:
    """(predicted, measured) seconds of a step."""
    foreseen = hl.simulate(hl.lower(schedule), costs).length
    mesh = hl.Mesh(pp=schedule.ranks)
    return foreseen, min(hl.run(schedule, mesh=mesh, costs=costs, steps=1).length for _ in range(ROUNDS))


def contexts() -> dict[str, tuple[float, float]]:
    """(predicted, measured) seconds of the forward of one layer's attention."""
    with ranks(hl.Mesh(cp=P)) as pool:
        found = {f"cp, ring {form}": both for form, both in timed(pool, POSITIONS, PAIR, ROUNDS).items()}
        chunks = Chunks.zigzag(POSITIONS, GROUPS)
        found["cp, usp zigzag"] = max(chunks.pairs) * PAIR, max(pool.run(_usp, chunks))
    return found


def _usp(comm, chunks) -> float:
    ways = comm.size // GROUPS
    inner = [tuple(range(first, first + ways)) for first in range(0, comm.size, ways)]
    comm.open(*inner, *zip(*inner))
    q, k, v = torch.zeros(3, 1, HEADS, POSITIONS // comm.size, 4)
    took = []
    with waiting(PAIR):
        for _ in range(ROUNDS + 1):
            comm.barrier()
            begin = time.perf_counter()
            by_heads_and_positions(q, k, v, comm, chunks, ways)
            comm.barrier()
            took.append(time.perf_counter() - begin)
    return min(took[1:])  # the first one warms up


def experts() -> dict[str, tuple[float, float]]:
    """(predicted, measured) seconds of a step of one layer of experts with uneven loads."""
    found = {}
    for name, mesh, every in (("ep", hl.Mesh(ep=P), (0, 1, 2)), ("fold, ep·tp", hl.Mesh(ep=2, tp=2), (0,))):
        with ranks(mesh) as pool:
            for most, (number, *both) in stepped_with_loans(pool, every, each=1e-3, times=ROUNDS).items():
                found[f"{name}, {number} loans" if most else f"{name}, one hot expert"] = tuple(both)
    return found


def main():
    parser = argparse.ArgumentParser(description="Step times of emulated runs, predicted over measured.")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    wanted = lambda name: not chosen.words or any(word in name for word in chosen.words)
    results, failed = {}, False
    print(f"{'':30}  {'predicted, ms':>13}  {'measured, ms':>12}  ratio")

    def told(name, predicted, measured):
        nonlocal failed
        ratio = predicted / measured
        verdict = "PASS" if abs(ratio - 1) <= WITHIN else "MISS"
        failed |= verdict == "MISS"
        print(f"{name:30}  {1e3 * predicted:13.0f}  {1e3 * measured:12.0f}  {ratio:5.3f}  {verdict}", flush=True)
        results[name] = {"predicted": predicted, "measured": measured, "ratio": ratio}

    for name, about in of_pipelines().items():
        if wanted(name):
            told(name, *pipeline(*about))
    for family, found in (("cp", contexts), ("ep fold", experts)):
        if not chosen.words or any(word in family for word in chosen.words):
            for name, both in found().items():
                told(name, *both)
    if chosen.json:
        print(json.dumps(results))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
