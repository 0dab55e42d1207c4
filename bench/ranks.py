"""How soon ranks are ready: from their warm parent, against processes that torch spawns; and what a call costs.

    python bench/ranks.py           one table: medians, ratios, PASS or MISS; about a minute on two cores
    python bench/ranks.py --json    the same, and one JSON object on the last line

Both sides in one run, in turns, so that they see the same machine.
"""

import argparse
import json
import statistics

from hybridlab.measuring.startup import calls, crowd, in_turns, parent

LEAST_RATIO, MOST_CALL, CROWD = 20, 0.010, 32
ROUNDS = {4: 3, 16: 2}  # ranks: spawned starts; of ours three times as many


def measure() -> dict:
    """Seconds of every start, by number of ranks; of calls on kept ranks; and of many ranks on few cores."""
    first = parent()
    starts = {count: dict(zip(("warm", "spawned"), in_turns(count, rounds))) for count, rounds in ROUNDS.items()}
    return {"first": first, "starts": starts, "calls": calls(4, 100), "crowd": crowd(CROWD)}


def report(times: dict) -> dict:
    """Medians, ratios and verdicts."""
    found = {"first start, s": times["first"], f"{CROWD} ranks start, add and end, s": times["crowd"]}
    for count, start in times["starts"].items():
        ours, theirs = statistics.median(start["warm"]), statistics.median(start["spawned"])
        ratio = {"warm, s": ours, "spawned, s": theirs, "ratio": theirs / ours, "pass": theirs >= LEAST_RATIO * ours}
        found[f"{count} ranks"] = ratio
    call = statistics.median(times["calls"])
    return found | {"call on 4 kept ranks": {"s": call, "pass": call <= MOST_CALL}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    asked = parser.parse_args()
    found = report(measure())
    for count in ROUNDS:
        one = found[f"{count} ranks"]
        told = f"{one['warm, s'] * 1e3:7.0f} ms   spawned {one['spawned, s']:5.1f} s   {one['ratio']:5.0f} ×"
        print(f"{count:3} ranks ready {told}   at least {LEAST_RATIO} ×   {_verdict(one)}")
    call = found["call on 4 kept ranks"]
    print(f"call on 4 kept ranks {call['s'] * 1e3:.1f} ms   at most {MOST_CALL * 1e3:.0f} ms   {_verdict(call)}")
    print(f"{CROWD} ranks start, add and end in {found[f'{CROWD} ranks start, add and end, s']:.2f} s")
    print(f"the very first start, with the warm parent's own: {found['first start, s']:.1f} s")
    if asked.json:
        print(json.dumps(found))


def _verdict(one):
    return "PASS" if one["pass"] else "MISS"


if __name__ == "__main__":
    main()
