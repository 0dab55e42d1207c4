"""The task: what is trained, and how it is shared out. The model knows nothing of it."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from hybridlab.core.layout import Layout
from hybridlab.core.mesh import Mesh
from hybridlab.core.schedule import Schedule
from hybridlab.core.shape import Shape
from hybridlab.modes import tensor_parallel
from hybridlab.modes.data_parallel import FORMS
from hybridlab.modes.message_driven import one_chain
from hybridlab.schedules.lower import lower, posted_ahead
from hybridlab.schedules.registry import schedule as named
from hybridlab.schedules.replicate import replicate
from hybridlab.schedules.sharded import sharded
from hybridlab.schedules.sums import sooner, with_sums
from hybridlab.schedules.validate import validate
from hybridlab.train import placing, stages
from hybridlab.train.model import GPT
from hybridlab.train.text import Text

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
DEFAULT = Shape()
DTYPES = ("float32", "float64", "bfloat16")
BYTES = 256
PLAIN = ("norm", "bias")  # in a weight's name: it does not decay


@dataclass(frozen=True)
class Task:
    """What is trained: model, data, optimizer; the lowered schedule and the mesh that share the work.

    sequences  b, in one microbatch;  data  a text file, or None for Python's standard library
    bounds     the layers of each stage
    accumulate how many times the schedule is played, each time on further microbatches, for one optimizer step
    clip       the largest norm that the whole model's gradient may have, or None
    driven     no written order: every rank does what has arrived
    stash      False: an asynchronous schedule keeps one version of its weights, see `modes.versions`
    sums       when gradients are summed, and in what packs: one of `data_parallel.FORMS`
    zero       the ZeRO stage;  owners  how many neighbours along dp share a parameter then: dp, or a divisor (hybrid)
    sequence   with tensor parallelism, cut what is between the matrices too, along the sequence
    scatter    with tensor parallelism, send each rank's part between stages, and gather it there
    dtype      of the computation;  sum_dtype, master_dtype  of gradient sums and of what the optimizer updates
    offload    keep what the optimizer updates, and its state, in the host's memory
    decay      weight decay, of weights whose name does not say norm or bias
    """

    mesh: Mesh
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
    sums: str = "after"
    zero: int = 0
    owners: int = 1
    sequence: bool = False
    scatter: bool = False
    sum_dtype: str = "float32"
    master_dtype: str = "float32"
    offload: bool = False
    decay: float = 0.0

    @cached_property
    def homes(self) -> dict[str, tuple[int, ...]]:
        """The stages that use each parameter."""
        return placing.homes_of(GPT(self.shape), self.bounds)

    @cached_property
    def layout(self) -> Layout:
        """What lives where: made by every rank for itself."""
        return placing.layout_of(self)

    def optimizer_of(self, weights: dict) -> torch.optim.Optimizer:
        """The optimizer of named weights, in two groups: those that decay, and those that do not."""
        plain = [weight for name, weight in weights.items() if any(word in name for word in PLAIN)]
        decaying = [weight for name, weight in weights.items() if not any(word in name for word in PLAIN)]
        groups = [{"params": decaying, "weight_decay": self.decay}, {"params": plain, "weight_decay": 0.0}]
        return OPTIMIZERS[self.optimizer]([group for group in groups if group["params"]], lr=self.rate)

    def batch(self, text: Text, step: int) -> tuple[list, list]:
        """The global batch of one step in microbatches: (inputs, targets), lists of (sequences, context) tensors."""
        both = text.batch(step, self.microbatches * self.sequences, self.shape.context, self.seed)
        cut = lambda array: np.split(np.ascontiguousarray(array), self.microbatches)
        return tuple([torch.from_numpy(part) for part in cut(array)] for array in both)

    def clipped(self, gradients: list, norm) -> list:
        """Gradients scaled, in place, so that the whole model's norm, norm(), is no larger than the task allows."""
        if self.clip is not None and (size := norm()) > self.clip:
            for gradient in gradients:
                gradient.mul_(self.clip / size)
        return gradients

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
    active: int = 2,
    **more,
) -> Task:
    """The task for a mesh of dp × pp × tp; `batch` is the number of sequences in the global batch, dp × m × 1 at least.

    cut     how the layers are dealt out to stages, see `train.stages.cut`
    ahead   receives posted before their turn, see `schedules.lower.posted_ahead`
    active  with zero=3, stages whose weights a rank holds at a time, see `schedules.sharded`;  more  as in `Task`

    With zero=3 and one pipeline rank, a schedule by name becomes a loop over single blocks (looped_bfs): whole weights
    of one or two blocks are then there at a time, and not of the model.

    raises  ValueError in one sentence when a number does not fit another, or the schedule would hang
    """
    _refuse_mesh(mesh, shape, more)
    more = _completed(mesh, more)
    if isinstance(schedule, str):
        if more["zero"] == 3 and mesh["pp"] == 1 and chunks is None:
            schedule, chunks = "looped_bfs", shape.layers
        one = named(schedule, ranks=mesh["pp"], microbatches=microbatches, **({"chunks": chunks} if chunks else {}))
        schedule = replicate(one, mesh.played) if mesh["dp"] > 1 else one
    if (schedule.dp, schedule.ranks) != (mesh["dp"], mesh.played.size):
        has = f"{schedule.ranks} ranks in {schedule.dp} copies"
        raise ValueError(f"{schedule.name} has {has}, {mesh} has {mesh.played.size} in {mesh['dp']}: make them equal")
    _refuse_other_order(mesh, schedule)
    bounds = stages.cut(shape, schedule.stages, cut)
    inside = more.get("sequence", False) or shape.key_heads < mesh["tp"]  # sums of the ranks that share a stage
    fitted = posted_ahead(_fitted(schedule, shape, bounds, inside, more["zero"], active), ahead)
    one = Task(mesh, fitted, bounds, shape, **more)
    _refuse_misfits(one)
    if batch is None:
        return one
    if batch < 1 or batch % one.microbatches:
        m, d = schedule.microbatches, mesh["dp"]
        raise ValueError(
            f"batch {batch} is not divisible by dp × microbatches = {d} × {m}: choose a multiple of {d * m}"
        )
    return replace(one, sequences=batch // one.microbatches)


def _completed(mesh: Mesh, more: dict) -> dict:
    """What was not said, from what was: owners and packs from ZeRO's stage, the other dtypes from the computing one."""
    wide = "float32" if more.get("dtype") == "bfloat16" else more.get("dtype", "float32")
    zero = more.get("zero", 0)
    usual = {"zero": zero, "owners": mesh["dp"] if zero else 1, "sums": "buckets" if zero else "after"}
    said = {name: value for name, value in more.items() if value is not None}
    return usual | {"sum_dtype": wide, "master_dtype": wide} | said


def _fitted(schedule: Schedule, shape: Shape, bounds, everywhere: bool, zero: int, active: int) -> Schedule:
    """The schedule with the model's skips and ties, its sums, gathers and messages written out; it reaches its end."""
    links = stages.Links.of(bounds, shape.skipping)
    tied = ((0, schedule.stages - 1),) if shape.tied and schedule.stages > 1 else ()
    if schedule.lowered and (schedule.skips, schedule.tied) != (links.skips, tied):
        raise ValueError(
            f"{schedule.name} has its messages already, with skips {list(schedule.skips)} and ties "
            f"{list(schedule.tied)}; this model has {list(links.skips)} and {list(tied)}: give it without messages"
        )
    if schedule.lowered:
        return validate(schedule)
    summed = with_sums(replace(schedule, skips=links.skips, tied=tied), everywhere)
    summed = sooner(summed) if zero == 2 else sharded(summed, active) if zero == 3 else summed
    return validate(lower(summed))


def _refuse_mesh(mesh: Mesh, shape: Shape, more: dict):
    unknown = [axis for axis in mesh.axes if axis not in ("dp", "pp", "tp") and mesh[axis] > 1]
    if unknown:
        raise ValueError(f"{mesh} has an axis {unknown[0]}, which cannot be trained yet: use dp, pp and tp")
    if mesh["tp"] > 1:
        tensor_parallel.refuse_misfits(shape, mesh["tp"], more.get("sequence", False))
    if more.get("zero") and mesh["dp"] == 1:
        raise ValueError(f"zero={more['zero']} shares among replicas, and dp=1 has one: give dp=2 or more")


def _refuse_other_order(mesh: Mesh, schedule: Schedule):
    """Raise ValueError where the schedule's copies are not numbered as the mesh numbers its ranks."""
    line, each = mesh.line(0), schedule.replicas // schedule.dp
    for (_, replica), rank in schedule.place.items():
        if mesh.coordinates(line[rank]).get("dp", 0) != replica // each:
            raise ValueError(
                f"{schedule.name} numbers its copies otherwise than {mesh}: give the schedule by its name, or make its "
                "copies with schedules.replicate and this mesh"
            )


def _refuse_misfits(one: Task):
    for name in ("steps", "accumulate"):
        if getattr(one, name) < 1:
            what = "trains" if name == "steps" else "plays"
            raise ValueError(f"{name}={getattr(one, name)} {what} nothing: give 1 or more")
    if one.shape.vocabulary < BYTES:
        raise ValueError(f"vocabulary={one.shape.vocabulary} cannot name every byte of a text: give {BYTES} or more")
    if one.clip is not None and not one.clip > 0:
        raise ValueError(f"clip={one.clip} is no norm: give a number above 0")
    shares = one.schedule.dp > 1 or one.mesh["tp"] > 1 or one.schedule.tied
    if not one.flushes and (shares or one.accumulate > 1 or one.clip is not None or one.decay):
        raise ValueError(
            f"{one.schedule.name} updates every stage by itself: it runs without dp, tp, tied weights, accumulate, "
            "clip and decay"
        )
    if one.driven:
        one_chain(one.schedule)
        if one.mesh["tp"] > 1 or one.zero == 3:
            raise ValueError("messages cannot drive ranks that share a stage: play the written order, driven=False")
    Text.of(one.data)
    for name, choices in (("optimizer", OPTIMIZERS), ("sums", FORMS)):
        if getattr(one, name) not in choices:
            raise ValueError(f"there is no {name} {getattr(one, name)!r}: choose one of {', '.join(choices)}")
    for name in ("dtype", "sum_dtype", "master_dtype"):
        if getattr(one, name) not in DTYPES:
            raise ValueError(f"there is no {name} {getattr(one, name)!r}: choose one of {', '.join(DTYPES)}")
    one.layout.validate()
