"""AxoNN's tensor parallelism on a grid: every matrix is sharded along both dims, over tp and over x.

Tensor parallelism cuts hidden units, heads and the vocabulary over tp. The residual stream between the pairs of
matrices is the same on all ranks along tp. Here the width D of the stream is cut too, along a second axis, x. A matrix
that reads from the stream multiplies the part of its inputs on this rank, and the partial sums are reduced along x. A
matrix that writes to the stream computes the outputs of this rank; its inputs are the same along x, so their gradients
are reduced. A norm sums two numbers along x for each position. So x and tp alternate, and no tensor is resharded
between two matrices.

  parameter                  held by a rank          forward                  backward
  q, k, v, up, scores        its columns of its rows     all-reduce of outputs    -
  out, down                  its rows of its columns     -                        all-reduce of inputs' gradients
  norms                      its features                all-reduce, 1 or 2 each  the same
  embeddings, biases of D    its features                -                        -

AxoNN calls the axes of a layer x, y and z. Here y is tp. The axis z, along which weights are gathered for use, is
ZeRO's: zero=3 with `owners` ranks along dp.

  x=1, tp=t        Megatron's                 x, tp               two dimensions
  x=1, tp=1, dp    data parallelism           x, tp, dp, zero=3   three: Agarwal's
  dp, zero=3       fully sharded              …, owners < dp      three, and copies of all of it: four

Every rank along x computes the same attention and GELU, so a grid that is long in x repeats work: prefer tp.

Source: Singh et al. 2023, arXiv:2305.13525. Relatives: `tensor_parallel`, `zero`; `modes.products.matmul.cube`, the
matmul that a layer consists of; `predict.bytes.matmul` ("axonn"); `modes.products.grid_layer`, one layer alone;
notebook 36.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.what.seams import Features
from hybridlab.core.where.layout import even
from hybridlab.modes.mode import Mode
from hybridlab.modes.parts.plain_layers import before, refuse_more
from hybridlab.predict.plans import divisions
from hybridlab.world.talk.typed import all_reduce, enter

RULES = {"D": "x"}
NORMS = {nn.LayerNorm: 2, nn.RMSNorm: 1}  # numbers that are all-reduced for each position


def summed(linear, comm):
    """The forward of a linear layer whose inputs are cut along x: the partial sums are reduced, then the bias is
    added.
    """

    def forward(x_BTD):
        y_BTF = all_reduce(comm, functional.linear(x_BTD, linear.weight), "x", to="I")
        return y_BTF if linear.bias is None else y_BTF + linear.bias

    return forward


class NormAlong(nn.Module):
    """A norm over features that are sharded along x: its means are all-reduced along x.

    norm   the torch norm whose parameters it takes over;  width  the number of all features together
    """

    def __init__(self, norm, comm, width: int):
        super().__init__()
        self.weight, self.bias = norm.weight, getattr(norm, "bias", None)
        self.eps, self.centred, self.comm, self.width = norm.eps, isinstance(norm, nn.LayerNorm), comm, width

    def forward(self, x_BTD):
        wide_BTD = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))  # as torch's own norms do
        if self.centred:
            wide_BTD = wide_BTD - self._mean(wide_BTD)
        wide_BTD = wide_BTD * (self._mean(wide_BTD.square()) + self.eps).rsqrt()
        y_BTD = wide_BTD.to(x_BTD.dtype) * self.weight
        return y_BTD if self.bias is None else y_BTD + self.bias

    def _mean(self, x_BTD):
        return all_reduce(self.comm, x_BTD.sum(-1, keepdim=True), "x", to="R") / self.width


class GridParallel(Mode):
    """The runtime part of this mode."""

    name, axis, purpose = "grid parallelism", "x", "across"

    def refuse(self, job):
        if "D" not in job.sizes:
            raise ValueError(
                f"x={job.mesh['x']} shards the width D, but no dimension of this model has that name: name its "
                "dimensions"
            )
        divisions.refuse(job.sizes, job.division, "x")
        job.once(_crossings)
        refuse_more(job.whole, job.layout, "x")

    def rules(self, job):
        return RULES

    def between(self, job):
        return RULES

    def fit(self, module, comm, job):
        first = even(job.sizes["D"], job.mesh["x"])[comm.coordinates["x"]][0]
        for kind, name, _ in job.once(_crossings):
            around, _, last = name.rpartition(".")
            layer = module.get_submodule(name)
            if kind == "enter":
                before(layer, lambda x: enter(comm, x, "x"))
            elif kind == "leave":
                layer.forward = summed(layer, comm)  # in place: tensor parallelism may wrap it
            else:
                setattr(module.get_submodule(around), last, NormAlong(layer, comm, job.sizes["D"]))
        for layer in module.modules():
            if isinstance(layer, Features):
                layer.feature = first

    # its messages

    def sends(self, job, layer, when, here) -> Iterator[tuple[str, int]]:
        width, positions = job.widths.value, here.get("T", 1)
        for one, numbers, wanted in job.once(_by_layer).get(layer, ()):
            if one.kind == "norm":  # of the positions that are here
                size = numbers * positions * max(width, 4)
                goes = when in ("forward", "backward")
            else:  # of the features that are here; where tp cuts the sequence, a matrix still sees all of it
                seen = job.sizes["T"] / job.mesh["cp"] if job["sequence"] else positions
                size = numbers // job.sizes.get(one.letter, 1) * here.get(one.letter, 1) * seen * width
                goes = when == "forward" if one.kind == "leave" else when == "backward"
                goes = goes and (one.kind == "leave" or wanted or job.stage_of(layer) > 0)
            if goes:
                yield "all_reduce", here["B"] * size


class Crossing(NamedTuple):
    """A module that sends along x.

    kind    "leave": a matrix whose inputs are cut; "enter": a matrix whose outputs are cut; "norm"
    name    the name of the module;  letter  the letter of the features that are not cut
    """

    kind: str
    name: str
    letter: str = ""


def _crossings(job) -> list[Crossing]:
    """Every module that sends along x, in model order.

    raises  ValueError if a parameter is cut whose module is neither linear, nor an embedding, nor a norm
    """
    name_of, found = {id(weight): name for name, weight in job.whole.named_parameters()}, []
    for name, layer in job.whole.named_modules():
        for weight in layer.parameters(recurse=False):
            param = job.layout[name_of[id(weight)]]
            if "x" not in param.shard or isinstance(layer, nn.Embedding):
                continue
            if len(param.shape) == 1 and not isinstance(layer, (nn.Linear, *NORMS)):
                continue  # a scale, or a bias, of the features that are here
            if not isinstance(layer, (nn.Linear, *NORMS)):
                raise ValueError(
                    f"{param.name} is sharded along x, but {type(layer).__name__} is not a Linear, an Embedding or a "
                    "norm: leave its dimensions without names"
                )
            if weight is layer.weight:
                found.append(_crossing(name, layer, param))
    return found


def _crossing(name, layer, param) -> Crossing:
    if not isinstance(layer, nn.Linear):
        return Crossing("norm", name)
    cut = param.shard["x"].dim
    return Crossing("leave" if cut == 1 else "enter", name, param.dims.split()[1 - cut][0])


def _by_layer(job) -> dict[int, list[tuple]]:
    """{layer: (crossing, numbers sent for one position, whether its input has a gradient)}."""
    found, positions = {}, job.sizes.get("T", 1)
    for one in job.once(_crossings):
        passed = job.passed[one.name]
        if one.kind == "norm":
            numbers = NORMS[type(job.whole.get_submodule(one.name))] * passed.left[:-1].numel() // positions
        else:
            numbers = (passed.left if one.kind == "leave" else passed.entered).numel() // positions
        for layer in passed.layers:
            found.setdefault(layer, []).append((one, numbers, passed.wanted))
    return found


MODE = GridParallel()
