"""Soak: as many combinations of the whole table as some minutes allow, drawn at random, no one twice; writes figures.

    python tests/equality_soak.py [--minutes 10] [--seed 0] [--out results/equality.json]

Every legal combination of `equality.FACTORS` is checked against one device, as tests do with a few. There are millions,
so a run is a sample; it says how large, which pairs and triples of choices it has met, and how long all would take.
Combinations are drawn mesh by mesh, so that ranks stay.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import random
import sys
import time

import equality

from hybridlab.training.run import provenance

ROOT = pathlib.Path(__file__).parents[1]

BATCH = 12  # combinations of one mesh in a row


def drawn(cores, chance):
    """Yield batches of combinations on one mesh, for ever, none of them twice."""
    by_mesh, seen = {}, set()
    for one in cores:
        by_mesh.setdefault(equality.mesh_of(one), []).append(one)
    while True:
        meshes = list(by_mesh)
        for mesh in chance.sample(meshes, len(meshes)):
            batch = []
            for _ in range(BATCH):
                one = chance.choice(by_mesh[mesh]) | {
                    name: chance.choice(equality.FACTORS[name]) for name in equality.FREE
                }
                if equality.fills(one) and (key := tuple(one.values())) not in seen:
                    seen.add(key)
                    batch.append(one)
            yield batch


def tried(bench, one) -> dict:
    """One combination: its gaps, or what went wrong."""
    begin, found = time.monotonic(), {"name": equality.name_of(one)}
    try:
        report = bench.check(one)
    except Exception as error:  # a refusal is a failure too: the table says that this can be
        found |= {"ok": False, "gap": None, "adam": None, "wrong": f"{type(error).__name__}: {error}"[:600]}
    else:
        adam = max(report.adam.values(), default=None)
        found |= {"ok": report.ok, "gap": report.largest_gap, "adam": adam, "wrong": "" if report.ok else str(report)}
    return found | {"seconds": round(time.monotonic() - begin, 3)}


def met(combinations, number: int) -> set:
    """The tuples of so many choices that meet in these combinations."""
    return {tuple_ for one in combinations for tuple_ in itertools.combinations(one.items(), number)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "equality.json")
    chosen = parser.parse_args()
    cores, chance = equality.cores(), random.Random(chosen.seed)
    legal = len(cores) * math.prod(len(equality.FACTORS[name]) for name in equality.FREE)
    print(f"{legal:,} legal combinations; {chosen.minutes:g} minutes of them", flush=True)
    told, done, begin = [], [], time.monotonic()
    with equality.Bench() as bench:
        for one in itertools.chain.from_iterable(drawn(cores, chance)):
            if time.monotonic() - begin > 60 * chosen.minutes:
                break
            done.append(one)
            told.append(tried(bench, one))
            if not told[-1]["ok"]:
                print(f"{told[-1]['name']}: {told[-1]['wrong'].splitlines()[0]}", flush=True)
    took = time.monotonic() - begin
    gaps = {one["name"]: one["gap"] for one in told if one["ok"]}
    worst = max(gaps, key=gaps.get, default=None)
    failed = [one for one in told if not one["ok"]]
    found = {
        "legal": legal,
        "tried": len(told),
        "equal": len(gaps),
        "failed": len(failed),
        "largest_gap": gaps.get(worst),
        "largest_gap_of": worst,
        "largest_share_of_adams_bound": max((one["adam"] for one in told if one["adam"]), default=None),
        "meshes": len({str(equality.mesh_of(one)) for one in done}),
        "pairs_met": len(met(done, 2)),
        "triples_met": len(met(done, 3)),
        "seconds_each": round(took / max(1, len(told)), 3),
        "days_for_all": round(legal * took / max(1, len(told)) / 86400, 1),
    }
    command = f"make soak-equality ARGS='--minutes {chosen.minutes:g} --seed {chosen.seed}'"
    machine = provenance() | {"load": round(os.getloadavg()[2], 1)}
    record = {"command": command, "took": round(took), "machine": machine} | found | {"failures": failed}
    names = {name: [str(value) for value in choices] for name, choices in equality.FACTORS.items()}
    text = json.dumps(record | {"factors": names}, indent=1, ensure_ascii=False)
    chosen.out.write_text(text + "\n")
    for key, value in found.items():
        print(f"{key}: {value}")
    sys.exit(1 if failed or not told else 0)


if __name__ == "__main__":
    main()
