"""Run a schedule for real, and train: what the kernel asks, ranks do, and a timeline brings home."""

import datetime
import os
import platform

import torch

from hybridlab.core.catalog import Shape
from hybridlab.core.mesh import Mesh
from hybridlab.core.schedule import Schedule
from hybridlab.core.timeline import Timeline
from hybridlab.modes.clocks import link_latency, measured
from hybridlab.modes.pipeline import Player
from hybridlab.modes.work import EmulatedWork
from hybridlab.predict.costs import Costs
from hybridlab.schedules.lower import lower
from hybridlab.train import loop
from hybridlab.world.launch import ranks

EMULATED = Costs(F=0.02, B=0.04)  # shorter waits drown in the clock's own jitter


def run(
    schedule: Schedule,
    *,
    mesh: Mesh | None = None,
    work: str = "emulated",
    costs: Costs = EMULATED,
    model: Shape | None = None,
    batch: int | None = None,
    steps: int = 3,
    on_event=None,
    **more,
) -> Timeline:
    """The measured timeline of a schedule, played by real processes that exchange real messages.

    work   "emulated": waiting in place of computing, `costs` in seconds; "model": a GPT of shape `model`, trained
    mesh   dp × pp; by default one pipeline of all the schedule's ranks
    batch  sequences in the global batch, for work="model";  more: as in `train.loop.Task`
    steps  measured, after one that is not

    raises  ValueError in one sentence for arguments that do not fit; RankError when a rank fails
    """
    if work not in ("emulated", "model"):
        raise ValueError(f'work={work!r} is nothing to do: choose "emulated" or "model"')
    if steps < 1:
        raise ValueError(f"steps={steps} measures nothing: give 1 or more")
    lowered = lower(schedule)
    mesh = mesh or Mesh(dp=schedule.dp, pp=schedule.ranks // schedule.dp)
    if work == "model":
        job = loop.task(mesh, lowered, batch=batch, shape=model or Shape(), steps=steps + 1, **more)
        call = (_run_model, job)
    else:
        call = (_run_emulated, lowered, costs, steps + 1)
    with ranks(mesh) as pool:
        homes = pool.run(*call, on_event=on_event)
    return _timeline(lowered, homes, mesh, work, skip=1)


def _run_emulated(comm, schedule, costs, steps):
    latency = link_latency(comm)
    player, times = Player(comm, schedule, EmulatedWork(costs)), []
    for step in range(steps):
        times.append(player.step())
        if comm.rank == 0:
            comm.emit(step=step)
    return {"times": times, "latency": latency, "losses": [], "ledger": comm.ledger.rows()}


def _run_model(comm, job):
    latency = link_latency(comm, elements=job.sequences * job.shape.context * job.shape.width)
    return loop.train_on_rank(comm, job) | {"latency": latency}


def _timeline(schedule, homes, mesh, work, skip=0):
    """What all ranks brought home as one timeline, without the first `skip` steps."""
    origin = provenance() | {"work": work, "mesh": dict(mesh.axes), "latency": homes[0]["latency"]}
    ledger = tuple({"rank": rank, **row} for rank, home in enumerate(homes) for row in home["ledger"])
    times, loss = [home["times"][skip:] for home in homes], tuple(homes[0]["losses"][skip:])
    return measured(schedule, times, origin, loss=loss, ledger=ledger)


def provenance() -> dict:
    """When, where and on what a measurement was made."""
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": "cpu",
    }


def train(
    mesh: Mesh, schedule: str = "1f1b", microbatches: int = 4, batch: int | None = None, on_event=None, **more
) -> dict:
    """Train a GPT on real text over a mesh of dp × pp; one rank trains alone, in the plainest loop.

    returns {"losses": one per step, "timeline": measured, or None for one rank}; more as in `train.loop.Task`
    raises  ValueError in one sentence for arguments that do not fit; RankError when a rank fails
    """
    job = loop.task(mesh, schedule, microbatches, batch, **more)
    with ranks(mesh) as pool:
        if mesh.size == 1:
            return {"losses": pool.run(loop.train_alone, job, on_event=on_event)[0], "timeline": None}
        homes = pool.run(_run_model, job, on_event=on_event)
    return {"losses": homes[0]["losses"], "timeline": _timeline(job.schedule, homes, mesh, "model")}
