"""Pixelwise: run a model to test whether all layers except the known ones treat every pixel separately.

The model runs on full pictures, and the inputs and outputs of its known layers are recorded. Then it runs on a rank's
part of the pictures; there a known layer returns its part of the recorded output. If all other layers treat pixels
separately, every output is the matching part of the full output. A flip, a mean or an added position changes the
output.

Relatives: `spatial_parallel`, which uses it; `training.models.examination`, the checks of any model.
"""

import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules, part

PICTURES = "B C Y X"


@torch.no_grad()
def refuse_mixing(job, rules: Rules, known: dict[str, bool], words: str):
    """Raise an error unless the loss, and every layer except the known ones, treats each pixel separately.

    rules  {"Y": …, "X": …}: the axes that cut pictures
    known  {name of a layer: whether its output is cut too};  words  the known layers, in words, for the sentence

    raises  ValueError naming the layer that does not
    """
    wide = lambda x: x.double() if x.is_floating_point() else x
    inputs, targets = (_each(wide, one[0]) for one in job.batch(0))
    whole = _kept(job, inputs, known)
    for name in known:
        if len({entered.shape for entered, _ in whole[name]}) > 1:
            raise ValueError(f"{name} is used on images of several sizes: use a separate layer for each size")
    mesh = Mesh(**{axis: job.mesh[axis] for axis in rules.values()})
    for rank in sorted({0, mesh.size - 1}):  # the first part and the last
        _try(job, inputs, whole, known, lambda x, dims, rank=rank: _part(x, dims, rules, mesh, rank), words)
    parts = lambda x, dims: [_part(x, dims, rules, mesh, rank) for rank in range(mesh.size)]
    output = whole[len(job.layers) - 1]
    if any(axes in job.leaving[-1].split() for axes in rules):
        _refuse_other_sum(job, output, targets, parts)


def _kept(job, inputs, known) -> dict:
    """{number of a layer: its output, name of a known one: [(its input, its output), …]} of full pictures."""
    found, module = {}, job.model.made(job.seed, torch.float64)
    for number, layer in enumerate(job.model.layers(module)):
        layer.register_forward_hook(lambda _, arrived, left, number=number: found.update({number: left}))
    for name in known:
        layer = module.get_submodule(name)
        layer.forward = _noting(layer.forward, found.setdefault(name, []))
    job.model.through(module, inputs)
    return found


def _noting(forward, calls: list):
    """A known layer on full pictures, without the user's hooks."""

    def noting(arrived, *more):
        calls.append((arrived, forward(arrived, *more)))
        return calls[-1][1]

    return noting


def _try(job, inputs, whole, known, cut, words):
    """Run a part of the pictures, and compare every output with the matching part of the full output."""
    module, begun = job.model.made(job.seed, torch.float64), [0]
    for number, layer in enumerate(job.model.layers(module)):
        layer.register_forward_pre_hook(lambda *_, number=number: begun.append(number))
        layer.register_forward_hook(_comparing(whole[number], cut, job.leaving[number]))
    for name in known:
        module.get_submodule(name).forward = _recalling(iter(whole[name]), cut, known[name])
    try:
        job.model.through(module, cut(inputs, job.model.enters))
    except Exception as error:
        number = begun[-1]
        raise ValueError(
            f"layer {number} ({type(job.layers[number]).__name__}) mixes pixels outside of {words}, the only "
            "layers that h and w can shard: use these layers for it, or leave out h and w"
        ) from error


def _recalling(calls, cut, cuts_on):
    """A known layer on a part of the pictures: it returns this part of its recorded output. A mean over all pixels is
    the same on all ranks, and so are all values computed from it."""

    def forward(arrived, *_):
        entered, left = next(calls)
        if cuts_on and of_one_pixel(entered.shape, left.shape) and arrived.shape == entered.shape:
            _same(arrived, entered)
            return left
        _same(arrived, cut(entered, PICTURES))
        return cut(left, PICTURES) if cuts_on else left

    return forward


def _comparing(left, cut, dims):
    """Compare the outputs of a layer of the sequence."""

    def hook(layer, arrived, made):
        for one, other in zip(_flat(made), _flat(left), strict=True):
            _same(one, cut(other, dims))

    return hook


def _refuse_other_sum(job, output, targets, parts):
    pairs = zip(parts(output, PICTURES), parts(targets, job.model.targets))
    try:
        _same(sum(job.model.loss(*pair) for pair in pairs), job.model.loss(output, targets))
    except Exception as error:
        raise ValueError(
            "the losses of the parts of an image do not add up to the loss of the image: make the loss a sum over "
            "pixels, and name the dimensions of targets, targets='B C Y X'"
        ) from error


def _same(one, other):
    if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-9, atol=1e-12):
        raise ValueError("the result differs from that on full images")


def of_one_pixel(entered: torch.Size, left: torch.Size) -> bool:
    """Whether a layer's input and output have these shapes, of one pixel: after a mean, all ranks have it."""
    return entered[2:] == left[2:] == (1, 1)


def _part(x, dims: str, rules: Rules, mesh: Mesh, rank: int):
    """A rank's part of each tensor that has all these dims."""
    names = dims.split()
    cut = lambda one: part(one, dims, rules, mesh, rank) if one.dim() >= len(names) else one
    return _each(cut, x)


def _each(function, x):
    """A function applied to a tensor, or to each tensor of a tuple."""
    return tuple(_each(function, one) for one in x) if isinstance(x, tuple) else function(x)


def _flat(x) -> tuple:
    return x if isinstance(x, tuple) else (x,)
