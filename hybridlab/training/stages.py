"""Stages: the model cut into contiguous slices of its layers, one per pipeline stage."""

import time
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from math import comb
from numbers import Integral

import torch
from torch import nn

from hybridlab.core.what.shape import Shape
from hybridlab.predict.launch.letters import is_layout, stages_in
from hybridlab.predict.plans.partition import partition
from hybridlab.predict.plans.replicated import Layer
from hybridlab.runtime.work import Ends
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.model import Model
from hybridlab.training.models.trees import as_computed, flat, mapped

WAYS = ("layers", "parameters", "time")
MOST = 100_000  # maximum number of cuts to try


def cut(
    model: Model | Shape | str, stages: int, by="layers", module: nn.Module | None = None, upto: int | None = None
) -> tuple[range, ...]:
    """The layers of each stage, numbered in sequence; in a transformer 0 is the embedding, then the blocks, then the
    head.

    model   a `Model`; or a shape or a name, which mean a reference model
    stages  the number of stages
    module  the model's, if it is already made
    by      "layers": equal numbers of layers, not counting those at the ends of the model (embedding and head);
            "parameters", "time": the smallest maximum of weights, or of seconds measured now; a list: the number of
            layers of each stage, not counting those at the ends, or ranges of all layers; Megatron-LM's letters, as in
            "Ett|(t|)*2tL" (see `predict.launch.letters`)
    upto    the number of layers to divide, from the first on; None: all

    raises  ValueError if there are fewer layers than stages, or a list does not add up

    >>> cut(Shape(layers=5), stages=2)
    (range(0, 4), range(4, 7))
    >>> cut(Shape(layers=5), stages=2, by=[1, 4])
    (range(0, 2), range(2, 7))
    """
    model = model_of(model)
    module = model.made(0, torch.float32, {}) if module is None else module
    every = len(model.layers(module)) if upto is None else upto
    if isinstance(by, str) and is_layout(by):
        return _as_lettered(by, stages, every)
    by = by if isinstance(by, str) else list(by)
    if not isinstance(by, str) and all(isinstance(one, range) for one in by):
        return _as_said(tuple(by), stages, every)
    first, last = model.ends
    layers = every - first - last
    if by == "parameters":
        return tuple(partition(parameters_of_layers(model, module)[:every], stages))
    if by == "time":
        return tuple(partition(seconds_of_layers(model, dtype=next(module.parameters()).dtype)[:every], stages))
    if by == "layers":
        if stages > layers:
            raise ValueError(
                f"{stages} stages need at least {stages} layers, but this model has {layers}: choose fewer ranks or "
                "chunks"
            )
        by = [layers // stages + (stage < layers % stages) for stage in range(stages)]
    elif isinstance(by, str):
        raise ValueError(
            f"cut={by!r} is not a known division into stages: choose one of {', '.join(WAYS)}, list blocks per stage, "
            "or give Megatron-LM's letters, such as Ett|tL"
        )
    if not all(isinstance(one, Integral) for one in by):
        raise ValueError(f"cut={by} has an entry that is not a number of layers: give whole numbers, or ranges")
    if len(by) != stages or sum(by) != layers or min(by) < 0:
        raise ValueError(
            f"cut={list(by)} does not divide {layers} layers over {stages} stages: make the {stages} numbers add up "
            f"to {layers}"
        )
    bounds = [0, *(first + at for at in accumulate(by))]
    bounds[-1] += last
    if any(a == b for a, b in zip(bounds, bounds[1:])):
        raise ValueError(f"cut={list(by)} leaves a stage without layers: give every stage at least one")
    return tuple(range(a, b) for a, b in zip(bounds, bounds[1:]))


def _as_lettered(text, stages, layers) -> tuple[range, ...]:
    """The ranges of a layout in Megatron-LM's letters, if it has these numbers of stages and layers."""
    found = stages_in(text)
    if len(found) != stages or found[-1].stop != layers:
        raise ValueError(
            f"cut={text!r} has {len(found)} stages with {found[-1].stop} layers, E and L included, but this model has "
            f"{layers} layers on {stages} stages: give one letter for each layer"
        )
    return tuple(found)


def _as_said(bounds, stages, layers) -> tuple[range, ...]:
    """The ranges of a cut, if they are all layers in order."""
    if len(bounds) != stages or not all(bounds) or [layer for one in bounds for layer in one] != list(range(layers)):
        said = ", ".join(f"{one.start} to {one.stop}" for one in bounds)
        raise ValueError(
            f"cut={said} does not divide {layers} layers into {stages} stages: give ranges in order. The first "
            f"begins at 0, each later one begins where the previous one ends, and the last ends at {layers}"
        )
    return bounds


def cut_at_branches(model: Model, module: nn.Module, schedule) -> tuple[range, ...]:
    """The most even division of the layers that has no edge where the schedule has a break, since a branch begins
    there.

    raises  ValueError if there is none, or if there are too many cuts to try
    """
    takes, stages = model.takes(module), schedule.stages
    if comb(len(takes) - 1, stages - 1) > MOST:
        raise ValueError(
            f"{len(takes)} layers can be divided into {stages} stages in too many ways: give the number of layers in "
            "each, cut="
        )
    found = []
    for inner in combinations(range(1, len(takes)), stages - 1):
        bounds = tuple(range(a, b) for a, b in pairwise([0, *inner, len(takes)]))
        if set(schedule.breaks) <= set(Links.of(bounds, takes).breaks):
            found.append(bounds)
    if not found:
        raise ValueError(
            f"{schedule.name} has branches on {stages} stages, but this model cannot be divided into such branches: "
            "give a model with branches, or choose another schedule"
        )
    return min(found, key=lambda bounds: sorted(map(len, bounds), reverse=True))


def parameters_of_layers(model: Model | Shape | str, module: nn.Module | None = None) -> list[int]:
    """The number of weights in each layer.

    model   a `Model`; or a shape or a name, which mean a reference model
    module  the model's, if it is already made
    """
    model = model_of(model)
    module = model.made(0, torch.float32, {}) if module is None else module
    return [sum(weight.numel() for weight in layer.parameters()) for layer in model.layers(module)]


def profiled(model: Model | Shape | str, rows: int = 2, repeat: int = 5) -> list[Layer]:
    """The profile for `predict.plans.replicated`: each layer's seconds, output and weights in bytes, measured in single
    precision.

    model   a `Model`; or a shape or a name, which mean a reference model
    rows    in a microbatch
    repeat  number of measurements; the fastest is used

    >>> [layer.weights for layer in profiled(Shape(layers=1, width=8, heads=2, context=4), repeat=1)]
    [8320, 3488, 8256]
    """
    model, dtype = model_of(model), torch.float32
    module = model.made(0, dtype, {})
    seconds, leaves = seconds_of_layers(model, rows, repeat), model.between(rows, dtype)
    output = [sum(x.nbytes for x in flat(leaves[number])) for number in range(len(seconds))]
    weights = [count * dtype.itemsize for count in parameters_of_layers(model, module)]
    return list(map(Layer, seconds, output, weights))


def seconds_of_layers(
    model: Model | Shape | str, rows: int = 2, repeat: int = 5, dtype: torch.dtype = torch.float32
) -> list[float]:
    """The time of each layer's forward and backward, measured here with one thread, as on a rank: the shortest."""
    model = model_of(model)
    module = model.made(0, dtype)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _seconds_of_layers(model, module, rows, repeat, dtype)
    finally:
        torch.set_num_threads(threads)


def _seconds_of_layers(model, module, rows, repeat, dtype):
    best, made = [], {}
    inputs, _ = model.batch(0, rows)
    made[-1] = as_computed(inputs, dtype)
    takes = model.takes(module)
    for number, layer in enumerate(model.layers(module)):
        seconds = []
        for _ in range(repeat):
            entered = [mapped(_leaf, made[one]) for one in takes[number]]
            begin = time.perf_counter()
            made[number] = layer(*entered)
            leaving = [x for x in flat(made[number]) if x.requires_grad]
            if leaving:
                sum(x.sum() for x in leaving).backward()
            seconds.append(time.perf_counter() - begin)
        best.append(min(seconds))
    return best


def _leaf(x):
    """A tensor as it arrives at a stage: it requires a gradient, if it can have one."""
    return x.detach().requires_grad_(x.is_floating_point())


@dataclass(frozen=True)
class Links:
    """The tensors sent between the stages of a cut: {(from stage, to stage): the layers whose outputs are sent}."""

    crossing: dict[tuple[int, int], tuple[int, ...]]

    @classmethod
    def of(cls, bounds, takes: dict[int, tuple[int, ...]]) -> "Links":
        """The links between the stages that `bounds` defines, in a model whose layers have these inputs (`takes`).
        Tensors for several layers of a stage from the same other stage are sent together, each once.
        """
        home = {layer: stage for stage, layers in enumerate(bounds) for layer in layers}
        crossing = {}
        for there, sources in sorted(takes.items()):
            for source in (one for one in sources if one >= 0):  # every rank has the batch
                edge = home[source], home[there]
                if edge[0] != edge[1] and source not in crossing.setdefault(edge, []):
                    crossing[edge].append(source)
        return cls({edge: tuple(layers) for edge, layers in crossing.items()})

    @property
    def sent(self) -> frozenset[int]:
        """The layers whose outputs are sent."""
        return frozenset(layer for layers in self.crossing.values() for layer in layers)

    @property
    def skips(self) -> tuple[tuple[int, int], ...]:
        """The edges outside the chain."""
        return tuple(sorted(edge for edge in self.crossing if edge[1] - edge[0] > 1))

    @property
    def breaks(self) -> tuple[tuple[int, int], ...]:
        """The edges of the chain on which nothing is sent."""
        last = max((end for _, end in self.crossing), default=0)
        return tuple((s, s + 1) for s in range(last) if (s, s + 1) not in self.crossing)

    def into(self, stage: int) -> list[tuple[int, ...]]:
        """The inputs of a stage: one entry for every incoming edge, the chain first."""
        return [self.crossing[edge] for edge in self._ordered() if edge[1] == stage]

    def out_of(self, stage: int) -> list[tuple[int, ...]]:
        """The outputs of a stage, edge by edge."""
        return [self.crossing[edge] for edge in self._ordered() if edge[0] == stage]

    def _ordered(self):
        chain = [edge for edge in self.crossing if edge[1] - edge[0] == 1]
        return sorted(chain) + list(self.skips)


class Stage(nn.Module):
    """Some layers of a model, run in sequence. The stage takes the arriving tensors, edge by edge. It returns the
    leaving tensors, edge by edge, and then the output that enters the loss, if the stage computes it; the last stage of
    a model returns only this output.

    layers  {number: layer};  scored  the numbers of those whose outputs enter the loss
    takes  of the full model;  links, number  the links, and the number of this stage
    widths  {layer: the number of tensors in its output tuple; 0 for a single tensor}
    """

    def __init__(self, layers: dict, takes: dict, links: Links, number: int, widths: dict[int, int], scored):
        super().__init__()
        self.numbers, self.takes, self.widths = list(layers), takes, widths
        self.layers = nn.ModuleList(layers.values())
        batch = [-1] if any(-1 in takes[layer] for layer in layers) else []
        self.enters = batch + [layer for edge in links.into(number) for layer in edge]
        self.leaves = links.out_of(number)
        self.ends, self.scored = max(takes) in layers, [layer for layer in layers if layer in scored]

    def forward(self, *arrived):
        made = in_sequence(dict(zip(self.numbers, self.layers)), self.takes, self._entered(arrived))
        if self.ends:
            return made[self.numbers[-1]]
        edges = [tuple(x for layer in edge for x in flat(made[layer])) for edge in self.leaves]
        return tuple(edges + [made[layer] for layer in self.scored])

    def _entered(self, arrived) -> dict:
        """{layer: its output}, for the earlier layers that this stage reads from."""
        arrived, made = iter(arrived), {}
        for layer in self.enters:
            width = self.widths.get(layer, 0)
            made[layer] = tuple(next(arrived) for _ in range(width)) if width else next(arrived)
        return made


def stages_of(model: Model, module: nn.Module, bounds, between=()) -> list[Stage]:
    """The full model as stages with these layers; parameters are shared with the module, not copied.

    between  the output of each layer, see `Model.between`; empty if each is a single tensor
    """
    takes, layers = model.takes(module), model.layers(module)
    links = Links.of(bounds, takes)
    widths = {number: len(x) if isinstance(x, tuple) else 0 for number, x in enumerate(between)}
    mine = lambda numbers: {number: layers[number] for number in numbers}
    scored = model.scored(len(layers))
    return [Stage(mine(numbers), takes, links, stage, widths, scored) for stage, numbers in enumerate(bounds)]


def ends_of(model: Model, module: nn.Module, bounds) -> Ends:
    """The stages with these layers that read the batch, and those whose outputs enter the loss."""
    home = {layer: stage for stage, layers in enumerate(bounds) for layer in layers}
    reads = {home[layer] for layer, sources in model.takes(module).items() if -1 in sources}
    return Ends(reads, {home[layer]: part for layer, part in model.scored(len(home)).items()})


def names_of(module: nn.Module, stages: list[Stage]) -> list[dict[str, nn.Parameter]]:
    """The weights of each stage under their names in the full model; a tied weight is in several stages."""
    name = {id(weight): name for name, weight in module.named_parameters()}
    return [{name[id(weight)]: weight for weight in stage.parameters()} for stage in stages]
