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
    cut = {}  # {name of a module: (dim, its letter, the letter of the other dim, module)}
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


def readers(module: nn.Module, layout: Layout, found: list[Crossing]) -> dict[nn.Module, list[nn.Linear]]:
    """{a module that reads the stream: the linear layers in it that multiply its input}."""
    reading = {}
    for one in (one for one in found if one.kind == "enter"):
        layer = module.get_submodule(one.name)
        inputs = lambda name, one=one: layout[f"{one.name}.{name}.weight"].dims.split()[1:]
        linear = [name for name, child in layer.named_children() if isinstance(child, nn.Linear)]
        names = [name for name in linear if [letters[0] for letters in inputs(name)] == [one.stream]]
        reading[layer] = [layer.get_submodule(name) for name in names] if one.within else [layer]
    return reading


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


def refuse_other_biases(layout: Layout):
    """Raise an error unless each bias is sharded like the outputs of its matrix."""
    for name, param in layout.named.items():
        weight = layout.named.get(name.removesuffix("bias") + "weight")
        if not name.endswith("bias") or weight is None or param.dims.startswith("E "):  # see cut_experts
            continue
        cut = "tp" in weight.shard and weight.shard["tp"].dim == 0
        if cut != ("tp" in param.shard):
            outputs = weight.dims.split()[0] if weight.dims else "."
            raise ValueError(
                f"{name} belongs to the outputs of {weight.name}, {outputs}: name its dimension {outputs!r} too"
            )


def refuse_open_cuts(found: list[Crossing], scores: str):
    """Raise an error unless column-parallel and row-parallel matrices alternate; declared pairs are left out.

    scores  the letter of the dim that the loss joins
    """
    open_at = None
    for one in found:
        if one.within or one.kind == "rows":
            continue
        if one.kind == "leave" and (open_at is None or open_at.letter != one.letter):
            raise ValueError(
                f"{one.name} is sharded along its inputs {one.letter}, but the previous layer's outputs are not "
                f"sharded: name those outputs {one.letter}, or give its inputs another name"
            )
        if one.kind == "enter" and open_at is not None:
            raise ValueError(
                f"{open_at.name} leaves {open_at.letter} sharded, but {one.name} needs all of it: name the inputs "
                f"of {one.name} {open_at.letter}, and not its outputs"
            )
        open_at = one if one.kind == "enter" else None
    if open_at is not None and open_at.letter != scores:
        raise ValueError(
            f"{open_at.name} leaves {open_at.letter} sharded, and no later layer reduces it: name the inputs "
            f"of a later Linear {open_at.letter}, or give its own outputs another name"
        )
