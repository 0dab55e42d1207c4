"""Run a schedule on real ranks, and train, from the calling process."""

import datetime
import math
import os
import platform
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from hybridlab.core.afford import refuse
from hybridlab.core.files import folder
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.time.costs import Costs
from hybridlab.runtime.clocks import measured
from hybridlab.runtime.emulated import EmulatedWork
from hybridlab.runtime.links import edge_links, pairs_of
from hybridlab.runtime.message_driven import as_done, one_chain
from hybridlab.scheduling.lower import lower, posted_ahead
from hybridlab.scheduling.validate import validate
from hybridlab.signatures import spelled
from hybridlab.training import asked, loop
from hybridlab.training.affordable import affordable
from hybridlab.training.checkpoints.folder import alone_in
from hybridlab.training.elsewhere import refuse_elsewhere
from hybridlab.training.logged import logged
from hybridlab.training.make_job import refuse_other_mesh
from hybridlab.training.rehearsal import refuse_other_in_parts
from hybridlab.training.resume import Saving
from hybridlab.training.stopping import stopping_gently
from hybridlab.training.trained import Trained, comes_home, shares_of
from hybridlab.world.cells.progress import Steps
from hybridlab.world.processes.launch import SILENCE, foresee, ranks, training_ranks
from hybridlab.world.talk.offset import offset

LEARNING = {"steps": 20, "optimizer": "adamw", "rate": 2e-3}  # defaults of a training run
KEPT = 100  # number of latest steps in a run's timeline: memory does not grow with the run
TO_END = 5.0  # seconds in which a killed run's last process ends, before another resumes it
EMULATED = Costs(F=0.02, B=0.04)  # shorter waits are less than the clock's jitter


@spelled(asked.measured)
def run(
    schedule: Schedule,
    *,
    work: Literal["emulated", "model"] = "emulated",
    costs: Costs = EMULATED,
    latency: float = 0.0,
    jitter: float = 0.0,
    room: Room | None = None,
    on_event: Callable | None = None,
    live: bool = False,
    hang_s: float | None = None,
    **given,
) -> Timeline:
    """The measured timeline of a schedule, run by real processes that exchange real messages.

    schedule  the schedule of one pipeline, or with its dp copies
    work      "emulated": each action waits instead of computing; "model": a model is trained, and the timeline is that
              of the first rank of each stage
    costs     the lengths of the waits in seconds, for emulated work
    latency   minimum seconds of every message;  jitter  relative standard deviation of the waits
    room      memory capacity of each device, for emulated work; an action that would not fit waits for copies to the
              host
    on_event  called as on_event(rank, event): after each step with its number
    live      also report the end of each compute action: step, index in the rank's lowered program, begin and end (ns
              on the clock of this machine)
    hang_s    seconds that one layer of a model, or one wait for another rank, may take; None: 60

    {arguments}

    Emulated work uses only `mesh` (default: one pipeline of the schedule's ranks), `steps` (all are measured, after an
    extra step that is not), `ahead` and `driven`. The other arguments are for a model.

    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> real = hl.run(hl.schedule("1f1b", ranks=2, microbatches=2), steps=1)  # starts ranks
    >>> real.schedule.ranks, real.origin["work"]
    (2, 'emulated')
    """
    if work not in ("emulated", "model"):
        raise ValueError(f'work={work!r} is not known: choose "emulated" or "model"')
    steps = given.get("steps", asked.TRAINING["steps"].usual)
    if steps < 1:
        raise ValueError(f"steps={steps} is not positive: give 1 or more")
    for what, number in (("latency", latency), ("jitter", jitter)):
        if not 0 <= number < math.inf:
            raise ValueError(f"{what}={number} is not possible: give a number, 0 or more")
    mesh = given.get("mesh") or Mesh(dp=schedule.dp, pp=schedule.ranks // schedule.dp)
    if work == "model":
        _refuse_of_waits(costs=costs != EMULATED, latency=latency, jitter=jitter, room=room)
        job = affordable(**given | {"mesh": mesh, "schedule": schedule, "steps": steps + 1})
        lowered, room, call = job.schedule, job.room, (_run_model, job, live)
        foresee(__name__)
    else:
        _refuse_of_a_model(hang_s, given)
        refuse_other_mesh(mesh, schedule)
        driven, ahead = (given.get(name, asked.LAYOUT[name].usual) for name in ("driven", "ahead"))
        lowered = posted_ahead(validate(lower(one_chain(schedule) if driven else schedule), room), ahead)
        _refuse_long(lowered, costs, latency, steps)
        emulated = EmulatedWork(costs, latency=latency, jitter=jitter)
        call = (_run_emulated, lowered, emulated, driven, steps + 1, live, room)
    with training_ranks(mesh, hang_s) if work == "model" else ranks(mesh) as pool:
        if work == "model":
            refuse_elsewhere(job, pool)
        homes = pool.run(*call, on_event=on_event)
    return _timeline(lowered, homes, mesh, work, skip=1, at_least=latency, room=room)


def _refuse_of_waits(**given):
    """Raise ValueError for arguments that only emulated work can use."""
    for name in (name for name, value in given.items() if value):
        instead = ", or give device_memory" * (name == "room")
        raise ValueError(f"{name} applies only to emulated work, and a model takes its own time: leave it out{instead}")


def _refuse_of_a_model(hang_s: float | None, given: dict):
    """Raise ValueError for arguments that only the training of a model can use."""
    usual = {"hang_s": None} | {name: one.usual for name, one in asked.arguments().items()}
    for name, value in {"hang_s": hang_s, **given}.items():
        if name not in ("mesh", "steps", "ahead", "driven") and value != usual[name]:
            raise ValueError(
                f'{name} applies only to a model, and emulated work has none: leave it out, or give work="model"'
            )


def _refuse_long(schedule: Schedule, costs: Costs, latency: float, steps: int):
    """Raise ValueError for waits longer than the ranks' timeout, and for a run that takes too long."""
    longest = max(latency, float(costs.table(schedule).max(initial=0)))
    if longest >= SILENCE:
        raise ValueError(
            f"a wait of {longest:g} s looks like a hang, because ranks must report every {SILENCE:g} s: give a "
            "shorter one"
        )
    one = float(max(np.add.reduceat(costs.table(schedule), schedule.starts[:-1]), default=0))
    refuse(f"{steps} steps", seconds=one * (steps + 1), steps=steps)


def _run_emulated(comm, schedule, work, driven, steps, live, room):
    report = comm.for_purpose("report")
    links = _links(report, schedule, lambda edge: work.room(edge, "activation"))
    watch = loop.watching(comm) if live else None
    work.meet(comm, schedule)
    player = loop.player(comm.for_purpose("messages"), schedule, work, driven, watch, room)
    home = {"times": [], "programs": [], "losses": [], "held": [], "links": links, "offset": offset(report)}
    work.offset = home["offset"] * 1e-9  # messages contain their time of departure
    for step in range(steps):
        work.pace = float(step > 0)  # the first step is not measured: it opens connections
        comm.barrier()
        home["times"].append(player.step())
        home["programs"] += [[str(action) for action in player.program]] * driven
        if comm.rank == 0:
            comm.emit(step=step)
    seen = player.clock.sees
    return home | {"device": "cpu", "ledger": comm.ledger.rows(), "peak_live": work.peak_live, "seen": seen}


def _run_model(comm, job, live=False, saving=None, kept=None, bring=False):
    report = comm.for_purpose("report")
    links = _links(report, job.schedule, job.rooms(comm.rank).get, comm.device)
    more = {"links": links, "offset": offset(report), "device": comm.device.type}
    return loop.train_on_rank(comm, job, live, saving, kept, shares_of if bring else None) | more


def _links(comm, schedule, room, device="cpu") -> dict[str, list[float]]:
    """The measured links of a schedule's edges; room(edge) returns examples of the tensors sent there."""
    sizes = [sum(x.numel() * x.element_size() for x in room(edge)) for edge in range(len(schedule.edges))]
    return edge_links(comm, pairs_of(schedule, comm.mesh.line(comm.rank)), sizes, device)


def _timeline(schedule, homes, mesh, work, skip=0, at_least=0.0, room=None):
    """The results of all ranks as one timeline, without the first `skip` steps."""
    ledger = tuple({"rank": rank, **row} for rank, home in enumerate(homes) for row in home["ledger"])
    homes = [homes[rank] for rank in mesh.line(0)]
    links = homes[0]["links"]
    if at_least:  # messages that wait for a given time
        links = {"latency": [max(at_least, one) for one in links["latency"]]}
    origin = provenance(homes[0]["device"]) | {"work": work, "mesh": dict(mesh.axes)} | links
    origin["rendezvous"] = not at_least  # a given latency counts from the time when a value was computed
    origin["peak_live"] = [home["peak_live"] for home in homes]  # counted by the ranks
    origin |= {"seen": True} if homes[0]["seen"] else {}
    origin |= {"room": vars(room)} if room else {}
    origin |= {"peak_held": [home["peak_held"] for home in homes]} if "peak_held" in homes[0] else {}
    times, losses = [[one + home["offset"] for one in home["times"][skip:]] for home in homes], homes[0]["losses"]
    more = {"loss": tuple(losses[skip * len(losses) // len(homes[0]["times"]) :]), "ledger": ledger}
    held = [[one + torch.tensor([home["offset"], 0]) for one in home["held"][skip:]] for home in homes]
    more |= {"held": held} if room and held[0] else {}
    done = [home["programs"][skip:] for home in homes]
    if not done[0]:
        return measured(schedule, times, origin, **more)
    steps = [
        measured(as_done(schedule, program), [[one] for one in taken], origin, **more)
        for program, taken in zip(zip(*done), zip(*times))
    ]
    return sorted(steps, key=lambda one: one.length)[(len(steps) - 1) // 2]


def provenance(device: str = "cpu") -> dict:
    """The time, the machine and the kind of device of a measurement."""
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device,
    }


@spelled(asked.arguments, positional=asked.FIRST, **LEARNING)
def train(
    *,
    checkpoint: str | Path | None = None,
    every: int = 0,
    resume: bool = False,
    async_save: bool = False,
    log: str | Path | None = None,
    progress: bool = True,
    on_event: Callable | None = None,
    hang_s: float | None = None,
    **given,
) -> dict:
    """Train any model, or the reference GPT on real text, over a mesh. Steps and losses are shown during training.

    {arguments}
    checkpoint     a folder: the run is saved there at its end, even if Ctrl-C, SIGTERM, a closed
                   terminal or an exception in on_event ends it
    every          number of steps between saves; 0: only at the end; the two newest checkpoints are kept
    resume         continue from the newest checkpoint in the folder, under any layout, with its batch size if none is
                   given
    async_save     continue training while files are written; until then each rank holds a copy of its part
    log            a folder for TensorBoard event files: loss, learning rate and tokens per second of each step
    progress       show a line that counts steps
    on_event       instead of that line: on_event(rank, event) after every step, with its number, loss and
                   tokens_per_second; with resume, first on_event(0, {"resumed": …}) with the first step
    hang_s         seconds that one layer, or one wait for another rank, may take before the run ends; None: 60

    returns {"losses": one per step done, "timeline": measured, of the last 100 steps, or None if none was done,
             "memory": bytes of weights, gradients and optimizer state on each rank, "end": the first step not done,
             "model": the module with the trained weights, made when it is first used: above 64 MiB it is read
             from the checkpoint}
    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> trained = hl.train(hl.Mesh(pp=2), steps=2, progress=False)  # starts ranks
    >>> len(trained["losses"]), trained["end"], type(trained["model"]).__name__
    (2, 2, 'GPT')
    """
    if checkpoint is None and (every or resume or async_save):
        raise ValueError("every, resume and async_save need a checkpoint folder: give checkpoint=FOLDER")
    saving = Saving(Path(checkpoint), every, resume, async_save) if checkpoint is not None else None
    if saving:
        folder(checkpoint)  # before the work whose result it stores
    if given.get("batch") is None and saving:
        given["batch"] = saving.noted("batch")  # the default depends on the layout
    job = affordable(**given)
    shown = Steps(job.steps) if progress and on_event is None else nullcontext(on_event)
    if saving:
        saving.refuse(job)
    refuse_other_in_parts(job, hang_s)
    foresee(__name__)
    place = saving and saving.folder
    with (
        shown as show,
        logged(log, job, show) as heard,
        training_ranks(job.mesh, hang_s) as pool,
        alone_in(place if pool.rank == 0 else None, patience=TO_END if resume else 0.0),
        stopping_gently(place, heard) as tell,
    ):
        refuse_elsewhere(job, pool)
        if saving:
            saving.refuse_earlier()  # a run that has since ended
        if tell and saving and (words := saving.told(job)):
            tell(0, {"resumed": words})
        homes = pool.run(_run_model, job, False, saving, KEPT, comes_home(job), on_event=tell)
    timeline = _timeline(job.schedule, homes, job.mesh, "model", room=job.room) if homes[0]["times"] else None
    memory = [sum(home["memory"].values()) for home in homes]
    facts = {"losses": homes[0]["losses"], "timeline": timeline, "memory": memory, "end": homes[0]["end"]}
    return Trained(facts, job, [home["shares"] for home in homes], checkpoint)
