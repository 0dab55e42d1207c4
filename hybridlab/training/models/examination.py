"""The examination: a user's model runs once before it is divided, and a problem is reported in one sentence.

When a model is cut into stages, several processes run it in pieces, and some pieces twice. So its outputs must depend
only on its inputs and its weights. Each refusal below is for a model that would train without an error, but wrong.

`model` is a `training.models.model.Model` throughout.
"""

import math

import torch
from torch import nn

from hybridlab.core.what.seams import Routes, Tallies
from hybridlab.training.models import plain
from hybridlab.training.models.borrowed import refuse_borrowed
from hybridlab.training.models.draws import tensors_of
from hybridlab.training.models.graph import in_sequence, refuse_lost
from hybridlab.training.models.left_behind import (
    generators,
    kept_by,
    refuse_changes,
    refuse_counters,
    refuse_draws,
)
from hybridlab.training.models.plain import refuse_weights_of
from hybridlab.training.models.trees import as_computed, flat, mapped, rows_of

STEPS = (0, 1, 2)  # their batches are read twice
COMPARED = 64  # rows at most with the owner's module, for which weights and gradients are in float64
FEWEST = 2  # rows: for one row a mean equals a sum, and a row cannot mix with others


@torch.inference_mode(False)  # also if the caller has it on: weights get gradients here
def examined(model, rows: int, dtype: torch.dtype) -> list:
    """The output of each layer for a microbatch of `rows` rows, as examples without memory.

    raises  ValueError for batches that differ between calls or have another number of rows; for a layer that changes
            its
            input, draws by itself, changes a buffer or mixes rows; for a loss that is not a sum
    """
    module = model.made(0, dtype)
    inputs, targets = _batch(model, max(rows, FEWEST), dtype)
    _refuse_names(model, inputs=inputs, targets=targets)
    _refuse_torch_dropout(module)
    _refuse_unseen_tensors(module)
    layers, takes = dict(enumerate(model.layers(module))), model.takes(module)
    refuse_lost(takes, len(layers))
    before = {name: x.detach().clone() for name, x in tensors_of(module).items()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        made = in_sequence(_watched(layers, takes), takes, {-1: inputs})
        kept, states = kept_by(module), generators()
        again = in_sequence(dict(layers), takes, {-1: inputs})
        refuse_draws(states)
        refuse_counters(module, kept)
    refuse_changes(module, before)
    for number, layer in layers.items():
        if not _same(made[number], again[number]):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) returns different results for one input, because it draws "
                "random numbers or has state: for dropout use hybridlab.training.models.gpt.Dropout, and keep no "
                "state"
            )
    refuse_weights_of(model.loss)
    _refuse_means(model, made[len(layers) - 1], targets)
    _refuse_untrained(model, module, layers, takes, made, targets)
    _refuse_mixing(model, layers, takes, made, targets)
    _refuse_another(model, module, layers, takes, made, max(rows, FEWEST))
    if rows < FEWEST:
        with torch.no_grad():
            made = in_sequence(dict(layers), takes, {-1: rows_of(inputs, slice(rows))})
    return [mapped(_without_memory, made[number]) for number in layers]


def _batch(model, rows, dtype):
    try:
        inputs, targets = model.batch(0, rows)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"data(0, {rows}) fails: {_said(error)}") from error
    for step in STEPS:
        (x, y), (x_again, y_again) = (model.batch(step, rows) for _ in range(2))
        if not (_same(x, x_again) and _same(y, y_again)):
            raise ValueError(
                f"data({step}, rows) gave two different batches: draw from a generator seeded with the step, also to "
                "augment rows"
            )
    return as_computed(inputs, dtype), as_computed(targets, dtype)


def _refuse_names(model, **parts):
    """Refuse more names of dims than the inputs, or the targets, have dims."""
    for argument, part in zip(("enters", "targets"), parts):
        letters, dims = getattr(model, argument).split(), max(x.dim() for x in flat(parts[part]))
        if len(letters) > dims:
            raise ValueError(
                f"{argument}={' '.join(letters)!r} names {len(letters)} dims, but the {part} have {dims}: give a name "
                "for each dim, or only the first ones"
            )


def _refuse_torch_dropout(module):
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p and layer.training:
            raise ValueError(
                f"{name} is torch's {type(layer).__name__}, which draws different numbers on every rank: use "
                f"hybridlab.training.models.gpt.Dropout({layer.p}), which draws by position"
            )


def _refuse_unseen_tensors(module):
    """Refuse a tensor that requires a gradient but is not a parameter: it would not be trained."""
    weights = {id(weight) for weight in module.parameters()}
    for name, layer in module.named_modules():
        kept = {**vars(layer), **dict(layer.named_buffers(recurse=False))}
        for attribute, value in kept.items():
            if any(torch.is_tensor(x) and x.requires_grad and id(x) not in weights for x in flat(value)):
                raise ValueError(
                    f"{f'{name}.{attribute}'.lstrip('.')} is a plain tensor that requires a gradient, but no "
                    "optimizer updates it: make it an nn.Parameter, or detach it"
                )


def _watched(layers, takes) -> dict:
    """The same layers, wrapped to report one that has changed its input, or whose output cannot be sent."""

    def watched(number, layer):
        def call(*arrived):
            kept = [mapped(torch.clone, x) for x in arrived]
            leaving = _called(number, layer, arrived, takes[number])
            if not all(_same(x, y) for x, y in zip(arrived, kept)):
                raise ValueError(
                    f"layer {number} ({type(layer).__name__}) changes its input in place, which other layers need: "
                    "leave out inplace=True, or write x = x + 1 for x += 1"
                )
            for x in flat(leaving):
                if not torch.is_tensor(x):
                    raise ValueError(
                        f"layer {number} ({type(layer).__name__}) returns a {type(x).__name__}, which stages cannot "
                        "exchange: return tensors, or tuples of them"
                    )
                if x.is_complex() and number < len(layers) - 1:
                    raise ValueError(
                        f"layer {number} ({type(layer).__name__}) returns complex numbers, but stages exchange real "
                        "ones: return torch.view_as_real of them"
                    )
            if isinstance(leaving, tuple) and type(leaving) is not tuple:
                raise ValueError(
                    f"layer {number} ({type(layer).__name__}) returns a {type(leaving).__name__}, which the next "
                    "stage would receive as a plain tuple: return a plain tuple"
                )
            return leaving

        return call

    return {number: watched(number, layer) for number, layer in layers.items()}


def _called(number, layer, arrived, sources):
    try:
        return layer(*arrived)
    except Exception as error:
        whence = f" (from layers {', '.join(map(str, sources))})" if len(arrived) > 1 else ""
        raise ValueError(
            f"layer {number} ({type(layer).__name__}) fails on its input, {_shapes(arrived)}{whence}: {_said(error)}"
        ) from error


def _shapes(arrived) -> str:
    """Tensors in words: the shape and dtype of each."""
    return ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for one in arrived for x in flat(one))


REMEDIES = {  # words of torch's errors, whose cause is elsewhere than they say
    "does not require grad": "layers also run without gradients, so use torch.enable_grad() around torch.autograd.grad",
    "expected scalar type": "constants must take the dtype of the numbers that they meet, constant.to(x.dtype)",
    "must have the same dtype": "constants must take the dtype of the numbers that they meet, constant.to(x.dtype)",
}


def _said(error) -> str:
    told = str(error).splitlines()[0] if str(error) else ""
    remedy = next((f"; {remedy}" for words, remedy in REMEDIES.items() if words in told), "")
    return f"{type(error).__name__}: {told}{remedy}"


def _refuse_means(model, outputs, targets):
    """Refuse a loss that is a mean. A sum over all rows equals the sum of the rows' losses; a mean does not."""
    rows = len(flat(targets)[0])
    row = lambda x, number: rows_of(x, slice(number, number + 1))
    with torch.no_grad():
        try:
            whole = model.loss(outputs, targets)
        except Exception as error:
            raise ValueError(
                f"loss(output, target) fails on {_shapes([outputs])} and {_shapes([targets])}: {_said(error)}"
            ) from error
        if not torch.is_tensor(whole):
            raise ValueError(
                f"the loss returned a {type(whole).__name__}: return a tensor of one number, without .item()"
            )
        if whole.dim():
            raise ValueError(f"the loss has shape {tuple(whole.shape)}: sum it to one number")
        parts = sum(model.loss(row(outputs, number), row(targets, number)) for number in range(rows))
    if not torch.allclose(whole, parts, equal_nan=True, rtol=max(1e-3, rows * torch.finfo(whole.dtype).eps)):
        raise ValueError(
            f"the loss of {rows} rows is {whole:.4g}, but their separate losses sum to {parts:.4g}: make it a sum over "
            'rows, reduction="sum"'
        )


def _refuse_untrained(model, module, layers, takes, made, targets):
    """Refuse a model in which no weight gets a gradient from the loss."""
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ValueError("every weight is frozen, so there is nothing to train: leave requires_grad=True on some")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        loss = model.loss(in_sequence(dict(layers), takes, {-1: made[-1]})[len(layers) - 1], targets)
    if not loss.requires_grad:
        raise ValueError(
            "no gradient reaches a weight from the loss: leave out detach(), item() and torch.no_grad() in the "
            "loss and the layers"
        )


def _refuse_mixing(model, layers, takes, made, targets):
    """Refuse layers that mix rows: microbatches and copies put other rows together.

    Layers that count over rows, or that assign places to rows, declare this: nothing after them is compared.
    """
    counts = lambda layer: any(isinstance(one, Tallies | Routes) for one in layer.modules())
    rows, last = len(flat(targets)[0]), len(layers) - 1
    for number in (0, rows - 1):
        alone = slice(number, number + 1)
        arrived = {-1: rows_of(made[-1], alone)}
        for one, layer in layers.items():
            if counts(layer):
                return
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                arrived[one] = _called(one, layer, tuple(arrived[source] for source in takes[one]), takes[one])
            if not _near(arrived[one], made[one], alone, rows):
                raise ValueError(
                    f"layer {one} ({type(layer).__name__}) mixes rows, so its output for one row depends on its "
                    "microbatch: compute each row independently of the others, or normalize with "
                    "hybridlab.training.models.batch_norm.BatchNorm"
                )
        with torch.no_grad():
            its, whole = (model.loss(x, rows_of(targets, alone)) for x in (arrived[last], rows_of(made[last], alone)))
        if not torch.allclose(its, whole, rtol=math.sqrt(torch.finfo(whole.dtype).eps), equal_nan=True):
            raise ValueError(
                "the model mixes rows, so the loss of one row depends on its microbatch: compute each row "
                "independently of the others"
            )


def _refuse_another(model, module, layers, takes, made, rows):
    """Refuse layers that together compute something else than the owner's module."""
    if plain.strange(module):
        refuse_borrowed(model.whole, layers, takes, made)
        some = slice(min(rows, COMPARED))
        inputs, targets = (rows_of(as_computed(one, torch.float64), some) for one in model.batch(0, rows))
        plain.refuse_another(model, model.made(0, torch.float64), inputs, targets, groups_of(some.stop))


def groups_of(rows: int) -> list[slice]:
    """Groups of rows to compare with all rows at once: few, since each group costs gradients of every weight; uneven,
    so that a function of pairs, or of halves, sees other rows.

    >>> [[some.stop - some.start for some in groups_of(rows)] for rows in (2, 3, 16)]
    [[1, 1], [1, 1, 1], [1, 1, 7, 7]]
    """
    borders = sorted({0, 1, 2, 2 + (rows - 2) // 2, rows})
    return [slice(begin, end) for begin, end in zip(borders, borders[1:])]


def _near(alone, whole, number: slice, rows: int) -> bool:
    """Whether a layer's output for one row is that row of its output for all rows, if it has recognizable rows."""
    for mine, its in zip(flat(alone), flat(whole)):
        if its.shape[:1] == (rows,) and mine.shape == its[number].shape and its.is_floating_point() and mine.numel():
            off, scale = (mine - its[number]).abs().max(), its[number].abs().max()
            if off > math.sqrt(torch.finfo(its.dtype).eps) * scale:  # always false for nan
                return False
    return True


def _same(x, y) -> bool:
    """Whether two tensors have the same numbers; a nan equals a nan."""
    alike = lambda one, other: (
        one.shape == other.shape and bool(((one == other) | (one != one) & (other != other)).all())
    )
    return all(alike(one, other) for one, other in zip(flat(x), flat(y), strict=True))


def _without_memory(x):
    return torch.empty(x.shape, dtype=x.dtype, device="meta")
