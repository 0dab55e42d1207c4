"""How fast the pipeline runtime is: tokens a second beside torch.distributed.pipelining, and what one action costs.

    python bench/pipeline.py            tables with medians over interleaved rounds, and PASS or MISS
    python bench/pipeline.py --json     the same, and one JSON object on the last line
    python bench/pipeline.py --device cuda:2        on two GPUs; on one: --device cuda:1 --backend nccl

Two ranks, one thread each, the same layers, microbatches and loss on both sides; ours posts receives two ahead. GPUs
get a larger model. In every round each runtime plays one step (forwards and backwards of one global batch), in an order
drawn anew. A ratio is taken within a round, and its interval holds the middle half of all rounds. The overhead of an
action is what a step of an almost empty model takes, divided by the actions that its rank does, messages included.
"""

import argparse
import json
import random
import statistics

import torch
import where
from torch import nn

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.timed import now
from hybridlab.runtime.clocks import measured
from hybridlab.scheduling.registry import schedule
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.world.processes.launch import ranks

NAMES = ("gpipe", "1f1b", "interleaved")
LARGE = {"cpu": Shape(layers=8, width=256, heads=4, context=64), "cuda": Shape(8, 1024, 16, 512)}
TINY = Shape(layers=4, width=4, heads=1, context=2)
MICROBATCHES, SEQUENCES, AHEAD, LEAST, EFFICIENT = 8, 4, 2, 1.0, 0.97


def torchs(comm, job, name):
    """A step of torch's runtime as a function of nothing."""
    from torch.distributed import pipelining

    layers = job.model.layers(job.model.made(job.seed, torch.float32).to(comm.device))
    mine = [s for (s, _), rank in job.schedule.place.items() if rank == comm.rank]
    stages = [
        pipelining.PipelineStage(
            nn.Sequential(*(layers[i] for i in job.bounds[s])), s, job.schedule.stages, comm.device
        )
        for s in sorted(mine)
    ]
    kinds = {
        "gpipe": pipelining.ScheduleGPipe,
        "1f1b": pipelining.Schedule1F1B,
        "interleaved": pipelining.ScheduleInterleaved1F1B,
    }
    loss = lambda scores, targets: job.model.loss(scores, targets) / job.tokens
    one = kinds[name](stages if name == "interleaved" else stages[0], MICROBATCHES, loss, scale_grads=False)
    inputs, targets = (torch.cat(part).to(comm.device) for part in job.batch(0))

    def step():
        for stage in stages:
            stage.submod.zero_grad()
        own = [inputs] if stages[0].is_first else []
        last = {"target": targets, "losses": []} if stages[-1].is_last else {}
        one.step(*own, **last, return_outputs=False)

    return step


def ours(comm, job):
    """A step of our runtime as a function of nothing; it returns the times of the actions."""
    trainer = loop.Trainer(comm, job)
    batch = [[x.to(comm.device) for x in part] for part in job.batch(0)]

    def step():
        trainer.weights.begin()
        trainer.weights.arm(True)
        trainer.work.load(*batch, job.tokens)
        return trainer.player.step()

    return step


def on_rank(comm, job, name, rounds):
    """(seconds of our steps, of torch's steps, of the slowest rank; the times of our actions)."""
    steps = {"ours": ours(comm, job), "torch": torchs(comm, job, name)}
    seconds, actions, order = {"ours": [], "torch": []}, [], random.Random(0)
    for i in range(rounds + 2):
        for who in order.sample(list(steps), 2):
            comm.barrier()
            begin = now(comm.device)
            told = steps[who]()
            taken = torch.tensor(now(comm.device) - begin, dtype=torch.float64)
            comm.all_reduce(taken, op="max")
            if i >= 2:
                seconds[who].append(taken.item())
                actions += [told] if who == "ours" else []
    return seconds["ours"], seconds["torch"], actions


def ratio(mine, other) -> list[float]:
    """Lower quartile, median and upper quartile of other / mine, round by round."""
    return statistics.quantiles([b / a for a, b in zip(mine, other)], n=4)


def main():
    parser = argparse.ArgumentParser(description="Our pipeline runtime beside torch.distributed.pipelining.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    where.add_flags(parser)
    chosen = parser.parse_args()
    placed = where.placed(chosen, 2)
    if placed.kind != "cpu" and placed.backend == "gloo":
        parser.error("torch's pipelining gives a GPU's tensors to gloo, which cannot send them: add --backend nccl")
    results, failed = {"placement": placed.sentence}, False
    print(f"{'':12}  {'ours, ms':>9}  {'torch, ms':>9}  torch / ours, middle half   tokens/s  efficiency")
    with ranks(Mesh(pp=2), placement=placed) as pool:
        for name in NAMES:
            made = schedule(name, ranks=2, microbatches=MICROBATCHES)
            job = job_of(Mesh(pp=2), made, batch=MICROBATCHES * SEQUENCES, shape=LARGE[placed.kind], ahead=AHEAD)
            homes = pool.run(on_rank, job, name, chosen.rounds)
            mine, other, _ = homes[0]
            real = measured(job.schedule, [home[2] for home in homes], {"latency": 0.0})
            low, middle, high = ratio(mine, other)
            busy = real.efficiency
            rate = job.tokens / statistics.median(mine)
            waits = busy < EFFICIENT and not placed.shared  # ranks that share a GPU wait for each other's kernels
            verdict = "PASS" if middle >= LEAST and not waits else "MISS"
            failed |= verdict == "MISS"
            print(
                f"{name:12}  {statistics.median(mine) * 1e3:9.1f}  {statistics.median(other) * 1e3:9.1f}  "
                f"{middle:5.3f} ({low:.3f} to {high:.3f}) {rate:14,.0f}  {busy:.3f}  {verdict}"
            )
            told = {"ratio": middle, "interval": [low, high], "efficiency": busy, "tokens_per_second": rate}
            results[name] = told | {"repetitions": chosen.rounds}
        for name in NAMES:
            made = schedule(name, ranks=2, microbatches=MICROBATCHES)
            job = job_of(Mesh(pp=2), made, batch=MICROBATCHES, shape=TINY, ahead=AHEAD)
            mine, other, _ = pool.run(on_rank, job, name, chosen.rounds)[0]
            actions = len(job.schedule.program[0])
            each = [statistics.median(one) / actions * 1e6 for one in (mine, other)]
            print(f"{name:12}  {each[0]:6.0f} µs per action, torch {each[1]:6.0f} µs")
            results[name] |= {"overhead_us": each[0], "overhead_us_torch": each[1]}
    if chosen.json:
        print(json.dumps(results))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
