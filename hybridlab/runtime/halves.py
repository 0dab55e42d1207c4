"""The backward of a stage in two halves: first the gradients of its inputs, later those of its weights.

Autograd's graph has two kinds of paths: from the outputs to the inputs, and branches from these paths to a weight. A
*junction* is the node where a branch begins. The input half follows the first kind and saves the gradient at each
junction; the weight half continues from there. No multiplication is repeated or omitted, and sums have the same order
as in a full backward. Junctions that share a weight, such as experts cut from one tensor, continue together. One such
junction may be below another. If their branches meet at a node before they reach the weight, as the queries and keys of
a layer do at its input, the input half goes as far as that node, and the weight's branch begins there. If they meet at
the weight itself, which two layers share, the branch of the upper junction would pass through the lower one too: such a
weight gets its gradient on a separate path from the outputs.

Source: Qi et al. 2023, arXiv:2401.10241 (zero bubble; their B is our I). Relatives: `scheduling.zero_bubble`, the rows
I and W of `core.when.law`, notebook 14.
"""

from collections import Counter
from typing import NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge


class Kept(NamedTuple):
    """The state that the weight half needs for junctions that continue together: the edges, the gradients that reached
    them, and their weights."""

    edges: list
    gradients: list
    weights: list


def input_half(outputs: list, gradients: list, inputs: list) -> tuple[list, list[Kept]]:
    """The gradients of the inputs, and the saved state for `weight_half`. The inputs are leaves that require gradients.

    outputs    of the forward
    gradients  of each output
    inputs     leaves that require gradients

    >>> layer = torch.nn.Linear(2, 1)
    >>> x = torch.ones(1, 2, requires_grad=True)
    >>> (by_x,), kept = input_half([layer(x)], [torch.ones(1, 1)], [x])
    >>> bool((by_x == layer.weight).all()), layer.weight.grad
    (True, None)
    >>> weight_half(kept)
    >>> layer.weight.grad
    tensor([[1., 1.]])
    """
    roots = [get_gradient_edge(output) for output in outputs]
    if not inputs:  # the first stage: the full backward is for the weights
        return [], [Kept(roots, gradients, _weights(root.node for root in roots))]
    junctions, again = _junctions(roots, inputs)
    edges = [edge for into, _ in junctions for edge in into]
    passed = torch.autograd.grad(outputs, [*inputs, *edges], gradients, retain_graph=True, allow_unused=True)
    later = iter(passed[len(inputs) :])
    kept = [_kept(into, [next(later) for _ in into], weights) for into, weights in junctions]
    return list(passed[: len(inputs)]), kept + [Kept(roots, gradients, again)] * bool(again)


def weight_half(kept: list[Kept]):
    """Add the gradients with respect to the weights to their `.grad`.

    kept  the state returned by `input_half`
    """
    for edges, gradients, weights in kept:
        found = torch.autograd.grad(edges, weights, gradients, retain_graph=True, allow_unused=True)
        for weight, gradient in zip(weights, found):
            if gradient is None:
                continue
            if weight.grad is None:
                weight.grad = gradient
            else:
                weight.grad += gradient


def _kept(edges, gradients, weights):
    used = [(edge, gradient) for edge, gradient in zip(edges, gradients) if gradient is not None]
    return Kept([edge for edge, _ in used], [gradient for _, gradient in used], weights)


def _junctions(roots, inputs) -> tuple[list[tuple[list[GradientEdge], list]], list]:
    """[(the gradient edges into junctions that continue together, the weights of their branches)], with the last in the
    model first; and the weights that have a junction below another one.
    """
    order, ends = _upward(root.node for root in roots), {get_gradient_edge(x).node for x in inputs}
    left, into, again = _branches(roots, order, ends)
    if met := _meetings(order, ends, again):
        left, into, again = _branches(roots, order, ends | met)
    edges = lambda nodes: [GradientEdge(node, number) for node in nodes for number in sorted(into[node])]
    return [(edges(nodes), weights) for nodes, weights in _together(left, again, order)], again


def _branches(roots, order, ends) -> tuple[dict, dict, list]:
    """({junction: the weights of its branches}, {node: its outputs that are used}, the weights with junctions in line);
    the input half goes as far as the nodes in `ends`."""
    leads = _reaching(ends, order)
    into = {}  # of every node, the indices of its outputs that are used
    for child, number in (used for node in order for used in node.next_functions if used[0] is not None):
        into.setdefault(child, set()).add(number)
    for root in roots:
        into.setdefault(root.node, set()).add(root.output_nr)
    left = {}  # {junctions: the weights of their branches}
    for node in reversed(order):
        if node in leads:
            weights = _weights(child for child, _ in node.next_functions if child is not None and child not in leads)
        else:
            weights = _weights([node]) if any(node is root.node for root in roots) else []
        left |= {node: weights} if weights else {}
    return left, into, _in_line(left, order)


def _meetings(order, ends, weights) -> set:
    """The nodes, above these weights and not above an end, at which several paths from the outputs meet."""
    those = {id(weight) for weight in weights}
    above = _reaching({node for node in order if id(getattr(node, "variable", None)) in those}, order)
    parents = Counter(child for node in order for child in {child for child, _ in node.next_functions})
    return {node for node in above - _reaching(ends, order) if parents[node] > 1 and node.next_functions}


def _in_line(left, order) -> list:
    """The weights that have a junction below another one."""
    of_weight: dict[int, set] = {}
    for node, weights in left.items():
        for weight in weights:
            of_weight.setdefault(id(weight), set()).add(node)
    every = {id(weight): weight for weights in left.values() for weight in weights}
    return [every[one] for one, nodes in of_weight.items() if len(nodes) > 1 and _one_below(nodes, order)]


def _one_below(nodes, order) -> bool:
    """Whether one of these nodes can be reached from another one."""
    these_or_above = _reaching(nodes, order)
    return any(child in these_or_above for node in nodes for child, _ in node.next_functions)


def _reaching(nodes, order) -> set:
    """These nodes, and those from which one of them can be reached."""
    found = set(nodes)
    for node in order:
        if any(child in found for child, _ in node.next_functions):
            found.add(node)
    return found


def _together(left, without, order) -> list[tuple[list, list]]:
    """(junctions, their weights): junctions with a common weight are merged; the weights in `without` are left out.

    Merged junctions stay apart if one of them is below another: through the upper one, the gradient would reach the
    weights of the lower one a second time.
    """
    groups, leave = [], {id(weight) for weight in without}
    rest = {node: {id(one): one for one in weights if id(one) not in leave} for node, weights in left.items()}
    for node, mine in rest.items():
        same = [group for group in groups if not group[1].keys().isdisjoint(mine)]
        groups = [group for group in groups if group[1].keys().isdisjoint(mine)]
        nodes = [one for others, _ in same for one in others] + [node]
        those = {key: weight for _, others in same for key, weight in others.items()} | mine
        groups += [(nodes, those)] * bool(mine)
    apart = lambda nodes: [([node], rest[node]) for node in nodes]
    parts = (apart(nodes) if _one_below(nodes, order) else [(nodes, those)] for nodes, those in groups)
    return [(nodes, list(those.values())) for part in parts for nodes, those in part]


def _upward(roots) -> list:
    """Every node below the roots, each after all nodes below it."""
    order, seen, stack = [], set(), [(root, False) for root in roots]
    while stack:
        node, below_done = stack.pop()
        if below_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(child, False) for child, _ in node.next_functions if child is not None]
    return order


def _weights(nodes) -> list:
    """The leaves below these nodes, each once."""
    return list({id(node.variable): node.variable for node in _upward(nodes) if hasattr(node, "variable")}.values())
