"""The examination: anyone's model is run once before it is shared out, and what cannot work is said in one sentence.

Cut into stages, a model is run piece by piece, by several processes, some pieces twice. So what it does must depend on
its inputs and its weights only. Each refusal below is of something that would train on without a word, and wrong.

`model` is a `training.models.model.Model` throughout.
"""

from typing import NamedTuple

import torch
from torch import nn

from hybridlab.core.what.seams import Tallies
from hybridlab.training.models.graph import in_sequence, refuse_lost
from hybridlab.training.models.trees import as_computed, flat, mapped

STEPS = (0, 1, 2)  # whose batches are asked for twice


def examined(model, rows: int, dtype: torch.dtype) -> list:
    """What leaves each layer for a microbatch of so many rows, as examples without memory.

    raises  ValueError for batches that differ from call to call or have other rows; a layer that changes its input,
            that draws by itself, or that changes a buffer; a loss that is no sum
    """
    module = model.made(0, dtype)
    inputs, targets = _batch(model, rows, dtype)
    _refuse_torch_dropout(module)
    layers, takes = dict(enumerate(model.layers(module))), model.takes(module)
    refuse_lost(takes, len(layers))
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        made = in_sequence(_watched(layers, takes), takes, {-1: inputs})
        again = in_sequence(dict(layers), takes, {-1: inputs})
    _refuse_changed_buffers(module, before)
    for number, layer in layers.items():
        if not _same(made[number], again[number]):
            raise ValueError(
                f"layer {number} ({type(layer).__name__}) gives two answers to one input: it draws random numbers, or "
                "keeps something between calls; draw by place with hybridlab.training.models.gpt.Dropout, keep nothing"
            )
    _refuse_means(model, made[len(layers) - 1], targets)
    return [mapped(_without_memory, made[number]) for number in layers]


def _batch(model, rows, dtype):
    inputs, targets = model.batch(0, rows)
    for x in (*flat(inputs), *flat(targets)):
        if not torch.is_tensor(x):
            raise ValueError(f"data(0, {rows}) gave a {type(x).__name__}: give tensors, or tuples of them")
        if x.shape[:1] != (rows,):
            raise ValueError(
                f"data(0, {rows}) gave a tensor of shape {tuple(x.shape)}: its first dim must be {rows} rows"
            )
    for step in STEPS:
        (x, y), (x_again, y_again) = (model.batch(step, rows) for _ in range(2))
        if not (_same(x, x_again) and _same(y, y_again)):
            raise ValueError(
                f"data({step}, rows) gave two different batches: draw from a generator that is seeded with the step"
            )
    return as_computed(inputs, dtype), as_computed(targets, dtype)


def _refuse_torch_dropout(module):
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p:
            raise ValueError(
                f"{name} is torch's {type(layer).__name__}, which draws other numbers on every rank: use "
                f"hybridlab.training.models.gpt.Dropout({layer.p}), which draws by place"
            )


def _watched(layers, takes) -> dict:
    """The same layers, which say when one has changed what it was given, or made something that cannot travel."""

    def watched(number, layer):
        def call(*arrived):
            kept = [mapped(torch.clone, x) for x in arrived]
            leaving = _called(number, layer, arrived, takes[number])
            if not all(_same(x, y) for x, y in zip(arrived, kept)):
                raise ValueError(
                    f"layer {number} ({type(layer).__name__}) changes its input, which others need: leave out "
                    "inplace=True, or write x = x + 1 for x += 1"
                )
            for x in flat(leaving):
                if not torch.is_tensor(x):
                    raise ValueError(
                        f"layer {number} ({type(layer).__name__}) hands on a {type(x).__name__}: only tensors, and "
                        "tuples of them, travel between stages"
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
            f"layer {number} ({type(layer).__name__}) fails on what reaches it, {_shapes(arrived)}{whence}: "
            f"{_said(error)}"
        ) from error


def _shapes(arrived) -> str:
    """Tensors in words: shape and dtype of each."""
    return ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for one in arrived for x in flat(one))


def _said(error) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _refuse_changed_buffers(module, before):
    tallied = {f"{name}.tally".lstrip(".") for name, layer in module.named_modules() if isinstance(layer, Tallies)}
    for name, buffer in module.named_buffers():
        if name not in tallied and not torch.equal(buffer, before[name]):
            layer = type(module.get_submodule(name.rpartition(".")[0])).__name__
            raise ValueError(
                f"a forward changes the buffer {name} of {layer}, and microbatches and replicas would each change it "
                "otherwise: use hybridlab.training.models.batch_norm.BatchNorm, or count in a tally as it does"
            )


def _refuse_means(model, outputs, targets):
    """A sum over the rows is the sum of the rows' sums; a mean is not."""
    rows = len(flat(targets)[0])
    row = lambda x, number: mapped(lambda one: one[number : number + 1], x)
    with torch.no_grad():
        try:
            whole = model.loss(outputs, targets)
        except Exception as error:
            raise ValueError(
                f"loss(output, target) fails on {_shapes([outputs])} and {_shapes([targets])}: {_said(error)}"
            ) from error
        if whole.dim():
            raise ValueError(f"the loss has shape {tuple(whole.shape)}: sum it to one number")
        parts = sum(model.loss(row(outputs, number), row(targets, number)) for number in range(rows))
    if not torch.allclose(whole, parts, rtol=1e-3):
        raise ValueError(
            f"the loss of {rows} rows is {whole:.4g}, and the sum of their losses {parts:.4g}: make it a sum over "
            'rows, reduction="sum"'
        )


class Passed(NamedTuple):
    """What passes a module when one row goes through the model.

    layer   that the module is in;  wanted  whether a gradient goes back to what comes in
    entered, left  the shapes of the first tensor that comes in, and of the first that goes out
    """

    layer: int
    wanted: bool
    entered: torch.Size
    left: torch.Size


def passed(model, seed: int, dtype: torch.dtype) -> dict[str, Passed]:
    """What passes every module of a model, by its name, when one row goes through.

    On torch's meta device, where nothing is computed, if nobody looks at numbers: anyone's layers may.
    """
    module, found = model.made(seed, dtype, {} if model.by_place else None), {}
    device = "meta" if model.by_place else "cpu"
    layer_of = {id(one): number for number, layer in enumerate(model.layers(module)) for one in layer.modules()}

    def note(name):
        def hook(one, arrived, leaving):
            x = arrived[0]
            found[name] = Passed(layer_of[id(one)], x.requires_grad, x.shape, flat(leaving)[0].shape)

        return hook

    for name, one in module.named_modules():
        if id(one) in layer_of:
            one.register_forward_hook(note(name))
    inputs, _ = model.batch(0, 1)
    model.through(module, mapped(lambda x: x.to(device), as_computed(inputs, dtype)))
    return found


def _same(x, y) -> bool:
    return all(torch.equal(one, other) for one, other in zip(flat(x), flat(y), strict=True))


def _without_memory(x):
    return torch.empty(x.shape, dtype=x.dtype, device="meta")
