"""How fast the planner answers: all plans at once beside one after the other, and the largest space of the course.

    python bench/planner.py           a table: medians of interleaved rounds, PASS or MISS
    python bench/planner.py --json    the same, and one JSON object on the last line

"at once" is `step` and `footprint` of the whole space as arrays, as `plan` calls them; only legal plans are counted.
"one by one" is a loop in Python that calls the same two functions with numbers, for some plans of that space, drawn
anew in every round. A ratio is taken within a round. The space is the largest of SC'21's table.
The last row is what a slider waits for: `plan` of a trillion parameters on 3072 GPUs, from the space to the order.

One thread, timed by the processor's clock, so that other programs on the computer count little.
"""

import argparse
import gc
import json
import os
import random
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hybridlab.core.catalog import machine, model  # after the number of threads
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.planner import plan
from hybridlab.predict.plans.space import chosen, grid

MANY = ("gpt-145.6b", "a100", 1536, 2304)  # model, machine, devices, sequences in a batch: of SC'21's the most plans
LARGE = ("gpt-1t", "a100", 3072, 3072)
SOME = 300  # plans that are evaluated one by one in a round
LEAST_RATIO, MOST_SECONDS = 1000, 0.050


def seconds(run, *given) -> float:
    gc.collect()
    start = time.process_time()
    run(*given)
    return time.process_time() - start


def rates(rounds: int) -> tuple[list[float], list[float]]:
    """Plans for each second in every round: at once, and one by one."""
    name, kind, devices, batch = MANY
    shape, a100 = model(name).shape, machine(kind)
    whole, legal = grid(shape, devices, batch)
    every, plans = chosen(whole, legal), int(legal.sum())

    def evaluated(plans):
        return step(shape, plans, batch, a100).total, footprint(shape, plans, batch).total

    def one_after_the_other(some):
        return [evaluated(one) for one in some]

    draw, at_once, one_by_one = random.Random(0), [], []
    evaluated(whole)
    for _ in range(rounds):
        some = [every.one(place) for place in draw.sample(range(plans), SOME)]
        at_once.append(plans / seconds(evaluated, whole))
        one_by_one.append(SOME / seconds(one_after_the_other, some))
    return at_once, one_by_one


def answers(rounds: int) -> tuple[list[float], int]:
    """Seconds of a whole answer in every round, and how many plans it looks at."""
    found = plan(*LARGE)
    return [seconds(lambda: plan(*LARGE).best) for _ in range(rounds)], len(found.seconds)


def main():
    parser = argparse.ArgumentParser(description="All plans at once beside one by one, and the time of an answer.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    at_once, one_by_one = rates(chosen.rounds)
    low, ratio, high = statistics.quantiles([a / b for a, b in zip(at_once, one_by_one)], n=4)
    times, plans = answers(chosen.rounds)
    middle = statistics.median(times)
    verdicts = [ratio >= LEAST_RATIO, middle <= MOST_SECONDS]
    said = ["PASS" if good else "MISS" for good in verdicts]
    print(f"at once     {statistics.median(at_once):12,.0f} plans/s")
    print(f"one by one  {statistics.median(one_by_one):12,.0f} plans/s")
    print(f"ratio       {ratio:12,.0f} ({low:,.0f} to {high:,.0f}), at least {LEAST_RATIO:,}  {said[0]}")
    print(f"an answer   {middle * 1e3:12.1f} ms for {plans:,} plans, at most {MOST_SECONDS * 1e3:.0f} ms  {said[1]}")
    if chosen.json:
        each = {"at_once": statistics.median(at_once), "one_by_one": statistics.median(one_by_one)}
        print(json.dumps(each | {"ratio": ratio, "answer_seconds": middle, "plans": plans}))
    return int(not all(verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
