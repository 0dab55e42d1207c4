"""Operators with named dims, and the two ways to shard them over a mesh.

An operator is a signature, like that of an einsum: `Operator("up", "BTD,FD->BTF", ("x", "A"))` computes the value "up"
from the values x and A. A `Graph` is a list of operators in the order of execution, with the lengths of all dims.

    rules     {dim: axis}                      one table for the whole program, as in Mesh-TensorFlow
    strategy  {operator: (dim or "", …)}       for each operator and each axis of the mesh, the dim that the axis cuts

`shared` turns rules into a strategy: in every operator, an axis cuts the dim to which a rule assigns it, if there is
one. A strategy may also be written or searched operator by operator (`choices`).

Some operators, such as a convolution or a pooling, *look* beyond their own positions. They are sharded by their output.
Their input is sharded in the same way, and a halo is added to it.

As in Mesh-TensorFlow, two things are illegal: an axis that cuts two dims of one tensor, and a length that is not
divisible. (Mesh-TensorFlow also rejects a dim that two axes cut, "x+y"; here the two axes act as one, as in
`core.where.rules`.) Some operators need a full dim (`whole`): a norm needs all features, a softmax all positions that
it sums over.

Source: Shazeer et al. 2018, *Mesh-TensorFlow*, arXiv:1811.02084, section 3. Relatives: `core.where.rules`, the same
tables for parameters; `core.where.states`, the resulting layout of each tensor; `core.where.spans`, the inputs that
outputs see; `predict.bytes.arrows`, the messages needed; `modes.products.layouts`, which sends them.
"""

import itertools
import random
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules
from hybridlab.core.where.spans import Look
from hybridlab.core.where.states import State, used
from hybridlab.doors import each_is, guarded

Choice = tuple[str, ...]
Strategy = dict[str, Choice]


class Need(NamedTuple):
    """The layout in which an operator needs an operand: its dims under the operator's names, its state, and its sharded
    dims that need a halo.
    """

    dims: str
    state: State
    looks: tuple[Look, ...] = ()


@guarded()
class Operator(NamedTuple):
    """One operator; the value that it computes has the same name.

    signature  the dims of every operand and of the result, a letter each;  takes  the operands, by name
    does       "einsum", or another operation of the executor;  whole  dims that no axis may shard
    looks      the dims along which outputs see more than their own position

    >>> up = Operator("up", "BTD,FD->BTF", ("x", "A"))
    >>> up.operands, up.result, up.dims
    (('BTD', 'FD'), 'BTF', 'BTDF')
    """

    name: str
    signature: str
    takes: tuple[str, ...]
    does: str = "einsum"
    whole: str = ""
    looks: tuple[Look, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(self.signature.split("->")[0].split(","))

    @property
    def result(self) -> str:
        return self.signature.split("->")[1]

    @property
    def dims(self) -> str:
        """All dims of the operator, each once; a dim with a window (as in a convolution) is listed under its name in
        the output.

        >>> from hybridlab.core.where.spans import Sight
        >>> Operator("pool", "BY->BP", ("x",), "pool", looks=(Look("Y", "P", Sight(2, stride=2)),)).dims
        'BP'
        """
        seen = {look.of for look in self.looks} - {look.made for look in self.looks}
        return "".join(dict.fromkeys(letter for letter in self.signature if letter.isalpha() and letter not in seen))

    def needs(self, choice: Choice) -> list[Need]:
        """The layout in which the operator needs each operand; `choice` gives the dim that each axis cuts, or "".

        >>> Operator("up", "BTD,FD->BTF", ("x", "A")).needs(("F",))
        [Need(dims='BTD', state=('R',), looks=()), Need(dims='FD', state=('V:F',), looks=())]
        """
        of = {look.made: look.of for look in self.looks}
        asked = tuple(of.get(dim, dim) for dim in choice)
        on = tuple(look for look in self.looks if look.made in choice)
        return [Need(dims, used(dims, asked), tuple(l for l in on if l.of in dims)) for dims in self.operands]


@guarded(operators=each_is(Operator, "give operators"))
class Graph(NamedTuple):
    """Operators in the order of execution; the result of the last one is the graph's result.

    sizes  {dim: its length};  given  {weight or input: its dims}
    learns  the given values whose gradient is needed
    held    given values, or the result, that every rank holds in full; all others are cut in the way that they are used
            or made
    """

    operators: tuple[Operator, ...]
    sizes: dict[str, int]
    given: dict[str, str]
    learns: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()

    @property
    def result(self) -> Operator:
        return self.operators[-1]

    @property
    def dims(self) -> str:
        """All dims, in the order in which they are first named."""
        letters = (letter for operator in self.operators for letter in operator.signature if letter.isalpha())
        return "".join(dict.fromkeys(letters))

    @property
    def learning(self) -> frozenset[str]:
        """The values whose gradients are needed: the given values that are trained, and all values computed from
        them."""
        found = set(self.learns)
        for operator in self.operators:
            if found & set(operator.takes):
                found.add(operator.name)
        return frozenset(found)

    def lengths(self, dims: str) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in dims)


# --- one table of rules -------------------------------------------------------------------------------------------


def shared(graph: Graph, rules: Rules, mesh: Mesh) -> Strategy:
    """The strategy that one table of rules gives.

    raises  ValueError if the table is illegal, with the names of the rule and the tensor

    >>> mlp = Graph((Operator("up", "BD,FD->BF", ("x", "A")),), dict(B=4, D=4, F=8), dict(x="BD", A="FD"))
    >>> shared(mlp, {"B": "rows", "F": "columns"}, Mesh(rows=2, columns=2))
    {'up': ('B', 'F')}
    >>> shared(mlp, {"D": "rows", "F": "rows"}, Mesh(rows=2))
    Traceback (most recent call last):
        ...
    ValueError: rows would cut A (FD) twice, by D and by F: leave out one of the two rules
    """
    _refuse_rules(graph, rules, mesh)
    cutters = {axis: [dim for dim, axes in rules.items() if axis in axes.split("+")] for axis in mesh.axes}
    choice = lambda operator: tuple(next((d for d in cutters[axis] if d in operator.dims), "") for axis in mesh.axes)
    strategy = {operator.name: choice(operator) for operator in graph.operators}
    refuse(graph, strategy, mesh)
    return strategy


def every_rules(graph: Graph, mesh: Mesh) -> list[Rules]:
    """All legal tables of rules for a graph on a mesh; the first one shards nothing.

    >>> mlp = Graph((Operator("up", "BD,FD->BF", ("x", "A")),), dict(B=4, D=4, F=8), dict(x="BD", A="FD"))
    >>> every_rules(mlp, Mesh(x=2))
    [{}, {'B': 'x'}, {'D': 'x'}, {'F': 'x'}]
    """
    together = [dims for dims in _subsets(graph.dims) if not any(_both(dims, one.dims) for one in graph.operators)]
    found = []
    for each in itertools.product(together, repeat=len(mesh.axes)):
        cutters = {dim: [axis for axis, dims in zip(mesh.axes, each) if dim in dims] for dim in graph.dims}
        found.append({dim: "+".join(axes) for dim, axes in cutters.items() if axes})
    return [rules for rules in found if _is_legal(graph, rules, mesh)]


def _subsets(dims) -> Iterator[str]:
    for count in range(len(dims) + 1):
        yield from map("".join, itertools.combinations(dims, count))


def _both(dims, others) -> bool:
    """Whether two of the dims are among the others: then one axis cannot cut them."""
    return len(set(dims) & set(others)) > 1


def _is_legal(graph, rules, mesh) -> bool:
    try:
        shared(graph, rules, mesh)
    except ValueError:
        return False
    return True


def _refuse_rules(graph, rules, mesh):
    for dim, axes in rules.items():
        named = axes.split("+")
        if dim not in graph.dims:
            raise ValueError(f"no tensor has a dim {dim}: the dims of this program are {', '.join(graph.dims)}")
        if strange := [axis for axis in named if axis not in mesh.axes]:
            raise ValueError(f"{dim} cannot be cut along {strange[0]}: the axes of {mesh} are {', '.join(mesh.axes)}")
        if named != [axis for axis in mesh.axes if axis in named]:
            raise ValueError(f"{dim} is sharded along {axes}: name each axis once, in the order of {mesh}")
    for axis, (name, dims) in itertools.product(mesh.axes, _tensors(graph)):
        twice = [dim for dim in dims if axis in rules.get(dim, "").split("+")]
        if len(twice) > 1:
            raise ValueError(
                f"{axis} would cut {name} ({dims}) twice, by {' and by '.join(sorted(twice))}: leave out one of the "
                "two rules"
            )


def _tensors(graph) -> Iterator[tuple[str, str]]:
    """(name, dims) of all inputs, results and operators. An operator, together with its operands, may have more dims
    than each of its tensors.
    """
    yield from graph.given.items()
    for operator in graph.operators:
        yield operator.name, operator.result
    for operator in graph.operators:
        yield f"the work of {operator.name}", operator.dims


# --- operator by operator -----------------------------------------------------------------------------------------


def choices(operator: Operator, sizes: dict[str, int], mesh: Mesh) -> list[Choice]:
    """Every choice for an operator: for each axis of the mesh the dim that it cuts, or "".

    >>> choices(Operator("norm", "BD->BD", ("x",), "norm", whole="D"), dict(B=4, D=8), Mesh(x=2, y=2))
    [('', ''), ('', 'B'), ('B', ''), ('B', 'B')]
    """
    every = itertools.product(["", *operator.dims], repeat=len(mesh.axes))
    return [one for one in every if not _wrong(operator, one, sizes, mesh)]


def drawn(graph: Graph, mesh: Mesh, count: int, seed: int = 0) -> list[Strategy]:
    """Random legal strategies: each operator's choice is drawn separately; the same seed gives the same strategies.

    >>> mlp = Graph((Operator("up", "BD,FD->BF", ("x", "A")),), dict(B=4, D=4, F=8), dict(x="BD", A="FD"))
    >>> [strategy["up"] for strategy in drawn(mlp, Mesh(x=2, y=2), 3)]
    [('F', ''), ('F', 'B'), ('', 'B')]
    """
    draw = random.Random(seed)
    table = {operator.name: choices(operator, graph.sizes, mesh) for operator in graph.operators}
    return [{name: draw.choice(its) for name, its in table.items()} for _ in range(count)]


def refuse(graph: Graph, strategy: Strategy, mesh: Mesh) -> None:
    """Check that a strategy is legal.

    raises  ValueError that names the operator

    >>> alone = Graph((Operator("norm", "BD->BD", ("x",), "norm", whole="D"),), dict(B=4, D=8), dict(x="BD"))
    >>> refuse(alone, {"norm": ("D",)}, Mesh(x=2))
    Traceback (most recent call last):
        ...
    ValueError: norm needs all of D on every rank: do not shard D along x
    """
    for operator in graph.operators:
        if operator.name not in strategy:
            raise ValueError(f"the strategy lacks {operator.name}: give it one dimension, or '', for each axis")
        if told := _wrong(operator, strategy[operator.name], graph.sizes, mesh):
            raise ValueError(told)


def _wrong(operator, choice, sizes, mesh) -> str:
    """The error in a choice, in one sentence; "" if there is none."""
    if len(choice) != len(mesh.axes):
        return f"{operator.name} has {len(choice)} choices, but {mesh} has {len(mesh.axes)} axes: give one for each"
    made = {look.of: look.made for look in operator.looks}
    for axis, dim in zip(mesh.axes, choice):
        if made.get(dim, dim) != dim:
            return f"{operator.name} is sharded by its result: let {axis} shard {made[dim]} instead of {dim}"
        if dim and dim not in operator.dims:
            return (
                f"{operator.name} has no dimension {dim} to shard along {axis}: choose from {', '.join(operator.dims)}"
            )
        if dim and dim in operator.whole:
            return f"{operator.name} needs all of {dim} on every rank: do not shard {dim} along {axis}"
    for dim in sorted(set(choice) - {""}):
        ways = ways_of(choice, mesh, dim)
        for one in dict.fromkeys((dim, *(look.of for look in operator.looks if look.made == dim))):
            if sizes[one] % ways:
                told = f"{operator.name} cannot shard {one}={sizes[one]} over {ways} ranks"
                return f"{told}: give a multiple of {ways}"
    return ""


def ways_of(choice: Choice, mesh: Mesh, dim: str) -> int:
    """The number of ranks over which a choice cuts a dim.

    >>> ways_of(("F", "B", "F"), Mesh(x=2, y=2, z=3), "F")
    6
    """
    return prod(mesh[axis] for axis, one in zip(mesh.axes, choice) if one == dim)
