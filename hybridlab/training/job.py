"""The job: a model and its division among ranks. The model itself has no code for this."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import torch

from hybridlab.core.when.along import norms
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import arranged, joined, part, sizes_of, spans
from hybridlab.modes.data_parallel import DataParallel
from hybridlab.modes.mode import Mode
from hybridlab.predict.bytes.memory import Widths
from hybridlab.predict.plans.divisions import Division
from hybridlab.training import optimizers, placing, stages
from hybridlab.training.models.model import Model
from hybridlab.training.models.one_row import Passed, one_row, passed
from hybridlab.training.models.trees import as_compared, as_entering, flat, mapped


@dataclass(frozen=True, eq=False)
class Job:
    """A training run: model, data, optimizer; the lowered schedule, the mesh, and the modes that divide the work.

    job["zero"] and similar are the chosen values of the modes' options; see `modes.mode.Option`.

    bounds     the layers of each stage;  rows  b, in one microbatch: for text, sequences;  dtype  of the computation
    accumulate number of runs of the schedule, each with further microbatches, for one optimizer step
    rate, warmup, anneal  the learning rate, see `rates`;  clip  the maximum norm of the full model's gradient, or None
    driven     no list: messages start the actions;  stash  False: one version, see `runtime.versions`
    predict_weights  whether versions are predictions, see `runtime.predicted`;  decay  of weights, see `optimizers`
    weights    stored initial weights, see `first_weights`;  room  memory for activations on each device, or None
    """

    mesh: Mesh
    schedule: Schedule
    bounds: tuple[range, ...]
    model: Model
    modes: tuple[Mode, ...]
    chosen: dict
    rows: int
    steps: int
    optimizer: str
    rate: float | Callable
    warmup: int
    anneal: str
    betas: tuple[float, ...]
    seed: int
    dtype: str
    accumulate: int
    clip: float | None
    driven: bool
    stash: bool
    predict_weights: bool
    decay: float
    weights: str | dict | None = None
    room: Room | None = None
    _found: dict = field(default_factory=dict, repr=False)

    def __getitem__(self, option: str):
        return self.chosen[option]

    def __getstate__(self):
        """The fields that are sent: every rank derives the rest itself, so that ranks can be compared."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"_found": {}, "between": self.between}

    def __setstate__(self, state):
        vars(self).update(state)

    def with_(self, **changes) -> "Job":
        """The same job with other fields, except model, seed and dtype: values derived from these stay valid."""
        new, stays = replace(self, **changes, _found={}), ["whole"] + ["between"] * ("rows" not in changes)
        vars(new).update({name: vars(self)[name] for name in stays if name in vars(self)})
        return new

    @property
    def choices(self) -> str:
        """The job's active options and its dtype, in words."""
        said = [mode.said(self) for mode in self.modes] + ["driven" * self.driven]
        return ", ".join([*filter(None, said), self.dtype])

    # the model

    @cached_property
    def whole(self) -> torch.nn.Module:
        """The full module for inspection: names and shapes, on torch's meta device."""
        return self.model.made(self.seed, getattr(torch, self.dtype), {})

    @cached_property
    def layers(self) -> list[torch.nn.Module]:
        """The layers of the full module."""
        return self.model.layers(self.whole)

    @cached_property
    def records(self) -> tuple[Param, ...]:
        """Every parameter with its shape and the names of its dims, before it is placed on ranks."""
        every = dict(self.whole.named_parameters())
        dims = self.model.dims_of(every)
        return tuple(Param(name, tuple(weight.shape), dims=dims[name]) for name, weight in every.items())

    @cached_property
    def sizes(self) -> dict[str, int]:
        """{letter: length} of the named dims."""
        return sizes_of(self.records, self.model.sizes)

    @cached_property
    def between(self) -> list:
        """The output of each layer for a full microbatch, as example tensors that have shapes but no storage."""
        return self.model.between(self.rows, getattr(torch, self.dtype), self.rows * self.microbatches, self.links.sent)

    @cached_property
    def leaving(self) -> list[str]:
        """The names of the dims of each layer's output, with a dot for a dim without a name."""
        return placing.dims_left(self)

    @cached_property
    def passed(self) -> dict[str, Passed]:
        """The inputs and outputs of each module of the full model, by module name, for one row: found by running it."""
        return passed(self.model, self.seed, getattr(torch, self.dtype))

    def one_row(self, prepare):
        """Pass one row through the full model, after prepare(module) has changed it."""
        one_row(self.model, self.seed, getattr(torch, self.dtype), prepare)

    @cached_property
    def links(self) -> stages.Links:
        """The tensors sent between stages."""
        return stages.Links.of(self.bounds, self.model.takes(self.whole))

    def stage_of(self, layer: int) -> int:
        """The stage that contains a layer."""
        return next(stage for stage, its in enumerate(self.bounds) if layer in its)

    def stages_on(self, rank: int) -> list[int]:
        """The stages that a rank owns, in order."""
        seat = self.mesh.line(rank).index(rank)
        return sorted({stage for (stage, _), owner in self.schedule.place.items() if owner == seat})

    @cached_property
    def homes(self) -> dict[str, tuple[int, ...]]:
        """The stages that use each parameter."""
        return placing.homes_of(self)

    @cached_property
    def frozen(self) -> set[str]:
        """The parameters that are not trained."""
        return {name for name, weight in self.whole.named_parameters() if not weight.requires_grad}

    # the layout

    @cached_property
    def layout(self) -> Layout:
        """The layout of all parameters: every rank derives it itself."""
        return placing.layout_of(self)

    def boxes(self, rank: int) -> dict[str, tuple[slice, ...]]:
        """{parameter or buffer: a rank's part of it, a slice for each dim, or () for all}."""
        return placing.boxes_of(self, rank)

    @property
    def keeper(self) -> DataParallel:
        """The mode that stores the weights: data parallelism, or ZeRO."""
        return next(mode for mode in self.modes if isinstance(mode, DataParallel))

    @property
    def copied(self) -> str:
        """The letters of the dims that may be shorter than the axis that cuts them."""
        return "".join(mode.copied for mode in self.modes)

    def rules(self, what: str = "rules", but: Collection[str] = ()) -> dict[str, str]:
        """The merged tables of all modes, except those of the axes `but`: "rules" of parameters, "data", "stream", …"""
        return joined((mode.name, getattr(mode, what)(self)) for mode in self.modes if mode.axis not in but)

    @cached_property
    def apart(self) -> tuple[str, ...]:
        """The axes inside a stage along which rows or positions differ: gradients are partial sums there."""
        letters = self.model.enters.split()
        cut = [self.rules(what).get(letter, "").split("+") for what in ("data", "between") for letter in letters]
        return tuple(axis for axis in self.mesh.inside if any(axis in axes for axes in cut))

    @cached_property
    def sharing_the_batch(self) -> tuple[str, ...]:
        """The axes inside a stage that cut the batch: a loss is the sum over them."""
        return tuple(
            axis for axis in self.mesh.inside if any(axis in axes.split("+") for axes in self.rules("data").values())
        )

    @property
    def copies(self) -> int:
        """The number of ranks that hold the same weights and see different data."""
        return math.prod(self.mesh[axis] for axis in ("dp", *self.sharing_the_batch))

    @property
    def division(self) -> Division:
        """The division of the model, in the form that rules and plans use."""
        return placing.division_of(self)

    def rooms(self, rank: int) -> dict[int, list]:
        """For every edge, numbered as in `Schedule.edges`, example tensors, without storage, of those sent there."""
        rules, crossing = self.rules("stream"), self.links.crossing
        mine = lambda layer: [part(x, self.leaving[layer], rules, self.mesh, rank) for x in flat(self.between[layer])]
        edges = enumerate(self.schedule.edges)
        return {number: [x for layer in crossing.get(edge, ()) for x in mine(layer)] for number, edge in edges}

    def lengths(self, rank: int, axes: Collection[str]) -> dict[str, int]:
        """{letter: the total length over all ranks that differ from this one only along some axes}, for dims of
        parameters and of tensors between layers."""
        rules = self.rules("rules", but=axes) | self.rules("between", but=axes)
        found = self.sizes | {"B": self.rows}
        for letter, axes in rules.items():
            if letter in found:
                every = spans(found[letter], self.mesh.length(axes), 1, letter in self.copied)
                low, high = every[self.mesh.place(rank, axes)]
                found[letter] = high - low
        return found

    def once(self, find):
        """find(self), computed once."""
        if find not in self._found:
            self._found[find] = find(self)
        return self._found[find]

    # execution

    def optimizer_of(self, weights: dict, comm=None) -> torch.optim.Optimizer:
        """The optimizer of named weights; `comm` is the communicator of a rank whose weights may be shards."""
        return optimizers.optimizer_of(self, weights, comm)

    def batch(self, step: int, unseen: bool = False) -> tuple[list, list]:
        """The global batch of one step in microbatches: (inputs, targets), in the dtype of the computation."""
        both = self.model.batch(step, self.microbatches * self.rows, self.seed, unseen)
        if len(self.bounds) > 1 and not unseen:
            self._refuse_other_shapes(step, both)
        dtype = getattr(torch, self.dtype)
        rows = [slice(number * self.rows, (number + 1) * self.rows) for number in range(self.microbatches)]
        cut = lambda x: [mapped(lambda whole, one=one: whole[one].clone(), x) for one in rows]  # frees the batch
        return cut(as_entering(both[0], dtype, step)), cut(as_compared(both[1], dtype))

    def _refuse_other_shapes(self, step: int, both):
        """Raise an error if rows and step 0 have different shapes: stages know the shapes of messages from step 0."""
        now, first = _row_shapes(both), self.once(_first_row_shapes)
        if now != first:
            raise ValueError(
                f"data({step}, rows) gave rows of shapes {now}, but {first} in step 0, and stages exchange tensors of "
                "one shape: pad all rows to one length, or leave out pp"
            )

    def batch_of(self, rank: int, step: int, unseen: bool = False) -> tuple[list, list]:
        """A rank's part of the global batch, in microbatches."""
        both, rules = self.batch(step, unseen), self.rules("data")
        if not rules:
            return both
        orders = {letter: order for mode in self.modes for letter, order in mode.order(self).items()}
        mine = lambda dims: lambda x: part(arranged(x, dims, orders), dims, rules, self.mesh, rank)
        named = mine(self.model.enters), mine(self.model.targets)
        return tuple([mapped(take, x) for x in xs] for take, xs in zip(named, both))

    def first_row(self, rank: int) -> int:
        """The number of a rank's first row in a microbatch."""
        return int(part(torch.arange(self.rows), "B", self.rules("data"), self.mesh, rank)[0])

    def clipped(self, gradients: list, norm) -> list:
        """Gradients scaled, in place, so that norm(), the norm of the full model, stays within the job's limit."""
        if self.clip is not None and (factor := self.clipping(norm())) < 1:
            for gradient in gradients:
                gradient.mul_(factor)
        return gradients

    def clipping(self, norm: float) -> float:
        """The factor for gradients with this norm; 1 or more: they stay. Torch's `clip_grad_norm_` also adds 1e-6."""
        return self.clip / (norm + 1e-6)

    @property
    def widths(self) -> Widths:
        """Bytes of one number, by its use."""
        sizes = (getattr(torch, name).itemsize for name in (self.dtype, self["sum_dtype"], self["master_dtype"]))
        more = self.keeper.besides
        return Widths(*sizes, states=optimizers.STATES[self.optimizer] + more, matrix=1 + more)

    @property
    def microbatches(self) -> int:
        """The number of microbatches in the global batch."""
        return len(self.schedule.replica_of) * self.accumulate

    @property
    def tokens(self) -> int:
        """The number of loss terms of one update (for text, tokens): those of the batch; with sums="local" those of one
        copy's part; or those of an asynchronous window.
        """
        every = (self.schedule.window or self.microbatches) * self.rows * self.model.terms
        return every // self.keeper.alone(self)

    def updates(self, stage: int) -> int:
        """The number of updates of a stage in one step: one, or more with an asynchronous schedule."""
        return self.microbatches // self.schedule.windows[stage] if self.schedule.window else 1

    @property
    def flushes(self) -> bool:
        """Whether one optimizer step follows each global batch; otherwise the schedule contains the updates."""
        return not self.schedule.window

    @property
    def norms(self) -> bool:
        """Whether the schedule sums the norm from rank to rank, and takes the optimizer step."""
        return norms(self.schedule) > 0


def _row_shapes(batch) -> list[tuple[int, ...]]:
    return [tuple(x.shape[1:]) for one in batch for x in flat(one)]


def _first_row_shapes(job: Job) -> list[tuple[int, ...]]:
    return _row_shapes(job.model.batch(0, job.microbatches * job.rows, job.seed))
