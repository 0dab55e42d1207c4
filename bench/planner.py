"""How fast the planner answers: all plans at once beside one after the other, and the largest space of the course.

    python bench/planner.py           a table: medians of interleaved rounds, PASS or MISS
    python bench/planner.py --json    the same, and one JSON object on the last line

"at once" is `step` and `footprint` of the whole space as arrays, as `plan` calls them; only legal plans are counted.
"one by one" is a loop in Python that calls the same two functions with numbers, for some plans of that space, drawn
anew in every round. A ratio is taken within a round. The space is the largest of SC'21's table.
The last rows are what a reader waits for: `plan(…).best` of a trillion parameters on 3072 GPUs, as a slider asks for
it; of Llama 3 405B on 16 384, its context cut too; of Mixtral 8x22B, its experts too; and of Mixtral 8x7B on 1024 with
all switches at once.

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

from hybridlab.core.what.catalog import machine, model  # after the number of threads
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import ASKED
from hybridlab.predict.plans.planner import plan
from hybridlab.predict.plans.space import chosen, grid

MANY = ("gpt-145.6b", "a100", 1536, 2304)  # model, machine, devices, sequences in a batch: of SC'21's the most plans
FUSED = {"software": "megatron-2024", "fused": True, "contexts": True}
ANSWERS = (  # what is asked, and the most seconds that its answer may take
    (("gpt-1t", "a100", 3072, 3072), {}, 0.050),
    (("llama3-405b", "h100", 16384, 2048), FUSED, 0.100),
    (("mixtral-8x22b", "h100", 16384, 2048), FUSED | {"experts": True}, 1.0),
    (("mixtral-8x7b", "h100", 1024, 1024), dict.fromkeys(ASKED, True), 3.0),
)
SOME = 300  # plans that are evaluated one by one in a round
LEAST_RATIO = 1000


def seconds(run, *given) -> float:
    gc.collect()
    start = time.process_time()
    run(*given)
    return time.process_time() - start


def rates(rounds: int) -> tuple[list[float], list[float]]:
    """Plans for each second in every round: at once, and one by one."""
    name, kind, devices, batch = MANY
    shape, a100 = model(name).shape, machine(kind)
    whole, slabs = grid(shape, devices, batch)
    every = chosen(whole, slabs)
    plans = len(every.p)

    def evaluated(plans):
        return step(shape, plans, batch, a100).total, footprint(shape, plans, batch).total

    def each(some):
        return [evaluated(one) for one in some]

    draw, at_once, one_by_one = random.Random(0), [], []
    parts = [one.plans for one in slabs]
    each(parts)
    for _ in range(rounds):
        some = [every.one(place) for place in draw.sample(range(plans), SOME)]
        at_once.append(plans / seconds(each, parts))
        one_by_one.append(SOME / seconds(each, some))
    return at_once, one_by_one


def answered(asked, more, rounds: int) -> tuple[float, int]:
    """The median seconds of a whole answer, and how many plans it looks at."""
    found = plan(*asked, **more)
    return statistics.median(seconds(lambda: plan(*asked, **more).best) for _ in range(rounds)), len(found.places)


def main():
    parser = argparse.ArgumentParser(description="All plans at once beside one by one, and the time of an answer.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    at_once, one_by_one = rates(chosen.rounds)
    low, ratio, high = statistics.quantiles([a / b for a, b in zip(at_once, one_by_one)], n=4)
    answers = [(asked, *answered(asked, more, chosen.rounds), most) for asked, more, most in ANSWERS]
    verdicts = [ratio >= LEAST_RATIO, *(took <= most for _, took, _, most in answers)]
    said = ["PASS" if good else "MISS" for good in verdicts]
    print(f"at once     {statistics.median(at_once):12,.0f} plans/s")
    print(f"one by one  {statistics.median(one_by_one):12,.0f} plans/s")
    print(f"ratio       {ratio:12,.0f} ({low:,.0f} to {high:,.0f}), at least {LEAST_RATIO:,}  {said[0]}")
    for ((name, _, gpus, _), took, plans, most), verdict in zip(answers, said[1:]):
        told = f"{took * 1e3:12.1f} ms for {plans:,} plans of {name} on {gpus:,} GPUs, at most {most * 1e3:.0f} ms"
        print(f"an answer   {told}  {verdict}")
    if chosen.json:
        each = {"at_once": statistics.median(at_once), "one_by_one": statistics.median(one_by_one)}
        rows = [{"model": asked[0], "seconds": took, "plans": plans} for asked, took, plans, _ in answers]
        print(json.dumps(each | {"ratio": ratio, "answers": rows}))
    return int(not all(verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
