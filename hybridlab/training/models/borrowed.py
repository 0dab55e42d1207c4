"""A check that a layer computes only with weights that it contains, since a rank with the layer has no others.

Read next: `training.models.examination`, which uses it.
"""

import math
from contextlib import suppress
from typing import NoReturn

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hybridlab.training.models.draws import tensors_of
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.left_behind import changed, kept_by, refuse_first_input, tallies_of
from hybridlab.training.models.trees import flat, mapped
from hybridlab.training.models.words import said


def refuse_borrowed(model, fresh: nn.Module, takes: dict, made: dict):
    """Raise an error unless every layer computes only with weights and buffers that it contains, alone or shared: a
    rank with the layer has only these; and only with its input.

    fresh  a module of the model, whose layers are called here for the first time
    made   {layer: its output}, and -1: the inputs, of another module, which was first called with other inputs
    """
    whole, layers = model.whole, dict(enumerate(model.layers(fresh)))
    names = {id(weight): n for n, layer in layers.items() for weight in layer.parameters()}
    given = [x for x in whole.parameters() if x.requires_grad] if isinstance(whole, nn.Module) else []
    holders = dict.fromkeys(_places(given), "of the module that was given")
    holders |= {place: f"of layer {n}" for n, one in layers.items() for place in _places(tensors_of(one).values())}
    for number, layer in reversed(layers.items()):
        arriving, own = [made[source] for source in takes[number]], {id(weight) for weight in layer.parameters()}
        with Reads() as reads:
            left = _alone(model, number, layer, takes, made)
        if any(getattr(node, "_saved_sparse", False) for node in nodes_of(left)):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) makes sparse gradients, but ranks sum full ones: leave out "
                "sparse=True, which changes no number"
            )
        _refuse_written(number, layer, reads.written)
        mine = _places(tensors_of(layer).values()) | _places(x for one in arriving for x in flat(one))
        for place in reads.places.keys() & holders.keys() - mine:
            _refuse_foreign(number, layer, reads.places[place], holders[place])
        foreign = [weight for weight in read_by(left) if id(weight) not in own]
        again = {id(weight) for weight in read_by(_left(layer, arriving))} if foreign else {}
        for weight in foreign:
            if id(weight) in again:  # not one that the forward makes
                if id(weight) in names:
                    _refuse_foreign(number, layer, weight.shape, f"of layer {names[id(weight)]}")
                raise ValueError(
                    f"layer {number} ({type(layer).__name__}) computes with a weight {tuple(weight.shape)} that no "
                    "layer holds, so no optimizer trains it: use nn.ModuleList for a list of modules, and "
                    "nn.Parameter for a tensor"
                )


def _refuse_written(number: int, layer: nn.Module, written: set[int]):
    """Raise an error for a forward that writes into a weight or a buffer, even if its numbers stay as they are: a bound
    may be exceeded later."""
    counted = tallies_of(layer)
    for name, x in tensors_of(layer).items():
        if name not in counted and _places([x]) & written:
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) writes into {name} in its forward, and each microbatch and "
                "replica would write other numbers: compute its value without an operation in place, such as "
                "weight.clamp(-1, 1), and leave out max_norm= of an embedding"
            )


def _alone(model, number: int, layer: nn.Module, takes: dict, made: dict) -> tuple[torch.Tensor, ...]:
    """The output of a layer before any other layer was called."""
    arriving, there = [made[source] for source in takes[number]], flat(made[number])
    try:
        left = _left(layer, arriving)
    except Exception as error:
        refuse_channel(number, layer, said(error))
    if not all(map(_near, left, there)):
        with torch.no_grad():
            bare, given = (flat(layer(*some)) for some in (_bare(arriving), arriving))
        if all(map(_near, bare, there)):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) returns something else when gradients are on, but ranks also "
                "run layers without: leave out torch.is_grad_enabled() and x.requires_grad"
            )
        if all(map(_near, given, there)):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) reads an attribute that an earlier layer has set on its "
                "input, but stages exchange only the numbers of a tensor: pass it on with the output, return (x, mask)"
            )
        _refuse_first(model, number, takes, made[-1], left)
        refuse_channel(number, layer)
    _refuse_arrival(number, layer, takes[number], arriving, left)
    return left


def _refuse_arrival(number: int, layer: nn.Module, sources, arriving: list, left):
    """Raise an error for a layer that asks where its input comes from. On a rank that has received it, an input is a
    leaf that requires a gradient. On one device it has a graph, or neither if all weights before it are frozen.

    left  its output for inputs without gradients
    """
    for graph in (lambda x: x, torch.clone):
        arrives = lambda x, graph=graph: graph(x.requires_grad_()) if x.is_floating_point() else x
        some = [mapped(arrives, x) if source >= 0 else x for source, x in zip(sources, _bare(arriving))]
        why = ""
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                again = flat(layer(*some))
        except Exception as error:
            again, why = (), f" ({said(error)})"
        if why or not all(map(_near, again, left)):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) returns something else{why} for the same numbers with "
                "another graph, but a stage receives only the numbers: leave out x.requires_grad, x.is_leaf and "
                "x.grad_fn, and use x.detach() where no gradient should pass"
            )


def _bare(arriving: list) -> list:
    """The same numbers without graphs and attributes."""
    return [mapped(torch.Tensor.detach, x) for x in arriving]


def _refuse_first(model, number: int, takes: dict, inputs, left):
    """Raise an error for a layer that still uses something that it has computed from its first input.

    left  its output for `inputs`, if they are its first
    """
    made = []
    everywhere = lambda row: mapped(lambda x: x[row].expand_as(x).clone(), inputs)
    for before in (inputs, everywhere(0), everywhere(-1)):
        layers = dict(enumerate(model.layers(model.made(0, left[0].dtype))))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            in_sequence(dict(layers), takes, {-1: before})
            made.append((layers[number], in_sequence(dict(layers), takes, {-1: inputs})[number]))
    (one, its), *others = made
    if all(map(_near, left, flat(its))):
        names = (changed(kept_by(one), kept_by(other)) for other, _ in others)
        refuse_first_input(f"layer {number} ({type(one).__name__})", next(filter(None, names), ""))


def refuse_channel(number: int, layer: nn.Module, why: str = "") -> NoReturn:
    """Raise an error for a layer that needs, besides its input, something that another layer's call has stored."""
    raise ValueError(
        f"layer {number} ({type(layer).__name__}) needs something that the call of another layer stores"
        f"{f' ({why})' if why else ''}, but a rank may have only one of the two, or call them for different "
        "microbatches: pass it on with the output, return (x, mask)"
    )


def _near(x: torch.Tensor, y: torch.Tensor) -> bool:
    close = math.sqrt(torch.finfo(y.dtype).eps) if y.is_floating_point() else 0.0
    return x.shape == y.shape and torch.allclose(x.to(y.dtype), y, rtol=close, atol=close, equal_nan=True)


def _refuse_foreign(number: int, layer: nn.Module, shape, whose: str):
    raise ValueError(
        f"layer {number} ({type(layer).__name__}) computes with a weight {tuple(shape)} {whose}, but a rank may have "
        "only one of the two layers: make it an attribute of this layer too"
    )


def _places(tensors) -> set[int]:
    """The address at which the storage of each tensor begins; wrappers of torch.func have none."""
    found = set()
    for x in (x for x in tensors if x.numel()):
        with suppress(RuntimeError):
            found.add(x.untyped_storage().data_ptr())
    return found


def _left(layer, arriving) -> tuple[torch.Tensor, ...]:
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        return flat(layer(*_bare(arriving)))


def read_by(tensors) -> list[torch.Tensor]:
    """The weights that would get a gradient from these tensors."""
    return [node.variable for node in nodes_of(tensors) if node.name().endswith("AccumulateGrad")]


def nodes_of(tensors) -> list:
    """The nodes of the graphs that made these tensors."""
    waiting, known = [x.grad_fn for x in tensors if x.grad_fn], {}
    while waiting:
        node = waiting.pop()
        if node not in known:
            known[node] = None
            waiting += [before for before, _ in node.next_functions if before]
    return [*known]


class Reads(TorchDispatchMode):
    """A context that records the memory addresses and the shapes of the operands of all computations in it, as
    `places`, and the addresses of those that are `written`. It also sees a weight that is read without a gradient.
    """

    def __init__(self):
        super().__init__()
        self.places, self.written = {}, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, known = kwargs or {}, function._schema.arguments
        operands = [*zip(known, args), *((one, kwargs[one.name]) for one in known if one.name in kwargs)]
        for operand, value in operands:
            some = [x for x in flat(value) if torch.is_tensor(x) and x.layout is torch.strided]
            self.places.update({place: x.shape for x in some for place in _places([x])})
            if operand.is_write:
                self.written |= _places(some)
        return function(*args, **kwargs)
