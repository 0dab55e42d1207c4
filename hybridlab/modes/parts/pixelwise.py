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
    inputs, targets = (one[0].double() if one[0].is_floating_point() else one[0] for one in job.batch(0))
    whole = _kept(job, inputs, known)
    for name in known:
        if len({entered.shape for entered, _ in whole[name]}) > 1:
            raise ValueError(f"{name} is used on images of several sizes: use a separate layer for each size")
    mesh = Mesh(**{axis: job.mesh[axis] for axis in rules.values()})
    for rank in sorted({0, mesh.size - 1}):  # the first part and the last
        _try(job, inputs, whole, known, lambda x, dims, rank=rank: part(x, dims, rules, mesh, rank), words)
    parts = lambda x, dims: [part(x, dims, rules, mesh, rank) for rank in range(mesh.size)]
    last = next(key for key, layer in _watched(job, job.whole, known) if layer is job.layers[-1])
    output = whole[last][-1][1]
    if any(axes in job.leaving[-1].split() for axes in rules):
        _refuse_other_sum(job, output, targets, parts)


def _kept(job, inputs, known) -> dict:
    """{number of a layer, or name of a known one: [(its input, its output), …]} of full pictures."""
    found, module = {}, job.model.made(job.seed, torch.float64)
    for key, layer in _watched(job, module, known):
        keep = lambda _, arrived, left, key=key: found.setdefault(key, []).append((arrived[0], left))
        layer.register_forward_hook(keep)
    job.model.through(module, inputs)
    return found


def _try(job, inputs, whole, known, cut, words):
    """Run a part of the pictures, and compare every output with the matching part of the full output."""
    module, passed = job.model.made(job.seed, torch.float64), []
    for key, layer in _watched(job, module, known):
        if key in known:
            layer.forward = _recalling(iter(whole[key]), cut, known[key])
        else:
            layer.register_forward_hook(_comparing(whole[key][0][1], cut, job.leaving[key], passed))
    try:
        job.model.through(module, cut(inputs, job.model.enters))
    except Exception as error:
        number = len(passed)
        raise ValueError(
            f"layer {number} ({type(job.layers[number]).__name__}) mixes pixels outside of {words}, the only "
            "layers that h and w can shard: use these layers for it, or leave h and w out"
        ) from error


def _recalling(calls, cut, cuts_on):
    """A known layer on a part of the pictures: it returns this part of its recorded output."""

    def forward(arrived, *_):
        entered, left = next(calls)
        _same(arrived, cut(entered, PICTURES))
        return cut(left, PICTURES) if cuts_on else left

    return forward


def _comparing(left, cut, dims, passed):
    """Compare the outputs of a layer of the sequence, and count the calls."""

    def hook(layer, arrived, made):
        for one, other in zip(_flat(made), _flat(left), strict=True):
            _same(one, cut(other, dims))
        passed.append(layer)

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


def _watched(job, module, known):
    """(number or name, layer): the layers in sequence, and the known ones by name, even if they are in sequence."""
    names = {id(layer): name for name, layer in module.named_modules()}
    for number, layer in enumerate(job.model.layers(module)):
        if names[id(layer)] not in known:
            yield number, layer
    yield from ((name, module.get_submodule(name)) for name in known)


def _same(one, other):
    if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-9, atol=1e-12):
        raise ValueError("the result differs from that on full images")


def _flat(x) -> tuple:
    return x if isinstance(x, tuple) else (x,)
