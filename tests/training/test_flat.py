"""A long training keeps no more than a short one: what ranks say and measure is kept of the latest steps only."""

import pytest

import hybridlab as hl
from hybridlab.training import loop, run
from hybridlab.training.make_job import job_of

pytestmark = [pytest.mark.ranks, pytest.mark.long]
JOB = dict(schedule="1f1b", microbatches=2, batch=4, shape=hl.Shape(layers=2, width=16, heads=2, context=8),
           optimizer="adamw", rate=1e-3)  # fmt: skip
STEPS, FROM = 700, 400
MOST = 1000  # kB that a rank may grow by in these steps; it was 3 300 when all rows were kept


def resident_kB():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def trained(comm, job):
    """(kB that this rank grew by, steps whose times are kept, rows of the ledger)."""
    sizes, one_step = {}, loop.Trainer.step

    def watched(self, step):
        sizes[step] = resident_kB()
        return one_step(self, step)

    loop.Trainer.step = watched
    try:
        home = loop.train_on_rank(comm, job, kept=run.KEPT)
    finally:
        loop.Trainer.step = one_step
    return sizes[STEPS - 1] - sizes[FROM], len(home["times"]), len(home["ledger"]), len(home["losses"])


@pytest.mark.parametrize("mesh, more", [(hl.Mesh(dp=2, pp=2), {"zero": 1}), (hl.Mesh(tp=2), {})], ids=str)
def test_memory_of_ranks_is_flat(mesh, more):
    with hl.ranks(mesh, hang_s=300) as pool:
        homes = pool.run(trained, job_of(mesh, **JOB, **more, steps=STEPS))
        short = pool.run(trained_briefly, job_of(mesh, **JOB, **more, steps=run.KEPT))
    for (grown, times, rows, losses), every in zip(homes, short):
        assert grown < MOST and times == run.KEPT and losses == STEPS
        assert 0 < rows <= every


def trained_briefly(comm, job):
    """Rows of the ledger, where every step's are kept."""
    return len(loop.train_on_rank(comm, job)["ledger"])


def test_the_timeline_of_a_training_is_that_of_its_latest_steps():
    told = hl.train(hl.Mesh(pp=2), **JOB, steps=run.KEPT + 5, progress=False)
    assert len(told["losses"]) == told["end"] == run.KEPT + 5
    assert told["timeline"].begin.shape[0] == run.KEPT and f"of the last {run.KEPT} steps" in hl.train.__doc__
