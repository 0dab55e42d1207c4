"""Wiring: check whether the operators, values, dims and lengths of a graph fit together.

A graph written by hand can be wrong in a few ways, and most of them would still train: an extra operand is ignored, and
a dim with a wrong name gets another length. `misfit` finds them before anything runs.

Relatives: `core.what.operators.refuse`, the same for a strategy.
"""

from hybridlab.core.what.operators import Graph, Operator


def misfit(graph: Graph) -> str:
    """The first mismatch, in one sentence; "" if everything fits.

    >>> alone = Operator("up", "BD,FD->BF", ("x", "A"))
    >>> misfit(Graph((alone,), dict(B=4, D=4, F=8), dict(x="BD", A="FD"), frozenset("A")))
    ''
    >>> misfit(Graph((alone,), dict(B=4, D=4, F=8), dict(x="BD")))
    'up takes A, and nothing makes A before it: give A its dims, or put the operator that makes it first'
    """
    dims = dict(graph.given)
    for missing in (dim for dim in graph.dims if dim not in graph.sizes):
        return f"{missing} has no length: give it one in sizes"
    for operator in graph.operators:
        if told := _of(operator, dims, graph.sizes):
            return told
        dims[operator.name] = operator.result
    for missing in sorted(graph.learns - set(graph.given)):
        return f"{missing} is not given, so it cannot learn: give it its dims, or leave it out of learns"
    for missing in sorted(graph.held - set(graph.given) - {graph.result.name}):
        return f"{missing} is neither given nor the result, so it cannot be held: leave it out of held"
    return ""


def _of(operator: Operator, dims: dict[str, str], sizes: dict[str, int]) -> str:
    """The mismatch in one operator, given the values so far with their dims."""
    name, takes, operands = operator.name, operator.takes, operator.operands
    if len(takes) != len(operands):
        return f"{name} takes {len(takes)} values, and {operator.signature} has {len(operands)} operands: give each one"
    if name in dims:
        return f"there are two values {name}: give one of them another name"
    for value, called in zip(takes, operands):
        if value not in dims:
            return (
                f"{name} takes {value}, and nothing makes {value} before it: give {value} its dims, or put the "
                "operator that makes it first"
            )
        if len(called) != len(dims[value]):
            return f"{name} calls {value} {called}, and its dims are {dims[value]}: give one letter for each dim"
        for its, other in zip(dims[value], called):
            if sizes[its] != sizes[other]:
                return f"{name} calls {its} of {value} {other}, but {its} = {sizes[its]} and {other} = {sizes[other]}"
    for of, made, sight in operator.looks:
        if of not in operands[0] or made not in operator.result:
            return f"{name} looks along {of} and makes {made}: its first operand must have {of}, and its result {made}"
        if sizes[made] != (outputs := sight.outputs(sizes[of])):
            return (
                f"{name} makes {outputs} places of {of} = {sizes[of]}: let {made}, which is {sizes[made]}, be "
                f"{outputs}, or give it other padding"
            )
    return ""
