"""How fast replicas, shared weights and cut layers are: a training step beside torch's DDP, FSDP2 and tensor parallel,
and of overlapped tensor parallelism beside our plain form.

    python bench/sharding.py            a table with medians over interleaved rounds, and PASS or MISS
    python bench/sharding.py --json     the same, and one JSON object on the last line
    python bench/sharding.py --device cuda:2        on two GPUs; --backend nccl lets ranks share one by NCCL

Two ranks, one thread each; GPUs get a larger model. A step is forward, backward and an update by SGD of the same model
on the same batch, one microbatch, float32. In every round each side takes one step, in an order drawn anew. A ratio is
taken within a round, and its interval holds the middle half of all rounds; it decides. Beside it stands the same ratio
of processor time, all threads counted, which other processes on the machine hardly change. The peers of the first four
rows are those that `tests/training/test_oracle.py` proves to make the same numbers: DDP with buckets of the same sizes,
that are the gradients' own memory; FSDP2 with a unit per block; layers cut by columns and rows, with vocabulary and
loss cut too.

The last row has no peer of torch's, which cuts these messages up on GPUs only: the peer of "overlapped" (`overlap=True`
beside `sequence`) is our own plain form, the job of the row above it (`tests/modes/test_overlapped.py` proves both).
It may take 1.05 of the plain form's time: where ranks and messages share cores, a hop is copied by a core that a
matmul needs.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time

import torch
import where

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.measuring.timed import now
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.world.processes.launch import RankError, ranks

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"
SHAPES = {"cpu": Shape(layers=8, width=256, heads=4, context=64), "cuda": Shape(8, 1024, 16, 512)}
BATCH, WARM, MOST = 8, 3, 1.05
PLAIN = "plain"  # the peer that is ours
MODES = {  # name: (axis, how we are asked, the peer, how it is asked)
    "replicas": ("dp", {"sums": "buckets"}, "data_parallel", {}),
    "shared weights": ("dp", {"zero": 3}, "fully_sharded", {}),
    "cut layers": ("tp", {}, "tensor_parallel", {}),
    "and sequence": ("tp", {"sequence": True}, "tensor_parallel", {"sequence": True}),
    "overlapped": ("tp", {"sequence": True, "overlap": True}, PLAIN, {"sequence": True}),
}


def torchs(comm, job, peer, options):
    """A step of torch's as a function of nothing."""
    import test_oracle

    one = getattr(test_oracle, peer)(job.model.made(job.seed, torch.float32).to(comm.device), comm, **options)
    optimizer = job.optimizer_of(dict(one.model.named_parameters()))
    inputs, targets = (parts[comm.coordinates.get("dp", 0)].to(comm.device) for parts in job.batch(0))

    def step():
        optimizer.zero_grad()
        one.gradients(inputs, targets, job.tokens)
        optimizer.step()

    return step


def ours(comm, job):
    """A step of ours as a function of nothing."""
    trainer = loop.Trainer(comm, job)
    batch = [[x.to(comm.device) for x in part] for part in job.batch(0)]

    def step():
        trainer.weights.begin()
        trainer.weights.arm(True)
        trainer.work.load(*batch, job.tokens)
        trainer.player.step()
        trainer.weights.finish()
        trainer.update()

    return step


def on_rank(comm, job, peer, options, rounds):
    """For our steps and for the peer's, round by round: (seconds, seconds of the processor), of the slower rank.

    options  how the peer is asked; if it is ours, its job
    """
    other = ours(comm, options) if peer == PLAIN else torchs(comm, job, peer, options)
    steps = {"ours": ours(comm, job), "peer": other}
    taken, order = {"ours": [], "peer": []}, random.Random(0)
    for _ in range(WARM + rounds):
        for who in order.sample(list(steps), 2):
            comm.barrier()
            begin = clocks(comm.device)
            steps[who]()
            taken[who].append(comm.all_reduce(clocks(comm.device) - begin, op="max").tolist())
    return taken["ours"][WARM:], taken["peer"][WARM:]


def clocks(device) -> torch.Tensor:
    """What a clock on the wall says when the device is done, and what this process has had of the processor."""
    return torch.tensor([now(device), time.process_time()], dtype=torch.float64)


def compared(mode, rounds, placed) -> dict:
    """One row of the table: milliseconds of both; the middle of ours / peer, and the ends of its middle half."""
    axis, more, peer, options = MODES[mode]
    mesh = Mesh(**{axis: 2})
    asked = lambda **how: job_of(mesh, microbatches=1, batch=BATCH * mesh["dp"], shape=SHAPES[placed.kind], **how)
    job, options = asked(**more), asked(**options) if peer == PLAIN else options
    with ranks(mesh, placement=placed) as pool:
        (mine, work), (other, its_work) = (zip(*one) for one in pool.run(on_rank, job, peer, options, rounds)[0])
    low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, other)], n=4)
    each = {"ours_ms": statistics.median(mine) * 1e3, "peer_ms": statistics.median(other) * 1e3}
    processor = statistics.median(a / b for a, b in zip(work, its_work))
    each |= {"peer": "our plain form" if peer == PLAIN else "torch"}
    return each | {"ratio": middle, "interval": [low, high], "processor": processor, "repetitions": rounds}


def main():
    told = "Our replicas, shared weights and cut layers beside torch's; overlapped layers beside plain ones."
    parser = argparse.ArgumentParser(description=told)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", choices=MODES, help="one row")
    parser.add_argument("--json", action="store_true")
    where.add_flags(parser)
    chosen = parser.parse_args()
    placed = where.placed(chosen, 2)
    sys.path[:0] = map(str, (TESTS / "training", TESTS))  # also of ranks: the peers are there, and what they import
    results = {"placement": placed.sentence}
    print("The peer is torch's form; of \"overlapped\" it is our plain form, sequence without overlap.")
    print(f"{'':14}  {'ours, ms':>9}  {'peer, ms':>9}  ours / peer, middle half   processor")
    for mode in [chosen.only] if chosen.only else MODES:
        try:
            row = results[mode] = compared(mode, chosen.rounds, placed)
        except RankError as error:  # one that a backend cannot do costs one row
            results[mode] = {"failed": str(error)}
            print(f"{mode:14}  {error}")
            continue
        low, high = row["interval"]
        verdict = "PASS" if row["ratio"] <= MOST else "MISS"
        print(
            f"{mode:14}  {row['ours_ms']:9.1f}  {row['peer_ms']:9.1f}  "
            f"{row['ratio']:5.3f} ({low:.3f} to {high:.3f})     {row['processor']:.3f}  {verdict}"
        )
    if chosen.json:
        print(json.dumps(results))
    return int(any(results[mode].get("ratio", MOST + 1) > MOST for mode in MODES if mode in results))


if __name__ == "__main__":
    raise SystemExit(main())
