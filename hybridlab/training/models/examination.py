"""The examination: a user's model runs once before it is divided, and a problem is reported in one sentence.

When a model is cut into stages, several processes run it in pieces, and some pieces twice. So its outputs must depend
only on its inputs and its weights. Each refusal below is for a model that would train without an error, but wrong.

`model` is a `training.models.model.Model` throughout.
"""

import math
from collections.abc import Collection
from functools import partial

import torch
from torch import nn

from hybridlab.core.what.seams import Routes, Tallies, draws_of
from hybridlab.training.models import plain
from hybridlab.training.models.asking import alone
from hybridlab.training.models.borrowed import refuse_borrowed, refuse_channel
from hybridlab.training.models.calls import Shapes, called, watched
from hybridlab.training.models.draws import tensors_of
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.left_behind import (
    generators,
    kept_by,
    kept_by_data,
    numbers_of,
    refuse_backward,
    refuse_changes,
    refuse_counters,
    refuse_draws,
    refuse_state_of_data,
)
from hybridlab.training.models.losses import refuse_loss, refuse_means
from hybridlab.training.models.trees import as_compared, as_computed, as_entering, flat, mapped, rows_of, same
from hybridlab.training.models.words import said

STEPS = (0, 1, 2)  # their batches are read twice
COMPARED = 64  # the most rows for the owner's module, whose weights and gradients are in float64
FEWEST = 2  # rows: for one row a mean equals a sum, and a row cannot mix with others


@torch.inference_mode(False)  # even if the caller has inference mode on: weights get gradients here
def examined(model, rows: int, dtype: torch.dtype, batch: int, sent: Collection[int] = ()) -> list:
    """The output of each layer for a microbatch of `rows` rows, as example tensors that have shapes but no storage; a
    step has `batch` rows, and stages exchange the outputs of the layers `sent`.

    raises  ValueError for batches that differ between calls or have another number of rows; for a layer that changes
            its input, draws by itself, changes a buffer or mixes rows; for a loss that is not a sum, or keeps state
    """
    model = model.apart()
    module = model.made(0, dtype)
    least = fewest(model)
    read_first = max(batch if plain.strange(module) else rows, least)  # data of this package keep nothing of it
    (inputs, targets), others = _batch(model, max(rows, least), dtype, read_first)
    _refuse_names(model, inputs=inputs, targets=targets)
    _refuse_torch_dropout(module)
    _refuse_unseen_tensors(module)
    layers, takes = dict(enumerate(model.layers(module))), model.takes(module)
    before = numbers_of(module)
    one_shape = Shapes(sent, layers)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        one_shape.compare(in_sequence(watched(layers, takes), takes, {-1: others}))  # a cache is filled from these
        states = generators()
        made = in_sequence(watched(layers, takes), takes, {-1: inputs})
        one_shape.compare(made)
        kept = kept_by(module)
        again = in_sequence(dict(layers), takes, {-1: inputs})
        refuse_draws(states)
        refuse_counters(module, kept)
    refuse_changes(module, before)
    for number, layer in layers.items():
        if not same(made[number], again[number]):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) returns different results for the same input, because it "
                "draws random numbers or has state: for dropout use hybridlab.training.models.gpt.Dropout, and keep no "
                "state"
            )
    with alone("the loss"):
        refuse_loss(model.loss, made[len(layers) - 1], targets)
    first_are_rows = refuse_means(model, module, layers, takes, made, targets)
    loss_of = lambda: model.loss(in_sequence(dict(layers), takes, {-1: inputs})[len(layers) - 1], targets)
    _refuse_untrained(module, loss_of)
    if plain.strange(module):
        with alone("a backward"):
            refuse_backward(module, loss_of, before)
    _refuse_mixing(model, module, layers, takes, made, targets, first_are_rows, one_shape)
    _refuse_another(model, module, before, takes, made, max(batch, least), dtype, one_shape)
    if rows < least:
        with torch.no_grad():
            made = in_sequence(dict(layers), takes, {-1: rows_of(inputs, slice(rows))})
    return [mapped(_without_memory, made[number]) for number in layers]


def _batch(model, rows, dtype, first):
    """((inputs, targets) of the first step, other inputs: those of the second step, with rows in reverse order).

    first  the rows of the batch that is read before all others: that of a plain loop, since data may keep something
           that they compute from it, such as a mean
    """
    try:
        model.batch(0, first)
        inputs, targets = model.batch(0, rows)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"data(0, {rows}) fails: {said(error)}") from error
    others = None
    for step in STEPS:
        (x, y), kept = model.batch(step, rows), kept_by_data(model.data)
        x_again, y_again = model.batch(step, rows)
        refuse_state_of_data(kept, kept_by_data(model.data))
        if not (same(x, x_again) and same(y, y_again)):
            raise ValueError(
                f"data({step}, rows) gave two different batches: draw from a generator seeded with the step, and use "
                "it for augmentation too"
            )
        entering = as_entering(x, dtype, step)
        others = entering if step == STEPS[1] else others
    inputs = as_computed(inputs, dtype)
    alike = [x.shape for x in flat(others)] == [x.shape for x in flat(inputs)]  # otherwise `Job.batch` refuses them
    return (inputs, as_compared(targets, dtype)), mapped(_reversed, others if alike else inputs)


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


def _refuse_untrained(module, loss_of):
    """Refuse a model in which no weight gets a gradient from the loss."""
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ValueError("every weight is frozen, so there is nothing to train: leave requires_grad=True on some")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        loss = loss_of()
    if not loss.requires_grad:
        raise ValueError(
            "no gradient reaches a weight from the loss: leave out detach(), item() and torch.no_grad() in the "
            "loss and the layers"
        )


def _refuse_mixing(model, module, layers, takes, made, targets, first_are_rows, one_shape):
    """Refuse layers that mix rows, because microbatches and copies combine rows in other ways. Layers that count over
    rows, or that assign places to rows, declare this: nothing after them is compared. A layer sees one row after
    another, as on a rank that does not have the other layers.
    """
    counts = lambda layer: any(isinstance(one, Tallies | Routes) for one in layer.modules())
    by_norm = ", or normalize with hl.models.BatchNorm" * (model.call is None)  # a trace has no layers
    rows, last, draws, seen = len(flat(targets)[0]), len(layers) - 1, draws_of(module), plain.Narrowest()
    each = [slice(number, number + 1) for number in (rows - 1, 0)]
    arrived = [{-1: rows_of(made[-1], single)} for single in each]
    for one, layer in layers.items():
        if counts(layer):
            return
        for single, there in zip(each, arrived):
            draws.row = single.start  # dropout draws what it drew for this row; the last one is row 0, as elsewhere
            with seen, torch.random.fork_rng(devices=[]), torch.no_grad():
                there[one] = called(one, layer, tuple(there[source] for source in takes[one]), takes[one])
        for single, there in zip(each, arrived):
            if not _near(there[one], made[one], single, rows, seen.dtype):
                draws.row = single.start
                _refuse_kept(one, layers, takes, there[-1], made, single)
                raise ValueError(
                    f"layer {one} ({type(layer).__name__}) mixes rows, so its output for one row depends on its "
                    f"microbatch: compute each row independently of the others{by_norm}"
                )
    for there in arrived:
        one_shape.compare(there)
    for single, there in zip(each, arrived) if first_are_rows else ():
        with torch.no_grad():
            its, whole = (model.loss(x, rows_of(targets, single)) for x in (there[last], rows_of(made[last], single)))
        if not torch.allclose(its, whole, rtol=_tolerance(whole.dtype, seen.dtype), equal_nan=True):
            raise ValueError(
                "the model mixes rows, so the loss of one row depends on its microbatch: compute each row "
                "independently of the others"
            )


def _refuse_kept(one, layers, takes, row, made, alone):
    """Refuse a layer that is right about a row only if all layers see this row in succession, without other rows in
    between.
    """
    before = {number: layer for number, layer in layers.items() if number <= one}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        again = in_sequence(before, takes, {-1: row})[one]
    if _near(again, made[one], alone, len(flat(made[-1])[0]), torch.float64):
        refuse_channel(one, layers[one])


def _refuse_another(model, module, before, takes, made, rows, dtype, one_shape):
    """Refuse layers that together compute something other than the owner's module."""
    if plain.strange(module):
        fresh = model.made(0, dtype)  # a new module: no other layer has stored anything in its layers
        _refuse_other_weights(before, fresh)
        refuse_borrowed(model, fresh, takes, made)
        del fresh
        some = slice(min(rows, COMPARED))
        batch = rows_of(model.batch(0, rows), some)
        wide = plain.widest(partial(model.made, 0), model, *rows_of(batch, slice(FEWEST)), dtype)
        (inputs, targets), width = batch, plain.width_of(wide)
        its = as_computed(inputs, width), as_compared(targets, width)
        plain.refuse_another(model, wide, *its, groups_of(some.stop), one_shape)


def _refuse_other_weights(before, again):
    """Refuse a function of the seed that returns another module when it is called again."""
    for (name, x), y in zip(before.items(), tensors_of(again).values()):
        if not same(x, y):
            raise ValueError(
                f"the function of the seed returns a different {name} when it is called again, but every rank calls "
                "it: draw initial numbers from torch's, numpy's or Python's generator only, which have the seed then"
            )


def fewest(model) -> int:
    """The fewest rows to examine: one only if all batches have one, since nothing is mixed or divided then."""
    return min(FEWEST, getattr(model.data, "rows", None) or FEWEST)


def groups_of(rows: int) -> list[slice]:
    """Groups of rows to compare with all rows at once: few, since each group costs gradients of every weight; uneven,
    so that a function of pairs or of halves sees different rows.

    >>> [[some.stop - some.start for some in groups_of(rows)] for rows in (1, 2, 3, 16)]
    [[1], [1, 1], [1, 1, 1], [1, 1, 7, 7]]
    """
    borders = sorted({0, 1, min(2, rows), 2 + max(-1, rows - 2) // 2, rows})
    return [slice(begin, end) for begin, end in zip(borders, borders[1:])]


def _near(alone, whole, number: slice, rows: int, narrowest: torch.dtype) -> bool:
    """Whether a layer's output for one row is that row of its output for all rows, if it has recognizable rows.

    narrowest  the dtype of some computation before it, such as that of a router in float32
    """
    for mine, its in zip(flat(alone), flat(whole)):
        if its.shape[:1] == (rows,) and mine.shape == its[number].shape and its.is_floating_point() and mine.numel():
            off, scale = (mine - its[number]).abs().max(), its[number].abs().max()
            if off > _tolerance(its.dtype, narrowest) * scale:  # always false for nan
                return False
    return True


def _tolerance(*dtypes: torch.dtype) -> float:
    """The relative difference that rounding may make."""
    return math.sqrt(max(torch.finfo(dtype).eps for dtype in dtypes))


def _reversed(x):
    return x.flip(0)


def _without_memory(x):
    return torch.empty(x.shape, dtype=x.dtype, device="meta")
