"""Arguments that contradict others, or would have no effect: if they were ignored silently, the run would differ from
the one that its user described.

Relatives: `training.make_job`, which uses it; `modes.registry`, which does the same for the options of modes.
"""

from hybridlab.core.when.schedule import Schedule
from hybridlab.training import asked
from hybridlab.training.job import Job


def refuse_other_numbers(schedule: Schedule, given: dict):
    """Raise ValueError if a schedule has numbers that differ from the given arguments.

    >>> import hybridlab as hl
    >>> made = hl.schedule("1f1b", ranks=2, microbatches=8)
    >>> refuse_other_numbers(made, {"schedule": made, "microbatches": 4})
    Traceback (most recent call last):
    ValueError: microbatches=4 was given, but 1f1b was made with microbatches=8: leave it out, or give the schedule by \
its name
    """
    if not isinstance(given.get("schedule"), Schedule):
        return
    has = {"microbatches": len(schedule.replica_of) // schedule.dp, "chunks": schedule.stages // schedule.ranks}
    for name, number in has.items():
        if given.get(name) not in (None, number):
            raise ValueError(
                f"{name}={given[name]} was given, but {schedule.name} was made with {name}={number}: leave it out, or "
                "give the schedule by its name"
            )
    if given.get("copies") is not None:
        raise ValueError("copies has no effect on a finished schedule: leave it out, or give the schedule's name")


def refuse_other_rows(batch: int, rows: int | None, microbatches: int):
    """Raise ValueError if `rows` is given, and each microbatch of a batch has another number of rows."""
    if rows is not None and batch != rows * microbatches:
        raise ValueError(
            f"rows={rows} and batch={batch} disagree: {microbatches} microbatches have {batch // microbatches} rows "
            "each; leave one of the two out"
        )


def refuse_unused(job: Job, of: dict):
    """Raise ValueError for an argument that has no effect on a job.

    of  all arguments of the job
    """
    if of["active"] != asked.LAYOUT["active"].usual and job["zero"] < 3:
        raise ValueError(f"active={of['active']} has no effect without zero=3: give both, or leave out active")
    if job.flushes and not job.stash:
        raise ValueError(
            f"stash=False has no effect on {job.schedule.name}, which keeps one version of its weights: leave it out"
        )
