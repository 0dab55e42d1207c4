"""A model for training: layers in sequence, a loss, and batches.

Any model can be a `Model`: a module, a summed loss, a source of batches. The layers need no code for parallelism, and
the modes need no code for special layers. Names of dims are only needed if a mode shards inside a layer.

Read next, in this folder: `examination` (errors before the run), `transformer` (models for a `Shape`), `gallery` (all).
"""

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial

import torch
from torch import nn

from hybridlab.core.what.seams import Branches
from hybridlab.signatures import typed
from hybridlab.training.models import huggingface, traced
from hybridlab.training.models.batches import Ordered, in_tensors
from hybridlab.training.models.copies import apart, fitted, in_dtype, with_boxes
from hybridlab.training.models.draws import ByPlace, Unfilled, seeded, shared_draws, stirred, tensors_of
from hybridlab.training.models.examination import examined
from hybridlab.training.models.graph import graph_of, refuse_lost, through
from hybridlab.training.models.reading import readable
from hybridlab.training.models.theirs import batches_of


class Model:
    """A model with its loss and its data, from which every rank makes the same module.

    whole   an nn.Sequential, or a module whose method `layers()` lists its layers in sequence; or a function that makes
            one from a seed. For a class with numbers drawn by place (`draws.ByPlace`; or a partial of one), ranks
            create only their own parts
    loss    loss(output, target) -> the *sum* over a microbatch
    data    data(step, rows) -> (inputs, targets), the same in every call; a Dataset, a DataLoader or a list of batches,
            see `training.models.theirs`; or an object with batch(step, rows, seed) and `unseen`, another such object
            for evaluation, and optionally `for_proof`, one for checks
    skips   {layer: the earlier layer whose output it takes as a second argument}; layers count from 0
    takes   {layer: the earlier layers whose outputs it takes, in order}, if it is not only the previous layer: branches
            and joins, see `training.models.graph`
    dims    {parameter: the names of its dims, "F D"}, see `core.where.rules`;  sizes  {letter: length} of combined dims
    terms   number of terms of the loss in one row: a training step divides by rows × terms
    enters, targets  the names of the dims of the first layer's input, and of targets; for images "B C Y X"
    layers  layers(module) -> its layers in sequence, for a module that does not list them
    call    call(module, inputs) -> the output for the loss, if this differs from module(inputs)
    uncut   the reason why no dims are named, for the error about tensor parallelism

    raises  ValueError for an invalid model

    >>> import hybridlab as hl
    >>> layers = nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.Linear(4, 1))
    >>> loss = lambda output, target: ((output - target) ** 2).sum()
    >>> data = lambda step, rows: (torch.ones(rows, 2), torch.zeros(rows, 1))
    >>> model = hl.Model(layers, loss, data)
    >>> model.batch(step=0, rows=3)[0].shape
    torch.Size([3, 2])
    """

    enters = targets = "B"  # further dims have no names
    scores = ""  # the letter of the dim that the loss normalizes over, which a mode may cut
    ends = (0, 0)  # layers that belong to the first stage, and to the last, for any cut
    proving = False  # see `for_proof`
    wide_buffers = False  # rotary frequencies of Hugging Face stay in float32

    @typed
    def __init__(
        self, whole, loss, data, *, skips: dict[int, int] | None = None, takes: dict | None = None,
        dims: dict[str, str] | None = None, sizes: dict[str, int] | None = None, terms: int = 1, enters: str = "",
        targets: str = "", layers: Callable | None = None, call: Callable | None = None, uncut: str = "",
    ):  # fmt: skip
        self.whole, self.loss, self.data, self.terms = whole, fitted(loss), batches_of(data), terms
        self._layers, self.call, self.uncut, self._ordered = layers, call, uncut, Ordered()
        self.enters, self.targets = enters or self.enters, targets or self.targets
        self._told, self.dims, self.sizes = {"skips": skips, "takes": takes}, dims or {}, sizes or {}
        if not isinstance(whole, nn.Module) and not _takes_a_seed(whole):
            raise ValueError(
                f"model={getattr(whole, '__name__', type(whole).__name__)} is not a module: give an nn.Module, such as "
                "nn.Sequential(*layers), or a function that takes the seed and returns one"
            )
        of_data = "data(step, rows), a Dataset, a DataLoader, or a list of batches"
        read = getattr(self.data, "batch", self.data)
        for name, value, what in (("loss", loss, "loss(output, target)"), ("data", read, of_data)):
            if not callable(value):
                raise ValueError(f"{name}={value!r} is not a function: give {what}")

    @classmethod
    def from_hf(
        cls, config, loss: Callable | None = None, data=None, *, tokens: int | None = None, terms: int | None = None
    ) -> "Model":
        """A language model from Hugging Face, built from the plans of its class.

        config  of transformers, or the path of a config.json: weights are drawn from the seed, and nothing is
                downloaded. Or a model: its weights are used
        loss    loss(scores, targets) -> the sum over a microbatch; None: the cross-entropy of every token
        data    as for any `Model`, with tokens as inputs, or (tokens, attention mask); None: the bytes of the course's
                text, mapped to other tokens if the vocabulary is small
        tokens  the number of tokens in a row of that text; None: 32, or fewer if the model has fewer positions
        terms   the number of terms of the loss in one row; None: its tokens, or 1 for another loss

        Pipeline plans (`_pp_plan`) list its layers, tensor-parallel plans (`_tp_plan`) the matrices to shard.

        raises  ValueError if transformers or a plan is missing, for dropout, and for a forward that
                computes something between two blocks
        """
        told = huggingface.told(config, loss, data, tokens) | ({} if terms is None else {"terms": terms})
        model = cls(**told)
        model.wide_buffers = True
        return model

    @classmethod
    def traced(cls, module, loss: Callable, data, *, cuts: Sequence[str], terms: int = 1) -> "Model":
        """Any module, cut before some of its submodules: torch's tracer records its operations.

        module  a module, or a function that makes one from a seed
        loss    loss(output, target) -> the sum over a microbatch, for the output as the module makes it
        data    data(step, rows) -> (inputs, targets); inputs are a tensor, or a tuple or a dict of arguments
        cuts    names of submodules in the order of their calls, such as ["layer2", "layer3"]: a layer begins at each
        terms   the number of terms of the loss in one row

        Each rank traces the module itself. Tensor parallelism needs layers, which a graph no longer has.

        raises  ValueError if torch cannot trace it for an arbitrary number of rows, or if the cuts do not fit

        >>> import hybridlab as hl
        >>> net = nn.Sequential(nn.Linear(2, 4), nn.Sequential(nn.GELU(), nn.Linear(4, 1)))
        >>> loss = lambda output, target: ((output - target) ** 2).sum()
        >>> data = lambda step, rows: (torch.ones(rows, 2), torch.zeros(rows, 1))
        >>> model = hl.Model.traced(net, loss, data, cuts=["1"])
        >>> len(model.layers(net))
        2
        """
        return cls(**traced.told(module, loss, data, cuts), terms=terms)

    def refuse(self):
        """Raise ValueError, with one sentence, if the model cannot be trained on its data."""

    def dims_of(self, parameters) -> dict[str, str]:
        """{parameter: the names of its dims, or ""} of these `parameters`.

        raises  ValueError if `dims` names an unknown parameter
        """
        for name, dims in self.dims.items():
            if name not in parameters:
                raise ValueError(
                    f"dims names {name}, but the model has no such parameter: choose from {', '.join(parameters)}"
                )
            if not isinstance(dims, str):
                raise ValueError(
                    f'the dimension names of {name} are a {type(dims).__name__}: give a string, such as "F D"'
                )
        return {name: self.dims.get(name, "") for name in parameters}

    @property
    def told(self) -> bool:
        """Whether `skips` or `takes` are given here, instead of by the module."""
        return any(said is not None for said in self._told.values())

    @property
    def by_place(self) -> bool:
        """Whether the initial numbers are drawn by place, so that a rank can create only its own part."""
        kind = self.whole.func if isinstance(self.whole, partial) else self.whole
        return isinstance(kind, type) and issubclass(kind, ByPlace)

    def made(self, seed: int, dtype: torch.dtype, boxes: dict | None = None) -> nn.Module:
        """The module made from a `seed`, in this `dtype`; `boxes` as in `part`."""
        return self.part(self.original(seed, dtype), seed, dtype, boxes)

    def original(self, seed: int, dtype: torch.dtype) -> nn.Module:
        """The full module for this `seed`, from which parts are taken. If its weights are drawn by place, it is on
        torch's meta device, in this `dtype`.
        """
        if isinstance(self.whole, nn.Module):
            return readable(self.whole, True, self.loss)
        if self.by_place:
            with torch.device("meta"), Unfilled():
                return self.whole(seed).to(dtype)
        with seeded(seed):
            return readable(self.whole(seed), False, self.loss)

    def part(self, original: nn.Module, seed: int, dtype: torch.dtype, boxes=None, device="cpu") -> nn.Module:
        """A copy of the original that holds some boxes of its parameters and buffers.

        original     the result of the method `original`
        seed, dtype  of its numbers
        boxes        {name: a slice for each dim, or () for the full tensor}; all others are on the meta device, with a
                     shape and without memory. None: everything. {}: a module for inspection
        device       of the boxes
        """
        boxes = dict.fromkeys(tensors_of(original), ()) if boxes is None else boxes
        module = with_boxes(original, boxes, device)
        if self.proving:
            stirred(module, original, seed, boxes)
        if not isinstance(module, ByPlace):  # it numbers its layers itself
            shared_draws(module, seed)
        return in_dtype(module, dtype, self.wide_buffers)

    def for_proof(self) -> "Model":
        """The same model prepared for a check: no weight starts with all elements equal (`draws.stirred`), and it uses
        data for a proof if it has any."""
        model = copy.copy(self)
        model.proving, model.data = True, getattr(self.data, "for_proof", self.data)
        return model

    def apart(self) -> "Model":
        """The same model with a copy of the loss: a trial call may fill a cache in it, for other rows or a device."""
        model = copy.copy(self)
        model.loss = apart(self.loss)
        return model

    def in_parts(self) -> "Model":
        """The same model with its all-to-alls between layers.

        raises  ValueError if it has none
        """
        raise ValueError(
            "this schedule has all-to-alls between stages, but this model has no experts: choose another schedule"
        )

    def scored(self, layers: int) -> dict[int, Callable]:
        """{layer whose output enters the loss: a function from all targets to those that this output needs}, for a
        model of `layers` layers; by default the last layer, with all targets.
        """
        return {layers - 1: lambda targets: targets}

    def repeated(self, layers: int) -> Sequence[int]:
        """Of `layers` layers, those that recomputation repeats: all except those at either end of the model."""
        return range(self.ends[0], layers - self.ends[1])

    def here(self, layer: int) -> dict[str, int]:
        """{letter: its length in a layer}, if this is not the length in the full model."""
        return {}

    def layers(self, module: nn.Module) -> list[nn.Module]:
        """The layers of a `module`, in sequence.

        raises  ValueError if the module does not list them
        """
        if self._layers is not None:
            return self._layers(module)
        if isinstance(module, nn.Sequential) and len(module):
            return list(module)
        if hasattr(module, "layers") and inspect.ismethod(module.layers):
            return _in_a_list(module)
        if isinstance(module, nn.Sequential):
            raise ValueError("the model has no layers: give an nn.Sequential with at least one")
        raise ValueError(
            f"{type(module).__name__} does not list its layers: make it an nn.Sequential, or give it a method layers() "
            "that returns them in order, or cut it by name, hl.Model.traced(module, loss, data, cuts=[…]); if you "
            "need no pipeline, nn.Sequential(module) is enough"
        )

    def takes(self, module: nn.Module) -> dict[int, tuple[int, ...]]:
        """{layer: the layers whose outputs it takes}, as given here, else as given by the module."""
        says = {"skips": module.skips, "takes": module.takes} if isinstance(module, Branches) else {}
        told = (says.get(name, {}) if said is None else said for name, said in self._told.items())
        takes = graph_of(number := len(self.layers(module)), *told)
        refuse_lost(takes, number)
        return takes

    def through(self, module: nn.Module, inputs):
        """The output of the full `module` for its inputs."""
        return through(self.layers(module), self.takes(module), inputs)

    def batch(self, step: int, rows: int, seed: int = 0, unseen: bool = False) -> tuple:
        """(inputs, targets) of a global batch, as tensors; it depends only on step and seed.

        rows    in the batch
        unseen  a batch for evaluation, never used in training

        raises  ValueError if the data returns anything else
        """
        return in_tensors(self._ordered.read(self.data, step, rows, seed, unseen), step, rows)

    def between(self, rows: int, dtype: torch.dtype, batch: int | None = None, sent: Collection[int] = ()) -> list:
        """The output of each layer, a tensor or a tuple of tensors, as examples that have shapes but no storage.

        rows   in the input batch
        dtype  of the weights
        batch  rows in the global batch of a step; None: the same number
        sent   the layers whose outputs stages exchange, so that all microbatches need outputs of one shape

        raises  ValueError if the model cannot be divided
        """
        return examined(self, rows, dtype, batch or rows, sent)

    def notes(self, module: nn.Module) -> dict:
        """The notes in a checkpoint about the model of a `module`, in addition to the shapes of its parameters."""
        return {"model": type(module).__name__}


def _in_a_list(module: nn.Module) -> list[nn.Module]:
    """The layers that a module lists itself.

    raises  ValueError for anything else than modules
    """
    listed = module.layers()
    layers = list(listed) if isinstance(listed, Iterable) else [listed]
    for one in (one for one in layers if not isinstance(one, nn.Module)):
        raise ValueError(
            f"layers() of {type(module).__name__} lists {getattr(one, '__name__', repr(one))}, which is not a module: "
            "return a list of nn.Modules, such as nn.Tanh() for torch.tanh"
        )
    return layers


def _takes_a_seed(whole) -> bool:
    with suppress(TypeError):
        return bool(inspect.signature(whole).bind(0))
    return False
