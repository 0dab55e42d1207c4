"""A check that a module can be traced: a graph of operations computes what the module does, for any rows.

A trace records the operations of one forward. It has no modules, no state and no separate backward, so what a module
keeps, draws or does in a backward would be lost. A remedy must not name a layer of this package, since tracing would
break it into operations as well.

Read next: `training.models.traced`, which makes the graph.
"""

import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.utils import _pytree as pytree

from hybridlab.core.what import seams
from hybridlab.training.models.asking import alone
from hybridlab.training.models.left_behind import changed, generators, kept_by, refuse_counters, refuse_first_input
from hybridlab.training.models.trees import flat, mapped

OTHER = 1.25  # a factor from weights to other weights


def refuse_modules(module: nn.Module):
    """Raise an error for modules that work only as layers, and for dropout."""
    for name, one in module.named_modules():
        if any(kind.__module__ == seams.__name__ for kind in type(one).__mro__):
            raise ValueError(
                f"{name or 'the model'} is a {type(one).__name__}, which a parallel run needs as a layer, but tracing "
                "breaks it into operations: give the model a method layers() that lists its layers"
            )
        if isinstance(one, nn.modules.dropout._DropoutNd) and one.p and one.training:
            raise ValueError(
                f"{name} is torch's {type(one).__name__}, which draws different numbers on every rank, and a trace has "
                "no layers that draw by position: set it to eval(), or give the model a method layers() that lists "
                "its layers, with hl.models.Dropout among them"
            )


def answered(module: nn.Module, call, inputs):
    """The output of a module for an example.

    call  call(module, inputs) -> its output

    raises  ValueError if it fails, or if the next output depends on this call
    """
    who = type(module).__name__
    before = {name: x.clone() for name, x in module.named_buffers()}
    with alone(who):
        _tried(module, call, mapped(_first_everywhere, inputs))  # a cache is filled from these
    made = _tried(module, call, inputs)
    refuse_output(module, made)
    kept = kept_by(module)
    again = _tried(module, call, inputs)
    refuse_counters(module, kept)
    for name, x in module.named_buffers():
        if name not in before or not torch.equal(x, before[name]):
            raise ValueError(
                f"the forward of {who} changes the buffer {name}, but a trace keeps no state: set its module to eval() "
                "if it then stays as it is, or give the model a method layers() that lists its layers, with "
                "hl.models.BatchNorm for a batch norm"
            )
    if not alike(made, again):
        raise ValueError(
            f"{who} returns different results for the same input, and a trace would keep the first one: keep no state "
            "between calls"
        )
    return made


def _tried(module, call, inputs):
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            states = generators()
            made = call(module, inputs)
            drawn = states != generators()
    except Exception as error:
        told = str(error).strip().splitlines()
        raise ValueError(
            f"{type(module).__name__} fails on the first batch of data ({type(error).__name__}: "
            f"{told[0] if told else ''}): give inputs that its forward takes"
        ) from error
    if drawn:
        raise ValueError(
            f"the forward of {type(module).__name__} draws random numbers, and each rank would draw others: leave the "
            "draw out, or give the model a method layers() that lists its layers, with hl.models.Dropout among them, "
            "which draws by position"
        )
    return made


def alike(one, other) -> bool:
    """Whether two outputs are equal, except for rounding."""
    near = lambda x, y: x.shape == y.shape and torch.allclose(x, y, equal_nan=True)
    its, others = pytree.tree_leaves(one), pytree.tree_leaves(other)
    return len(its) == len(others) and all(map(near, its, others))


def refuse_output(module: nn.Module, made):
    """Raise an error for an output that has no rows, or that torch cannot take apart."""
    for x in pytree.tree_leaves(made):
        if not torch.is_tensor(x):
            raise ValueError(
                f"{type(module).__name__} returns a {type(x).__name__}, which torch's tracer cannot take apart: return "
                "a dict of tensors, or a tuple of them"
            )
        if not x.dim():
            raise ValueError(
                f"{type(module).__name__} returns a number for the full batch, such as a loss, but microbatches have "
                "only some rows: return what the loss needs, without labels among the inputs, and give the loss as a "
                "function"
            )


def refuse_other_graph(module: nn.Module, call, pieces: list, inputs, fresh):
    """Raise an error unless the pieces work on fewer rows than were traced, and compute what the module does.

    module  called before with other inputs;  fresh() -> the same module before any call
    """
    who, rows, fewer = type(module).__name__, len(flat(inputs)[0]), mapped(lambda x: x[1:], inputs)
    through = lambda x: functools.reduce(lambda x, piece: piece(x), pieces, x)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            made = through(fewer)
        except RuntimeError as error:
            raise ValueError(
                f"torch's trace of {who} is valid only for {rows} rows, not for smaller microbatches: take the number "
                "of rows from x.shape[0], and not from len(x) or a constant"
            ) from error
        if alike(made, call(module, fewer)):
            _refuse_kept_weights(module, lambda: call(module, fewer), lambda: through(fewer))
            return
        new = fresh()
        if alike(made, call(new, fewer)):
            refuse_first_input(who, changed(kept_by(new), kept_by(module)))


def _refuse_kept_weights(module: nn.Module, owns: Callable, traced: Callable):
    """Raise an error unless a module and its trace agree on other weights too: a module may keep something that it
    computed from its first ones, and a trace computes it from the present ones."""
    weights = [x for x in module.parameters() if x.is_floating_point()]
    before = [x.clone() for x in weights]
    for x in weights:
        x.mul_(OTHER)
    same = alike(traced(), owns())
    for x, first in zip(weights, before):
        x.copy_(first)
    if not same:
        raise ValueError(
            f"{type(module).__name__} keeps something that it computed from its first weights, but a trace computes it "
            "from the present ones: compute it in each call, or once where the model is made"
        )


def _first_everywhere(x):
    return x[:1].expand_as(x).clone()
