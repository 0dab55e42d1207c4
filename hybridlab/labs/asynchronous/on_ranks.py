"""Notebook 15: schedules of many updates, trained on real ranks and replayed in one process."""

import hybridlab as hl
from hybridlab.labs.asynchronous.updates import RANKS, Trained, ways
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.replay import replay

BATCH = {"rows": 4, "rate": 0.2}  # sequences in a microbatch; the learning rate of SGD
REPLAYS = {"of the forwards": "pipedream", "of the backwards": "flush after each", "one for all": "vertical sync"}


def trained(schedule: hl.Schedule, stash: bool = True, **more) -> Trained:
    """A small GPT, trained by one run of an asynchronous schedule; more as in `training.make_job.job_of`."""
    mesh = hl.Mesh(pp=schedule.ranks)
    job = job_of(mesh, schedule, steps=1, stash=stash, **BATCH | more)
    with hl.ranks(mesh) as pool:
        homes = pool.run(_train, job)
    return Trained(homes[0][0], [held for _, held in homes], schedule.window)


def _train(comm, job):
    trainer = Trainer(comm, job)
    losses, _ = trainer.step(0)
    return losses, max(trainer.weights.peak.values())


def from_replays(microbatches: int = 8, **more) -> tuple[dict[str, float], dict[str, float]]:
    """The largest difference between the losses of PipeDream on ranks and those of each of three replays, for runs with
    and without stashing.

    A replay computes every gradient in one process, with one version for each stage: the version of the forward; the
    version of the backward, which is the newest; or one version for all stages.
    """
    every = ways(microbatches)
    more = BATCH | {"dtype": "float64"} | more
    jobs = [job_of(hl.Mesh(pp=RANKS), every[way], steps=1, **more) for way in REPLAYS.values()]
    with hl.ranks(len(jobs)) as pool:
        replays = dict(zip(REPLAYS, pool.run(_replayed, jobs)))
    stashed, mixed = (trained(every["pipedream"], stash, **more).losses for stash in (True, False))
    return _gaps(stashed, replays), _gaps(mixed, replays)


def _replayed(comm, jobs):
    """Every rank replays one of the jobs, without the other ranks."""
    return replay(jobs[comm.rank])[0]


def _gaps(losses, replays):
    return {name: max(abs(a - b) for a, b in zip(losses, others)) for name, others in replays.items()}
