"""How fast the simulator is: compiled against plain, against PyTorch's, and with messages on links.

    python bench/simulator.py           one table: times (median of interleaved rounds), ratios, PASS or MISS
    python bench/simulator.py --json    the same, and one JSON object on the last line

Every time includes making the schedule (and lowering it, where messages are written out), without validation. PyTorch's
simulator is slow, so it plays a smaller schedule, and rates are compared: scheduled actions (forwards and backwards)
per second. Its program holds the messages too; the rate with these counted is printed below, and not judged.

One thread, timed by the processor's clock, so that other programs on the computer count little.
"""

import argparse
import gc
import json
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hybridlab.predict.time.costs import Costs  # after the number of threads
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.interleaved import interleaved
from hybridlab.scheduling.lower import lower

LARGE, SMALL = dict(ranks=64, microbatches=512, chunks=4), dict(ranks=16, microbatches=64, chunks=4)
COSTS = Costs(F=1, B=2, latency=0.25)
TARGETS = {  # what is measured, over what, at least
    "compiled / plain": ("compiled", "plain", 40),
    "compiled / PyTorch": ("compiled", "PyTorch", 100),
    "compiled / plain, lowered": ("compiled, lowered", "plain, lowered", 10),
}


def ours(engine: str, messages: bool):
    made = interleaved(**LARGE)
    return simulate(lower(made) if messages else made, COSTS, engine=engine)


def pytorch():
    """PyTorch's simulator as a function of nothing; raises ImportError where its private names have moved."""
    from torch.distributed.pipelining.schedules import _Action, _add_send_recv, _simulate_comms_compute

    def run():
        made = interleaved(**SMALL)
        home = {stage: rank for (stage, _), rank in made.place.items()}
        order = {rank: [_Action.from_str(str(a)) for a in program] for rank, program in enumerate(made.program)}
        lowered = _add_send_recv(order, stage_to_rank=home.get, num_stages=made.stages)
        start = time.process_time()
        _simulate_comms_compute(lowered, stage_to_rank=home.get, num_stages=made.stages)
        return time.process_time() - start  # without making and lowering, which would flatter us

    return run


def seconds(run) -> float:
    gc.collect()
    start = time.process_time()
    told = run()
    return told if isinstance(told, float) else time.process_time() - start


def measure(rounds: int) -> tuple[dict[str, list[float]], str]:
    """The seconds of every subject in every round, and why PyTorch is missing, if it is."""
    subjects = {
        "compiled": lambda: ours("compiled", False),
        "plain": lambda: ours("plain", False),
        "compiled, lowered": lambda: ours("compiled", True),
        "plain, lowered": lambda: ours("plain", True),
    }
    missing = ""
    try:
        subjects["PyTorch"] = pytorch()
    except ImportError as error:
        missing = f"PyTorch's simulator is skipped: {error}"
    for name in ("compiled", "compiled, lowered"):
        subjects[name]()  # machine code is made once per computer
    times = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, run in subjects.items():
            times[name] += [seconds(run) for _ in range(5 if "compiled" in name else 1)]
    return times, missing


def report(times: dict[str, list[float]]) -> dict:
    """Median seconds and actions per second of every subject; every ratio against its target."""
    actions = {name: len(interleaved(**(SMALL if name == "PyTorch" else LARGE)).rows) for name in times}
    median = {name: statistics.median(all_of_it) for name, all_of_it in times.items()}
    rate = {name: actions[name] / median[name] for name in times}
    ratios = {
        name: {"ratio": rate[fast] / rate[slow], "target": target, "pass": rate[fast] >= target * rate[slow]}
        for name, (fast, slow, target) in TARGETS.items()
        if slow in times
    }
    found = {"seconds": median, "actions": actions, "actions_per_second": rate, "ratios": ratios}
    if "PyTorch" in times:
        found["pytorch_with_messages_per_second"] = len(lower(interleaved(**SMALL)).rows) / median["PyTorch"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    asked = parser.parse_args()
    times, missing = measure(asked.rounds)
    found = report(times)
    print("interleaved, p=64, m=512, v=4, made and simulated; PyTorch (simulated only): p=16, m=64, v=4\n")
    print(f"{'':<28}{'median':>12}{'actions':>10}{'actions/s':>13}")
    for name in times:
        ms, rate = found["seconds"][name] * 1e3, found["actions_per_second"][name]
        print(f"{name:<28}{ms:>9.1f} ms{found['actions'][name]:>10}{rate:>13,.0f}")
    print()
    for name, one in found["ratios"].items():
        verdict = "PASS" if one["pass"] else "MISS"
        print(f"{name:<28}{one['ratio']:>10.1f} ×   at least {one['target']:>3} ×   {verdict}")
    if missing:
        print(missing)
    else:
        print(f"\nPyTorch, its messages counted too: {found['pytorch_with_messages_per_second']:,.0f} actions/s")
    if asked.json:
        print(json.dumps(found | {"rounds": asked.rounds, "missing": missing}))


if __name__ == "__main__":
    main()
