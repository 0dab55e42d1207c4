"""Any module as layers: torch's tracer records its operations, and names of submodules say where to cut.

torch.export records a forward as a graph of operations, each with the modules that it belongs to. A cut is before the
first operation of a module; a *piece* is the part between two cuts. Its inputs are the outputs of earlier pieces that
it or a later piece needs, and it returns the tensors that later pieces need. Its weights are those of the module, with
the same names.

Sizes are not sent: a piece that needs the number of rows reads it from one of its input tensors.

Source: torch.export; `torch.distributed.pipelining`, which cuts the same graphs. Relatives: `huggingface`, for modules
with a plan in their class; `examination`, which compares the pieces with the module's own forward.
"""

from dataclasses import dataclass
from functools import partial
from operator import attrgetter, getitem

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from hybridlab.training.models.batches import example_of, in_order
from hybridlab.training.models.copies import copied, in_dtype
from hybridlab.training.models.draws import seeded
from hybridlab.training.models.theirs import batches_of
from hybridlab.training.models.traceable import answered, refuse_modules, refuse_other_graph
from hybridlab.training.models.trees import as_computed, flat, mapped

FEW = 30  # names that a message lists
ROWS = 3  # rows of the traced example: other dims rarely have this length


def told(module, loss, data, cuts) -> dict:
    """The arguments of `Model`, by name, for a module that is cut before these of its submodules.

    raises  ValueError if torch cannot trace it, for unknown names, and for a graph that is valid for
            only
            one number of rows
    """
    if isinstance(cuts, str):
        raise ValueError(f"cuts={cuts!r} is a string: give a list of names, [{cuts!r}]")
    example = _original(module)
    refuse_modules(example)
    data = batches_of(data)
    inputs, _ = example_of(data, ROWS)
    names = tuple(inputs) if isinstance(inputs, dict) else ()
    width = next((x.dtype for x in example.parameters() if x.is_floating_point()), torch.get_default_dtype())
    leaves = as_computed(in_order(inputs), width)
    made = answered(example, partial(_answer, names), leaves)
    form = None if torch.is_tensor(made) else pytree.tree_structure(made)
    layers = Pieces(module, tuple(cuts), leaves, names)
    refuse_other_graph(example, partial(called, names), layers(example), leaves, partial(_original, module))
    return {
        "whole": module,
        "loss": partial(of_form, loss, form) if form else loss,
        "data": data,
        "layers": layers,
        "call": partial(called, names),
        "uncut": "a traced graph has no modules that could be cut: leave this axis out",
    }


def of_form(loss, form, made, targets):
    """The loss of an output that consists of several tensors, in the module's own form."""
    return loss(pytree.tree_unflatten(flat(made), form), targets)


def called(names: tuple[str, ...], module: nn.Module, inputs):
    """The output of a module in the form that the last piece returns: a tensor, or a tuple of tensors."""
    made = _answer(names, module, inputs)
    return made if torch.is_tensor(made) else tuple(pytree.tree_leaves(made))


def _answer(names, module, inputs):
    args, named = _arguments(inputs, names)
    return module(*args, **named)


def _arguments(inputs, names) -> tuple[tuple, dict]:
    return ((), dict(zip(names, flat(inputs), strict=True))) if names else (flat(inputs), {})


def _original(module) -> nn.Module:
    """A separate module to trace."""
    if isinstance(module, nn.Module):
        return copied(module)
    with seeded(0):
        return module(0)


@dataclass
class Pieces:
    """Lists the pieces of a module, traced again for each dtype and device, and in each process.

    whole  the module, or a function that makes it;  cuts  names of submodules;  inputs  an example
    names  the names of the inputs, or ()
    """

    whole: object
    cuts: tuple[str, ...]
    inputs: object
    names: tuple[str, ...]

    def __post_init__(self):
        self._found = {}

    def __getstate__(self):
        return vars(self) | {"_found": {}}  # graphs are not sent

    def __call__(self, module: nn.Module) -> list[nn.Module]:
        weight = next(iter(module.parameters()))
        key = weight.dtype, torch.device("cpu") if weight.is_meta else weight.device
        if key not in self._found:
            graph = _exported(in_dtype(_original(self.whole), key[0]).to(key[1]), self._example(*key), self.names)
            self._found[key] = graph, cut(graph.graph, self.cuts)
        graph, graphs = self._found[key]
        kind = type(module).__name__
        titles = [f"{kind} before {self.cuts[0]}" if self.cuts else kind, *(f"{kind} from {one}" for one in self.cuts)]
        pieces = [_bound(piece, module, graph, title) for piece, title in zip(graphs, titles)]
        read = {id(weight) for piece in pieces for weight in piece.parameters()}
        unread = [weight for weight in module.parameters() if id(weight) not in read]
        for number, weight in enumerate(unread):  # trained as in an unused layer
            pieces[0].register_parameter(f"unread_{number}", weight)
        return pieces

    def _example(self, dtype, device):
        return mapped(lambda x: x.to(device, dtype if x.is_floating_point() else x.dtype), self.inputs)


def _exported(module: nn.Module, inputs, names) -> fx.GraphModule:
    """The graph of a module for any number of rows."""
    args, named = _arguments(inputs, names)
    shapes = torch.export.ShapesCollection()
    for x in flat(inputs):
        shapes[x] = {0: torch.export.Dim.AUTO}
    try:
        graph = torch.export.export(module, args, named, dynamic_shapes=shapes, strict=False).module()
    except Exception as error:
        told = str(error).strip().splitlines()
        raise ValueError(
            f"torch cannot trace {type(module).__name__} ({type(error).__name__}: {told[0] if told else ''}): give it "
            "a method layers() that lists its layers"
        ) from error
    return graph


# --- the graph, cut ---------------------------------------------------------------------------------------------------


def cut(graph: fx.Graph, cuts: tuple[str, ...]) -> list[fx.Graph]:
    """The pieces of a graph, each a separate graph whose input is a tensor, or the tuple that the previous piece
    returns.

    raises  ValueError for a name without an operation in the graph, or in the wrong order
    """
    does = [node for node in graph.nodes if node.op == "call_function" and not _is_size(node) and not _asserts(node)]
    enters, leaves = graph.find_nodes(op="placeholder"), pytree.tree_leaves(graph.output_node().args)
    place_of = dict.fromkeys(enters, -1) | dict(zip(does, _places(does, cuts)))
    handed = [*_handed(place_of, leaves, len(cuts)), leaves]
    mine = [[node for node in does if place_of[node] == number] for number in range(len(handed))]
    return [_piece(*each) for each in zip([enters, *handed], mine, handed)]


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _asserts(node: fx.Node) -> bool:
    return "assert" in str(node.target)


def _places(does: list[fx.Node], cuts: tuple[str, ...]) -> list[int]:
    """The piece of every operation."""
    places, waiting = [], list(cuts)
    for node in does:
        within = _modules(node)
        if waiting and waiting[0] in within:
            waiting.pop(0)
            if not places or (waiting and waiting[0] in within):
                before = cuts[0] if not places else waiting[0]
                raise ValueError(f"cuts={list(cuts)}: no operation comes before {before}: leave it out")
        places.append(len(cuts) - len(waiting))
    if waiting:
        there = dict.fromkeys(name for node in does for name in _modules(node))
        raise ValueError(
            f"cuts={list(cuts)}: no call of {waiting[0]} follows those of the cuts before it: name modules in the "
            f"order of their calls, such as {', '.join(list(there)[:FEW])}"
        )
    return places


def _modules(node: fx.Node) -> list[str]:
    """The modules of an operation, starting with the outermost one, which is the model."""
    return [name for name, _ in node.meta.get("nn_module_stack", {}).values()][1:]


def _handed(place_of: dict, leaves: list, last: int) -> list[list[fx.Node]]:
    """The outputs of each piece except the last: tensors that exist by then and that a later piece needs."""
    until = dict.fromkeys(leaves, last)
    for node, place in place_of.items():
        until |= {one: max(until.get(one, -1), place) for one in node.all_input_nodes}
    return [[one for one in place_of if place_of[one] <= number < until.get(one, -1)] for number in range(last)]


def _piece(arriving: list[fx.Node], mine: list[fx.Node], handed: list[fx.Node]) -> fx.Graph:
    """A graph of one argument that applies these operations to its inputs."""
    piece = fx.Graph()
    arrived = piece.placeholder("arrived")
    each = (
        [arrived] if len(arriving) == 1 else [piece.call_function(getitem, (arrived, n)) for n in range(len(arriving))]
    )
    inside = dict(zip(arriving, each))

    def here(node: fx.Node) -> fx.Node:
        """The node of a weight or a size in this piece: each piece that needs one reads it itself."""
        if node not in inside and node.target is torch.ops.aten.sym_size.int:
            inside[node] = piece.call_function(node.target, _read_off(arriving, node, inside))
        elif node not in inside:
            inside[node] = piece.node_copy(node, here)
        return inside[node]

    for node in mine:
        inside[node] = piece.node_copy(node, here)
    made = [here(one) for one in handed]
    piece.output(made[0] if len(made) == 1 else tuple(made))
    return piece


def _read_off(arriving: list[fx.Node], size: fx.Node, inside: dict) -> tuple[fx.Node, int]:
    """An input tensor and its dim whose length is this size."""
    for one in arriving:
        for dim, length in enumerate(one.meta["val"].shape):
            if str(length) == str(size.meta["val"]):
                return inside[one], dim
    raise ValueError("nothing that crosses a cut has as many rows as the batch: cut before another module")


def _bound(piece: fx.Graph, module: nn.Module, graph: fx.GraphModule, title: str) -> nn.Module:
    """A piece with the weights and buffers of a module; constants come from the graph. Errors call it by its title."""
    return fx.GraphModule({name: _named(name, module, graph) for name in _reads(piece)}, piece, title)


def _reads(piece: fx.Graph) -> list[str]:
    return [node.target for node in piece.find_nodes(op="get_attr")]


def _named(name: str, module: nn.Module, graph: fx.GraphModule):
    try:
        return attrgetter(name)(module)
    except AttributeError:
        return attrgetter(name)(graph)
