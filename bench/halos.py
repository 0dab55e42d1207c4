"""Halos under interiors, beside the same ones before all rows; and strips beside one device; measured and predicted.

    python bench/halos.py                   a table with medians over interleaved rounds: real convolutions
    python bench/halos.py --work emulated   rows and messages take a given time each: shows strips on any machine
    python bench/halos.py --json            the same, and one JSON object on the last line
    python bench/halos.py --ranks 2         only two strips; --device cuda for GPUs

One thread a rank. A step is one convolution, forward and backward, in float32. In every round each form takes one step,
in an order drawn anew: *one device*, *plain* and *overlapped* strips (`measuring.strip_layers`). Ratios are taken
within a round; beside a median stand the ends of the middle half of all rounds. All forms make the same numbers
(tests/modes/test_halos.py).

*predicted* is `predict.time.strips`: of real work from pieces that were timed one by one on the same ranks just before,
of emulated work from what rows and messages take. It takes the link and the cores as independent. Where ranks share
cores they are not: more ranks than cores are no speed-up of real work, and a message is copied by a core that a
convolution needs.
"""

import argparse
import json
import statistics
import time

import where

from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.strip_layers import Emulated, StripLayer
from hybridlab.predict.bytes.convolution import Conv
from hybridlab.world.processes.launch import ranks

EMULATED = Emulated(row=1e-3, message=4e-3)
RATIOS = (("overlapped", "plain"), ("plain", "one device"), ("overlapped", "one device"))
LAYERS = {  # what is timed
    "cpu": {"wide": Conv(4, 32, 32, 128, 128), "late": Conv(4, 128, 128, 16, 16)},
    "cuda": {"wide": Conv(8, 64, 64, 2048, 2048), "late": Conv(32, 512, 512, 64, 64)},
    "emulated": {"64 rows": Conv(1, 2, 1, 64, 16), "16 rows": Conv(1, 2, 1, 16, 16)},
}


def on_rank(comm, conv, emulated, rounds):
    """({form: seconds of its rounds}, {form: its prediction})."""
    layer = StripLayer(comm, conv, emulated)
    foreseen = layer.foreseen()
    return layer.rounds(rounds), foreseen


def compared(conv, rounds, emulated, placed) -> dict:
    """One row of the table: medians in ms, and each ratio with the middle half of its rounds, and its prediction."""
    with ranks(Mesh(h=len(placed.devices)), placement=placed) as pool:
        taken, foreseen = pool.run(on_rank, conv, emulated, rounds)[0]
    row = {f"{name}_ms": statistics.median(times) * 1e3 for name, times in taken.items()}
    for one, other in RATIOS:
        low, middle, high = statistics.quantiles([a / b for a, b in zip(taken[one], taken[other])], n=4)
        row[f"{one} / {other}"] = {
            "ratio": middle,
            "interval": [low, high],
            "predicted": foreseen[one] / foreseen[other],
        }
    return row


def main():
    parser = argparse.ArgumentParser(description="Halos under interiors beside halos before all rows.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ranks", type=int, choices=(2, 4), help="only so many strips")
    parser.add_argument("--work", choices=("real", "emulated"), default="real")
    parser.add_argument("--json", action="store_true")
    where.add_flags(parser)
    chosen = parser.parse_args()
    results = {"when": time.strftime("%Y-%m-%d"), "work": chosen.work}
    for strips in (chosen.ranks,) if chosen.ranks else (2, 4):
        placed = where.placed(chosen, strips)
        for name, conv in LAYERS["emulated" if chosen.work == "emulated" else placed.kind].items():
            what = f"{name}, {strips} strips"
            row = results[what] = compared(conv, chosen.rounds, EMULATED if chosen.work == "emulated" else None, placed)
            print(f"{what:20}", *(f"{key[:-3]} {row[key]:.1f} ms" for key in row if key.endswith("_ms")), sep="  ")
            for ratio in (one for one in row if " / " in one):
                low, high = row[ratio]["interval"]
                told = f"{row[ratio]['ratio']:.3f} ({low:.3f} to {high:.3f}), predicted {row[ratio]['predicted']:.3f}"
                print(f"{'':20}  {ratio:23}  {told}", flush=True)
    if chosen.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
