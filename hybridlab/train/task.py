"""The task: what is trained. Nothing in it depends on how many ranks share the work, except the schedule."""

from dataclasses import dataclass, replace

from hybridlab.core.catalog import Shape
from hybridlab.core.mesh import Mesh
from hybridlab.core.schedule import Schedule
from hybridlab.modes.message_driven import one_chain
from hybridlab.schedules.lower import lower, posted_ahead
from hybridlab.schedules.registry import schedule as named
from hybridlab.schedules.replicate import replicate
from hybridlab.schedules.sums import with_sums
from hybridlab.schedules.validate import validate
from hybridlab.train import stages
from hybridlab.train.text import Text

OPTIMIZERS = ("sgd", "adamw")
DEFAULT = Shape()
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Task:
    """What is trained: model, data, optimizer, and the lowered schedule that shares the work.

    sequences  b, in one microbatch;  data  a text file, or None for Python's standard library
    bounds     the layers of each stage
    accumulate how many times the schedule is played, each time on further microbatches, for one optimizer step
    clip       the largest norm that the whole model's gradient may have, or None
    driven     no written order: every rank does what has arrived
    stash      False: an asynchronous schedule keeps one version of its weights, see `modes.versions`
    """

    schedule: Schedule
    bounds: tuple[range, ...]
    shape: Shape = DEFAULT
    sequences: int = 2
    steps: int = 3
    optimizer: str = "sgd"
    rate: float = 0.1
    seed: int = 0
    dtype: str = "float32"
    data: str | None = None
    accumulate: int = 1
    clip: float | None = None
    driven: bool = False
    stash: bool = True

    @property
    def microbatches(self) -> int:
        """The number of microbatches in the global batch."""
        return len(self.schedule.replica_of) * self.accumulate

    @property
    def tokens(self) -> int:
        """The number of tokens behind one update: of the global batch, or of the window of an asynchronous schedule."""
        return (self.schedule.window or self.microbatches) * self.sequences * self.shape.context

    @property
    def flushes(self) -> bool:
        """Whether one optimizer step follows each global batch; else the schedule itself says when stages update."""
        return not any(action.kind == "OPT" for action in self.schedule.program[0])


def task(
    mesh: Mesh,
    schedule: str | Schedule = "1f1b",
    microbatches: int = 4,
    batch: int | None = None,
    chunks: int | None = None,
    cut="layers",
    shape: Shape = DEFAULT,
    ahead: int = 0,
    **more,
) -> Task:
    """The task for a mesh of dp × pp; `batch` is the number of sequences in the global batch, dp × m × 1 at least.

    cut    how the layers are dealt out to stages, see `train.stages.cut`
    ahead  receives posted before their turn, see `schedules.lower.posted_ahead`;  more  as in `Task`

    raises  ValueError in one sentence when a number does not fit another, or the schedule would hang
    """
    unknown = [axis for axis in mesh.axes if axis not in ("dp", "pp") and mesh[axis] > 1]
    if unknown:
        raise ValueError(f"{mesh} has an axis {unknown[0]}, which cannot be trained yet: use dp and pp")
    if isinstance(schedule, str):
        one = named(schedule, ranks=mesh["pp"], microbatches=microbatches, **({"chunks": chunks} if chunks else {}))
        schedule = replicate(one, mesh) if mesh["dp"] > 1 else one
    if (schedule.dp, schedule.ranks) != (mesh["dp"], mesh.size):
        has = f"{schedule.ranks} ranks in {schedule.dp} copies"
        raise ValueError(f"{schedule.name} has {has}, {mesh} has {mesh.size} in {mesh['dp']}: make them equal")
    bounds = stages.cut(shape, schedule.stages, cut)
    one = Task(posted_ahead(_fitted(schedule, shape, bounds), ahead), bounds, shape, **more)
    _refuse_misfits(one)
    if batch is None:
        return one
    if batch < 1 or batch % one.microbatches:
        m, d = schedule.microbatches, mesh["dp"]
        raise ValueError(
            f"batch {batch} is not divisible by dp × microbatches = {d} × {m}: choose a multiple of {d * m}"
        )
    return replace(one, sequences=batch // one.microbatches)


def _fitted(schedule: Schedule, shape: Shape, bounds) -> Schedule:
    """The schedule with the model's skips and ties, its sums and messages written out; proved to reach its end."""
    links = stages.Links.of(bounds, shape.skipping)
    tied = ((0, schedule.stages - 1),) if shape.tied and schedule.stages > 1 else ()
    if not schedule.lowered:
        schedule = lower(with_sums(replace(schedule, skips=links.skips, tied=tied)))
    elif (schedule.skips, schedule.tied) != (links.skips, tied):
        raise ValueError(
            f"{schedule.name} has its messages already, with skips {list(schedule.skips)} and ties "
            f"{list(schedule.tied)}; this model has {list(links.skips)} and {list(tied)}: give it without messages"
        )
    return validate(schedule)


def _refuse_misfits(one: Task):
    if one.steps < 1:
        raise ValueError(f"steps={one.steps} trains nothing: give 1 or more")
    if one.accumulate < 1:
        raise ValueError(f"accumulate={one.accumulate} plays nothing: give 1 or more")
    if one.clip is not None and not one.clip > 0:
        raise ValueError(f"clip={one.clip} is no norm: give a number above 0")
    if not one.flushes and (one.schedule.dp > 1 or one.schedule.tied or one.accumulate > 1 or one.clip is not None):
        raise ValueError(
            f"{one.schedule.name} updates every stage by itself: it runs without dp, tied weights, accumulate and clip"
        )
    if one.driven:
        one_chain(one.schedule)
    Text.of(one.data)
    if one.optimizer not in OPTIMIZERS:
        raise ValueError(f"there is no optimizer {one.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}")
    if one.dtype not in DTYPES:
        raise ValueError(f"there is no dtype {one.dtype!r}: choose one of {', '.join(DTYPES)}")
