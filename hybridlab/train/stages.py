"""Stages: the model cut into contiguous slices of its layers, one per pipeline stage."""

import time
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn

from hybridlab.core.shape import Shape
from hybridlab.predict.plans.partition import partition
from hybridlab.train.model import GPT, in_sequence, token_loss

WAYS = ("layers", "parameters", "time")


def cut(shape: Shape, stages: int, by="layers") -> tuple[range, ...]:
    """Which layers each stage gets, numbered as in `GPT.layers()`: 0 the embedding, then the blocks, then the head.

    by  "layers": blocks as even as can be, the embedding with the first and the head with the last;
        "parameters", "time": the largest sum as small as can be, of weights or of seconds measured now;
        a list: the number of blocks of each stage

    raises  ValueError when there are fewer blocks than stages, or a list does not add up

    >>> cut(Shape(layers=5), stages=2)
    (range(0, 4), range(4, 7))
    >>> cut(Shape(layers=5), stages=2, by=[1, 4])
    (range(0, 2), range(2, 7))
    """
    layers = shape.layers
    if by in ("parameters", "time"):
        weigh = parameters_of_layers if by == "parameters" else seconds_of_layers
        return tuple(partition(weigh(shape), stages))
    if by == "layers":
        if stages > layers:
            raise ValueError(
                f"{stages} stages need at least {stages} layers, this model has {layers}: choose fewer ranks"
            )
        by = [layers // stages + (stage < layers % stages) for stage in range(stages)]
    elif isinstance(by, str):
        raise ValueError(f"cut={by!r} is no way to cut: choose one of {', '.join(WAYS)}, or list blocks per stage")
    if len(by) != stages or sum(by) != layers or min(by) < 0:
        raise ValueError(f"cut={list(by)} does not give {layers} layers to {stages} stages: make the numbers add up")
    bounds = [0, *(1 + at for at in accumulate(by))]
    bounds[-1] += 1
    return tuple(range(a, b) for a, b in zip(bounds, bounds[1:]))


def parameters_of_layers(shape: Shape) -> list[int]:
    """The number of weights in each layer."""
    return [sum(weight.numel() for weight in layer.parameters()) for layer in GPT(shape).layers()]


def seconds_of_layers(shape: Shape, sequences: int = 2, repeat: int = 5) -> list[float]:
    """The time of each layer's forward and backward, measured here with one thread, as a rank has: the shortest."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _seconds_of_layers(shape, sequences, repeat)
    finally:
        torch.set_num_threads(threads)


def _seconds_of_layers(shape, sequences, repeat):
    x, best = torch.zeros(sequences, shape.context, dtype=torch.long), []
    for layer in GPT(shape).layers():
        seconds = []
        for _ in range(repeat):
            entered = x.detach().requires_grad_(x.is_floating_point())
            begin = time.perf_counter()
            leaving = layer(entered)
            (token_loss(leaving, torch.zeros_like(leaving[..., 0], dtype=torch.long))).backward()
            seconds.append(time.perf_counter() - begin)
        best.append(min(seconds))
        x = leaving
    return best


@dataclass(frozen=True)
class Links:
    """What crosses between the stages of a cut: {(from stage, to stage): the layers whose outputs travel there}."""

    crossing: dict[tuple[int, int], tuple[int, ...]]

    @classmethod
    def of(cls, bounds, skips: dict[int, int]) -> "Links":
        """The links of stages `bounds` in a model with these skips; a skip to the next stage travels with the chain."""
        home = {layer: stage for stage, layers in enumerate(bounds) for layer in layers}
        crossing = {(s, s + 1): [bounds[s][-1]] for s in range(len(bounds) - 1)}
        for there, source in sorted(skips.items(), key=lambda skip: skip[1]):
            edge = home[source], home[there]
            if edge[0] != edge[1] and source not in crossing.setdefault(edge, []):
                crossing[edge].append(source)
        return cls({edge: tuple(layers) for edge, layers in crossing.items()})

    @property
    def skips(self) -> tuple[tuple[int, int], ...]:
        """The edges beside the chain."""
        return tuple(sorted(edge for edge in self.crossing if edge[1] - edge[0] > 1))

    def into(self, stage: int) -> list[tuple[int, ...]]:
        """What arrives at a stage: one entry for every edge that leads to it, the chain first."""
        return [self.crossing[edge] for edge in self._ordered() if edge[1] == stage]

    def out_of(self, stage: int) -> list[tuple[int, ...]]:
        """What leaves a stage, edge by edge."""
        return [self.crossing[edge] for edge in self._ordered() if edge[0] == stage]

    def _ordered(self):
        chain = [edge for edge in self.crossing if edge[1] - edge[0] == 1]
        return sorted(chain) + list(self.skips)


class Stage(nn.Module):
    """Some layers of a model, done in sequence: from the tensors that arrive to those that leave, edge by edge."""

    def __init__(self, model: GPT, layers: range, links: Links, number: int):
        super().__init__()
        self.numbers, self.skips = layers, model.skips
        self.layers = nn.ModuleList(model.layers()[layer] for layer in layers)
        self.enters = [layer for edge in links.into(number) for layer in edge] or [-1]
        self.leaves = links.out_of(number)

    def forward(self, *arrived):
        made = in_sequence(dict(zip(self.numbers, self.layers)), self.skips, dict(zip(self.enters, arrived)))
        if not self.leaves:
            return made[self.numbers[-1]]
        return tuple(tuple(made[layer] for layer in edge) for edge in self.leaves)


def stages_of(model: GPT, bounds) -> list[Stage]:
    """The whole model as stages with these layers; parameters are shared with the model, not copied."""
    links = Links.of(bounds, model.skips)
    return [Stage(model, layers, links, number) for number, layers in enumerate(bounds)]


def names_of(model: GPT, stages: list[Stage]) -> list[dict[str, nn.Parameter]]:
    """The weights of each stage under the names that they have in the whole model; a tied one stands in several."""
    name = {id(weight): name for name, weight in model.named_parameters()}
    return [{name[id(weight)]: weight for weight in stage.parameters()} for stage in stages]


def rooms_of(model: GPT, bounds, sequences: int) -> dict[int, list]:
    """For every edge, numbered as in `Schedule.edges`, an example without memory of each tensor that travels there."""
    links = Links.of(bounds, model.skips)
    edges = [*((stage, stage + 1) for stage in range(len(bounds))), *links.skips]
    crossing = {number: links.crossing.get(edge, ()) for number, edge in enumerate(edges)}  # none behind the model
    return {number: [model.between(sequences) for _ in layers] for number, layers in crossing.items()}
