"""A transformer in slices: the same weights on the tokens of a row, slice after slice.

Causal attention only looks back. So a layer can compute a slice of a row from this slice's stream, and from the keys
and values of the slices before, which are saved after rotation. With latents it keeps the latents, and the rotated key
that all heads share. Everything else treats each position separately.

    layer l, slices 0 and 1    stream of layer l-1 ──▶ layer l on slice 0 ──▶ stream
                                                              │ keys, values
                               stream of layer l-1 ──▶ layer l on slice 1 ──▶ stream

An attending layer on a slice has outputs for two layers: its stream for the next layer, its keys and values for the
next slice. So two layers without weights follow it, and each passes on one of them.

The layers are listed stage by stage, and slice by slice within a stage: so stage s on slice i is stage s·n + i, as in
`scheduling.token_slices`. The reference is the unsliced model: `through` runs whole rows.

Source: Li et al. 2021, arXiv:2102.07988. Relatives: `models.parts`, another cut of the same blocks;
`core.what.seams.Recalls`.

Shape suffixes
    those of GPT, and S positions of this slice and of those before it
"""

from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import nn

from hybridlab.core.what.seams import Positions, Recalls
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans import divisions
from hybridlab.predict.plans.divisions import Division
from hybridlab.training.models.model import Model
from hybridlab.training.models.transformer import Transformer


class OnSlice(nn.Module):
    """A layer on one slice of a row.

    layer    of the full model; it serves all slices
    span     the positions of the slice
    reads    whether it takes the batch, of which it then takes its own positions
    follows  whether its last argument is the keys and values of earlier slices

    An attending layer gives a tuple: its output, then the keys and values of this slice and of those before it.
    """

    def __init__(self, layer: nn.Module, span: range, reads: bool, follows: bool):
        super().__init__()
        self.layer, self.span, self.reads, self.follows = layer, span, reads, follows

    def forward(self, *arrived):
        *streams, past = arrived if self.follows else (*arrived, ())
        if self.reads:
            streams = [x[:, self.span.start : self.span.stop] for x in streams]
        memory, attention = Memory(past), recalling(self.layer)
        for one in self.layer.modules():
            if isinstance(one, Positions):
                one.first = self.span.start
        for one in attention:
            one.recall = memory
        x = self.layer(*streams)
        for one in attention:
            del one.recall  # the class has the one for whole rows
        return (x, *memory.kept) if attention else x


class Memory:
    """Keys and values of all positions so far, as a layer keeps them: tensors (…, S, features).

    past  of the slices before, () for the first slice
    """

    def __init__(self, past: tuple[torch.Tensor, ...]):
        self.kept = past

    def __call__(self, *new):
        self.kept = tuple(torch.cat(both, -2) for both in zip(self.kept, new)) if self.kept else new
        return self.kept


class Stream(nn.Module):
    """The output of an attending layer, without its keys and values."""

    def forward(self, made):
        return made[0]


class Kept(nn.Module):
    """The keys and values of an attending layer, for the next slice."""

    def forward(self, made):
        return made[1:]


class Place(NamedTuple):
    """One layer of a model in slices.

    kind   `OnSlice`, `Stream` or `Kept`;  layer  its number in the full model;  slice  the number of its slice
    takes  the numbers, here, of the layers whose outputs it takes; -1: the batch
    """

    kind: type
    layer: int
    slice: int
    takes: tuple[int, ...]


def laid_out(cut, graph: dict, attending: set[int], slices: int) -> tuple[list[Place], tuple[range, ...]]:
    """(every layer in slices, the layers of each stage).

    cut        the layers of each part;  graph  the graph of the full model;  attending  its layers that attend to
               earlier positions

    >>> [place.kind.__name__ for place in laid_out([range(1)], {0: (-1,)}, {0}, slices=2)[0]]
    ['OnSlice', 'Stream', 'Kept', 'OnSlice', 'Stream']
    """
    places, bounds, stream, kept = [], [], {}, {}

    def add(kind, layer, i, takes) -> int:
        places.append(Place(kind, layer, i, tuple(takes)))
        return len(places) - 1

    for part in cut:
        for i in range(slices):
            begin = len(places)
            for layer in part:
                past = [kept[layer]] if layer in attending and i else []
                made = add(OnSlice, layer, i, [stream.get((one, i), -1) for one in graph[layer]] + past)
                stream[layer, i] = add(Stream, layer, i, [made]) if layer in attending else made
                if layer in attending and i + 1 < slices:
                    kept[layer] = add(Kept, layer, i, [made])
            bounds.append(range(begin, len(places)))
    return places, tuple(bounds)


def recalling(layer: nn.Module) -> list[Recalls]:
    """The modules of a layer that attend to earlier positions."""
    return [one for one in layer.modules() if isinstance(one, Recalls)]


class Sliced(Transformer):
    """The reference model of a shape in slices, for a schedule of `token_slices`.

    of       the unsliced model lengths  of the slices, in order
    cut      the layers of each pipeline stage, numbered as in the unsliced model raises  ValueError for a stage without
             attention
    """

    ends = (0, 0)  # `bounds` has the layers of every stage

    def __init__(self, of: Transformer, lengths: tuple[int, ...], cut: tuple[range, ...]):
        super().__init__(of.shape, of.file, proving=of.proving)
        self.of, self.lengths, self.cut = of, lengths, cut
        self.spans = [range(a, b) for a, b in pairwise(accumulate((0, *lengths)))]
        module = of.made(0, torch.float32, {})
        self.attending = {number for number, layer in enumerate(of.layers(module)) if recalling(layer)}
        for stage, layers in enumerate(cut):
            if not self.attending & set(layers):
                raise ValueError(
                    f"slices={len(lengths)} is invalid: stage {stage} has no attention, so nothing joins its slices. "
                    "Give each stage a block with attention, or choose 1f1b"
                )
        self.places, self.bounds = laid_out(cut, of.takes(module), self.attending, len(lengths))

    def __reduce__(self):
        return Sliced, (self.of, self.lengths, self.cut)

    def for_proof(self):
        return Sliced(self.of.for_proof(), self.lengths, self.cut)

    def part(self, original, seed, dtype, boxes=None, device="cpu"):
        module = super().part(original, seed, dtype, boxes, device)
        module.in_slices = tuple(self._made(place, self.of.layers(module)) for place in self.places)
        return module

    def _made(self, place: Place, layers: list[nn.Module]) -> nn.Module:
        if place.kind is not OnSlice:
            return place.kind()
        follows = place.layer in self.attending and place.slice > 0
        return OnSlice(layers[place.layer], self.spans[place.slice], -1 in place.takes, follows)

    def layers(self, module):
        return list(module.in_slices)

    def takes(self, module):
        return {number: place.takes for number, place in enumerate(self.places)}

    def through(self, module, inputs):
        return self.of.through(module, inputs)

    def scored(self, layers):
        last = max(place.layer for place in self.places)
        ends = [number for number, place in enumerate(self.places) if place.layer == last]
        return {number: self._targets(self.spans[self.places[number].slice]) for number in ends}

    def _targets(self, span: range):
        return lambda targets_BT: targets_BT[:, span.start : span.stop]

    def repeated(self, layers):
        inner = self.of.repeated(1 + max(place.layer for place in self.places))
        return [n for n, place in enumerate(self.places) if place.kind is OnSlice and place.layer in inner]

    def here(self, layer):
        return {"T": len(self.spans[self.places[layer].slice])}

    def between(self, rows, dtype, batch=None, sent=()):
        """x_BTD of a slice, keys and values of all positions up to its end, or scores_BTV."""
        whole = self.of.between(rows, dtype)
        return [self._left(place, whole[place.layer], rows) for place in self.places]

    def _left(self, place: Place, whole, rows: int):
        span = self.spans[place.slice]
        x = whole[:, span.start : span.stop]
        if place.kind is Stream or place.layer not in self.attending:
            return x
        kept = kept_of(self.shape, whole.new_empty, rows, span.stop)
        return kept if place.kind is Kept else (x, *kept)


def kept_of(shape: Shape, empty, rows: int, positions: int) -> tuple[torch.Tensor, ...]:
    """Examples of the tensors that are saved for this number of positions; the function empty(size) makes one."""
    if shape.latent:
        return empty((rows, positions, shape.latent)), empty((rows, 1, positions, shape.rotary))
    return (empty((rows, shape.key_heads, positions, shape.head_width)),) * 2


def refuse_no_slices(model: Model, slices: int):
    """Raise an error unless a model can have this number of slices.

    raises  ValueError for any model other than a reference transformer, and for experts with a capacity
    """
    if type(model) is not Transformer or model.parts:
        raise ValueError(
            f"slices={slices} is invalid: slices need causal attention with keys of earlier slices, which only "
            "reference transformers have. Give shape=hl.Shape(…), or choose 1f1b"
        )
    shape = model.shape
    slots = shape.routing.capacity is not None
    divisions.refuse(shape.sizes, Division(attends=shape.heads > 0, slots=slots, slices=slices), "slices")
