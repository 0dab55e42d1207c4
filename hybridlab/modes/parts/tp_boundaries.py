"""The modules of a model under tp that read from or write to the residual stream, derived from its layout.

A matrix with sharded outputs reads from the stream, one with sharded inputs writes to it. A module whose children
contain both is a pair, and has one f for all its matrices. Relatives: `modes.tensor_parallel`, which uses it.
"""

from typing import NamedTuple

from torch import nn

from hybridlab.core.where.layout import Layout
from hybridlab.modes.parts import cut_experts


class Crossing(NamedTuple):
    """A place where a sharded module reads from or writes to the stream.

    kind   "enter": matrices with sharded outputs read the input; "leave": a matrix with sharded inputs computes a
           partial sum; "rows": an embedding of which a rank has some rows
    name   the name of the module in the model;  letter  the letter of the dim that is cut
    within  whether a module around it is a pair
    stream  the letter of the dim that is not cut, and which crosses
    """

    kind: str
    name: str
    letter: str
    within: bool = False
    stream: str = ""


def crossings(module: nn.Module, layout: Layout) -> list[Crossing]:
    """The places where a model reads from or writes to the stream, in model order.

    raises  ValueError if a parameter is cut whose module is neither linear nor an embedding
    """
    name_of = {id(weight): name for name, weight in module.named_parameters()}
    routed = tuple(f"{name}.experts." for name in cut_experts.routed(module))  # they have their own messages
    cut = {}  # {name of a module: (dim, its letter, the other's, module)}
    for name, child in module.named_modules():
        if name.startswith(routed):
            continue
        for weight in child.parameters(recurse=False):
            param = layout[name_of[id(weight)]]
            if "tp" not in param.shard:
                continue
            if not isinstance(child, (nn.Linear, nn.Embedding)):
                raise ValueError(
                    f"{param.name} is sharded along tp, but {type(child).__name__} is neither Linear nor Embedding: "
                    "leave its dimensions without names"
                )
            if weight is child.weight:
                dim = param.shard["tp"].dim
                letters = [letters[0] for letters in param.dims.split()] or ["", ""]
                cut[name] = dim, letters[dim], letters[1 - dim], child
    found, entered = [], set()
    for name, child in module.named_modules():
        inside = {f"{name}.{one}": cut[f"{name}.{one}"] for one, _ in child.named_children() if f"{name}.{one}" in cut}
        if name and {dim for dim, *_ in inside.values()} == {0, 1}:
            found.append(Crossing("enter", name, "", within=True, stream=_read(name, child, layout)))
            entered |= inside.keys()
        if name in cut:
            dim, letter, other, _ = cut[name]
            if dim == 1:
                found.append(Crossing("leave", name, letter, name in entered, other))
            elif isinstance(child, nn.Embedding):
                found.append(Crossing("rows", name, letter, stream=other))
            elif name not in entered:
                found.append(Crossing("enter", name, letter, stream=other))
    return found


def _read(name: str, pair: nn.Module, layout: Layout) -> str:
    """The letter of the dim that a pair reads from the stream: an input that no matrix inside it computes."""
    linear = [one for one, layer in pair.named_children() if isinstance(layer, nn.Linear)]
    params = [layout[f"{name}.{one}.weight"] for one in linear]
    inside = [param.dims.split() for param in params if "tp" not in param.shard or param.shard["tp"].dim == 0]
    made = {outputs[0] for outputs, _ in filter(None, inside)}
    return next((inputs[0] for _, inputs in filter(None, inside) if inputs[0] not in made), "")


def beside(module: nn.Module, layout: Layout) -> dict[str, str]:
    """{parameter in a pair that every rank along tp holds in full: the matrix that leaves the pair}."""
    leaves = [one.name for one in crossings(module, layout) if one.kind == "leave" and one.within]
    return {
        f"{pair}.{name}": f"{pair}.{last}"
        for pair, _, last in (one.rpartition(".") for one in leaves)
        for name, _ in module.get_submodule(pair).named_parameters()
        if "tp" not in layout[f"{pair}.{name}"].shard and not name.startswith(f"{last}.")
    }
