"""From what is asked for to a job: what was not said is filled in, and what does not fit is refused in a sentence."""

from dataclasses import fields, replace

from hybridlab.core.what.shape import Shape
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import registry
from hybridlab.modes.data_parallel import DTYPES
from hybridlab.runtime.message_driven import one_chain
from hybridlab.scheduling.dispatched import PARTS
from hybridlab.scheduling.lower import lower, posted_ahead
from hybridlab.scheduling.registry import schedule as named
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.sums import with_sums
from hybridlab.scheduling.validate import validate
from hybridlab.training import placing, stages
from hybridlab.training.job import OPTIMIZERS, Job
from hybridlab.training.models.gallery import model_of
from hybridlab.training.out_of_core import within

DEFAULT = Shape()
LARGEST = 2**63  # of any number that is given; infinity is larger
ABOUT_A_MODEL = ("skips", "takes", "dims", "sizes", "terms", "enters", "targets")  # of a module without a Model


def job_of(
    mesh: Mesh,
    schedule: str | Schedule = "1f1b",
    microbatches: int = 4,
    batch: int | None = None,
    chunks: int | None = None,
    copies: tuple[int, ...] | None = None,
    cut="layers",
    model=None,
    loss=None,
    data=None,
    shape: Shape = DEFAULT,
    ahead: int = 0,
    active: int = 2,
    **more,
) -> Job:
    """The job on a mesh; `batch` is the number of rows in the global batch, dp × m × 1 at least.

    copies  how many ranks each stage has, where the schedule leaves the choice, see `scheduling.pipedream`
    cut     how the layers are dealt out to stages, see `training.stages.cut`; "layers" in a schedule with branches: so
            that the model has them too
    model   anyone's module with its `loss` and `data` (and skips, takes, dims, …: see `Model`), a `Model`, or
            the name of a reference model; else the transformer of `shape`, and `data` a text file
    ahead   receives posted before their turn, see `scheduling.lower.posted_ahead`
    active  with zero=3, stages whose weights a rank holds at a time, see `scheduling.sharded`
    more    fields of `Job`, and the options of all modes

    raises  ValueError in one sentence when a number does not fit another, or the schedule would hang
    """
    about = {name: more.pop(name) for name in ABOUT_A_MODEL if name in more}
    model = model_of(shape if model is None else model, loss, data, **about)
    if isinstance(schedule, Schedule) and schedule.exchanges:
        model = model.in_parts()
    model.refuse()
    chosen, more = _chosen(mesh, more)
    modes = registry.taking_part(mesh, chosen)
    job = Job(mesh, None, (), model, modes, chosen, **more)
    if isinstance(schedule, str):
        for mode in modes:
            schedule, chunks = mode.meant(schedule, chunks, mesh, chosen, len(job.layers) - sum(model.ends))
    played = _played(mesh, schedule, microbatches, {"chunks": chunks, "copies": copies})
    _refuse_other_order(mesh, played)
    if played.exchanges and played.stages != len(job.layers) - sum(model.ends):
        blocks = played.stages // PARTS
        raise ValueError(f"{played.name} has a block on every stage: give a model of {blocks} blocks")
    at_branches = played.breaks and cut == "layers"
    bounds = (
        stages.cut_at_branches(model, job.whole, played)
        if at_branches
        else stages.cut(model, played.stages, cut, job.whole)
    )
    job = job.with_(schedule=played, bounds=bounds)
    job = _with_rows(job, batch)
    _refuse_misfits(job)
    for mode in modes:
        mode.refuse(job)
    fitted = posted_ahead(_fitted(job, active), ahead)
    job = job.with_(schedule=fitted)
    job.layout.validate()
    return job if job["device_memory"] is None else within(job)


def _chosen(mesh: Mesh, more: dict) -> tuple[dict, dict]:
    """(the modes' options, fields of the job)."""
    options, own = registry.options(), {one.name for one in fields(Job)}
    for name in more:
        if name not in options and name not in own:
            raise TypeError(f"{name} is neither a field of a job nor an option of a mode: {', '.join(options)}")
    for name, choices in (("optimizer", OPTIMIZERS), ("dtype", DTYPES)):
        if more.get(name) is not None and more[name] not in choices:
            raise ValueError(f"there is no {name} {more[name]!r}: choose one of {', '.join(choices)}")
    said = {name: value for name, value in more.items() if name in options}
    fixed = {name: value for name, value in more.items() if name in own and value is not None}
    return registry.chosen_of(mesh, said, fixed.get("dtype", "float32")), fixed


def _played(mesh, schedule, microbatches, options) -> Schedule:
    """The schedule with its copies, for all ranks of a line of the mesh."""
    if isinstance(schedule, str):
        said = {name: value for name, value in options.items() if value is not None}
        one = named(schedule, ranks=mesh["pp"], microbatches=microbatches, **said)
        schedule = replicate(one, mesh.played) if mesh["dp"] > 1 else one
    if (schedule.dp, schedule.ranks) != (mesh["dp"], mesh.played.size):
        has = f"{schedule.ranks} ranks in {schedule.dp} copies"
        raise ValueError(f"{schedule.name} has {has}, {mesh} has {mesh.played.size} in {mesh['dp']}: make them equal")
    return schedule


def _with_rows(job: Job, batch: int | None) -> Job:
    if batch is None:
        return job
    if batch < 1 or batch % job.microbatches:
        m, d = job.microbatches // job.mesh["dp"], job.mesh["dp"]
        raise ValueError(
            f"batch {batch} is not divisible by dp × microbatches = {d} × {m}: choose a multiple of {d * m}"
        )
    return job.with_(rows=batch // job.microbatches)


def _fitted(job: Job, active: int) -> Schedule:
    """The schedule with the model's stage graph and ties, its sums, gathers and messages written out; it reaches its
    end."""
    schedule, skips, breaks = job.schedule, job.links.skips, job.links.breaks
    tied = tuple(sorted({home for home in job.homes.values() if len(home) > 1}))
    for a, b in sorted(set(schedule.breaks) - set(breaks)):
        raise ValueError(
            f"{schedule.name} has stages {a} and {b} in different branches, and in this model, cut so, stage {b} takes "
            f"from stage {a}: cut it between its branches, or choose another schedule"
        )
    if schedule.lowered and (schedule.skips, schedule.breaks, schedule.tied) != (skips, breaks, tied):
        raise ValueError(
            f"{schedule.name} has its messages already, with skips {list(schedule.skips)}, breaks "
            f"{list(schedule.breaks)} and ties {list(schedule.tied)}; this model has {list(skips)}, {list(breaks)} and "
            f"{list(tied)}: give it without messages"
        )
    if schedule.lowered:
        return validate(schedule)
    summed = with_sums(replace(schedule, skips=skips, breaks=breaks, tied=tied), placing.sums_inside(job))
    for mode in job.modes:
        summed = mode.scheduled(summed, job.chosen, active)
    return validate(lower(summed))


def _refuse_other_order(mesh: Mesh, schedule: Schedule):
    """Raise ValueError where the schedule's copies are not numbered as the mesh numbers its ranks."""
    line, each = mesh.line(0), schedule.replicas // schedule.dp
    for (_, replica), rank in schedule.place.items():
        if mesh.coordinates(line[rank]).get("dp", 0) != replica // each:
            raise ValueError(
                f"{schedule.name} numbers its copies otherwise than {mesh}: give the schedule by its name, or make its "
                "copies with schedules.replicate and this mesh"
            )


def _refuse_misfits(job: Job):
    for name in ("steps", "accumulate"):
        if getattr(job, name) < 1:
            what = "trains" if name == "steps" else "plays"
            raise ValueError(f"{name}={getattr(job, name)} {what} nothing: give 1 or more")
    for name in ("rate", "decay", "seed"):
        if not 0 <= getattr(job, name) < LARGEST:
            raise ValueError(f"{name}={getattr(job, name)} is not possible: give a number, 0 or more")
    if job.clip is not None and not job.clip > 0:
        raise ValueError(f"clip={job.clip} is no norm: give a number above 0")
    shares = job.schedule.dp > 1 or job.mesh.inside or any(len(home) > 1 for home in job.homes.values())
    if not job.flushes and (shares or job.accumulate > 1 or job.clip is not None or job["offload"]):
        raise ValueError(
            f"{job.schedule.name} updates every stage by itself: it runs without dp, tp, tied weights, accumulate, "
            "clip and offload"
        )
    if job.driven:
        one_chain(job.schedule)
        if job.mesh.inside or job["zero"] == 3:
            raise ValueError("messages cannot drive ranks that share a stage: play the written order, driven=False")
