"""Out of core: how long emulated steps with copies take beside what was predicted; what real copies cost a real model.

    python bench/out_of_core.py            two tables, and PASS or MISS
    python bench/out_of_core.py --json     the same, and one JSON object on the last line

Emulated: real ranks, messages and waiting, copies that take as long as stated; the median of some steps over the
simulator's length. Real: a GPT trains within less and less memory; the most that a rank kept, the bytes it copied.
"""

import argparse
import json
import os

import hybridlab as hl
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.out_of_core import planned
from hybridlab.training.make_job import job_of
from hybridlab.training.out_of_core import copied, most_held, weighed

ALLOWED = 0.05
BLOCKS, CAPACITY = 8, 4
SHAPE = hl.Shape(layers=8, width=64, heads=4, context=64)
SHARES = (1.0, 0.5, 0.25, 0.15)


def chain(blocks: int) -> Schedule:
    """Blocks on one rank: forwards down, backwards up."""
    actions = [f"{s}F0" for s in range(blocks)] + [f"{s}B0" for s in reversed(range(blocks))]
    return Schedule.from_csv(",".join(actions), name=f"chain of {blocks}")


def cases(unit: float):
    """(what, schedule, room, costs) of the emulated runs; a forward takes `unit` seconds."""
    for swap in (1, 2, 4):
        costs = hl.Costs(F=unit, B=2 * unit, swap=swap * unit)
        room, one = hl.Room(CAPACITY), chain(BLOCKS)
        yield f"swap all, {swap}", hl.swapped(one, None, room), room, costs
        yield f"best mixture, {swap}", planned(one, room, costs).schedule, room, costs
    room, costs = hl.Room(2), hl.Costs(F=unit, B=2 * unit, swap=unit)
    yield "gpipe held at 2", hl.swapped(hl.schedule("gpipe", 2, 8), None, room), room, costs


def emulated(unit: float, steps: int) -> list[dict]:
    """One row for each case."""
    rows = []
    for what, schedule, room, costs in cases(unit):
        ideal = hl.simulate(schedule, costs, room=room, rendezvous=True)
        real = hl.run(schedule, costs=costs, room=room, steps=steps)
        rows.append({"case": what, "predicted": ideal.length, "measured": real.length})
        print(f"{what:18} {ideal.length:8.3f} s {real.length:8.3f} s   {real.length / ideal.length:.3f}", flush=True)
    return rows


def real(share: float, steps: int) -> dict:
    """What training within a share of the memory costs."""
    mesh, how = hl.Mesh(pp=2), {"schedule": "gpipe", "microbatches": 8, "shape": SHAPE}
    job = job_of(mesh, device_memory=share, **how)
    done = hl.train(mesh, device_memory=share, steps=steps, progress=False, **how)
    row = {"share": share, "capacity": job.room.capacity, "kept": max(done["timeline"].origin["peak_held"])}
    row |= {"copied": copied(job), "step": done["timeline"].length, "in core": most_held(job.schedule, weighed(job))}
    print(
        f"{share:5.2f} {row['capacity']:12,} {row['kept']:12,} {row['copied']:12,} {row['step'] * 1e3:8.0f} ms",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description="Out of core: predicted and measured.")
    parser.add_argument("--unit", type=float, default=0.04, help="seconds of a forward (default 0.04)")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\nemulated            predicted   measured   ratio")
    rows = emulated(chosen.unit, chosen.steps)
    print("share     capacity         kept       copied     step")
    trained = [real(share, chosen.steps) for share in SHARES]
    missed = [row["case"] for row in rows if abs(row["measured"] / row["predicted"] - 1) > ALLOWED]
    missed += [f"share {row['share']}" for row in trained if row["kept"] > row["capacity"]]
    print("PASS" if not missed else f"MISS: {', '.join(missed)}")
    if chosen.json:
        print(json.dumps({"load": os.getloadavg(), "emulated": rows, "trained": trained}))
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
