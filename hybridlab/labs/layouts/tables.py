"""Notebook 35: the consequences of rules or of a strategy, as tables, without running anything.

A *word* is one number of a tensor; the words of a collective are counted as in a ring.
"""

from math import prod

from hybridlab.core.what.operators import Graph, Strategy, shared
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.rules import Rules
from hybridlab.core.where.states import State, cutters
from hybridlab.labs.rows import Table, table
from hybridlab.predict.bytes.arrows import arrows as derived
from hybridlab.predict.bytes.arrows import resting, sent
from hybridlab.predict.time.operators import times
from hybridlab.predict.time.operators import work as works

NAMES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "isend": "message to a neighbour",
    "irecv": "message from a neighbour",
}


def program(graph: Graph) -> Table:
    """The operators of a program, in the order of execution."""
    rows = [(one.name, one.signature, ", ".join(one.takes), one.whole) for one in graph.operators]
    return table("makes | dims | from | needs whole", rows)


def arrows(graph: Graph, layout: Rules | Strategy, mesh: Mesh) -> Table:
    """Every tensor that is resharded, its layout, the layout for its users, and the collectives between them.

    >>> from hybridlab.core.what.programs import mlp
    >>> arrows(mlp(), {"B": "i"}, Mesh(i=2))
    tensor  is  is needed as  forward                 backward                  for
    A       I   R             nothing                 all-reduce i of 64 words  up
    W       I   R             nothing                 all-reduce i of 64 words  down
    loss    P   I             all-reduce i of 1 word  nothing                   the result
    """
    rows = []
    for arrow in derived(graph, strategy_of(graph, layout, mesh), mesh):
        if not arrow.moves and not arrow.halo:
            continue
        told = {False: [], True: []}
        words = lambda count: f"{count:,} word{'s' * (count != 1)}"
        for one in (one for one in arrow.sends(mesh) if one.peer is None):
            told[one.backward].append(f"{NAMES[one.op]} {one.axis} of {words(one.elements)}")
        halo = [(f"halo {'+'.join(one.axes)} of", one) for one in arrow.halo if one.messages]
        told[False] += [f"{name} {words(one.busiest())} at most" for name, one in halo]
        if arrow.learns:
            told[True] = [f"{name} {words(one.busiest(True))} at most" for name, one in halo[::-1]] + told[True]
        there, back = (", then ".join(told[way]) or "nothing" for way in (False, True))
        users = ", ".join(arrow.users) or "the result"
        rows.append((arrow.value, spelled(arrow.before), spelled(arrow.after), there, back, users))
    return table("tensor | is | is needed as | forward | backward | for", rows)


def spelled(state: State) -> str:
    """
    >>> spelled(("V:B", "I"))
    'V:B, I'
    """
    return ", ".join(state)


def strategy_of(graph: Graph, layout: Rules | Strategy, mesh: Mesh) -> Strategy:
    """The strategy of a table of rules; a strategy is returned unchanged."""
    return layout if graph.result.name in layout else shared(graph, layout, mesh)


def compared(graph: Graph, named: dict[str, Rules | Strategy], mesh: Mesh) -> Table:
    """Layouts by name: the words that a rank sends in a step, the weights that it holds, and the number of times that
    work is repeated.

    >>> from hybridlab.core.what.programs import mlp
    >>> compared(mlp(), {"data": {"B": "i"}, "Megatron": {"F": "i"}}, Mesh(i=2))
    layout    rules   words sent by a rank  weights held  work
    data      {B: i}  129                   128           1.00 ×
    Megatron  {F: i}  256                   64            1.06 ×
    """
    rows = []
    for name, layout in named.items():
        strategy = strategy_of(graph, layout, mesh)
        words = sent(derived(graph, strategy, mesh), mesh)
        repeated = times(works(graph, strategy, mesh))
        rules = "operator by operator" if strategy is layout else written(layout)
        rows.append((name, rules, f"{words:,.0f}", held(graph, strategy, mesh), f"{repeated:.2f} ×"))
    return table("layout | rules | words sent by a rank | weights held | work", rows)


def written(rules: Rules) -> str:
    """
    >>> written({"B": "i", "F": "j"}), written({})
    ('{B: i, F: j}', '{}')
    """
    return "{" + ", ".join(f"{dim}: {axes}" for dim, axes in rules.items()) + "}"


def held(graph: Graph, strategy: Strategy, mesh: Mesh) -> int:
    """Numbers of the weights that a rank holds. Weights have no dim B."""
    total = 0
    for name, state in resting(graph, strategy, mesh).items():
        if "B" not in graph.given[name]:
            ways = prod(mesh.length(axes) for axes in cutters(state, mesh).values())
            total += prod(graph.lengths(graph.given[name])) // ways
    return total


def work(graph: Graph, layout: Rules | Strategy, mesh: Mesh) -> Table:
    """FLOPs of every operator: those of a rank, and its part if no work were repeated."""
    found = works(graph, strategy_of(graph, layout, mesh), mesh)
    rows = [(one.operator, f"{one.done:,.0f}", f"{one.share:,.0f}", f"{one.times:g} ×") for one in found]
    total = sum(one.done for one in found), sum(one.share for one in found)
    rows.append(("together", *(f"{one:,.0f}" for one in total), f"{times(found):.2f} ×"))
    return table("operator | flops of a rank | its share | computed", rows)


def refused(graph: Graph, tables: list[Rules], mesh: Mesh) -> Table:
    """Tables of rules, and the reason why each is illegal."""
    rows = []
    for rules in tables:
        try:
            shared(graph, rules, mesh)
            rows.append((written(rules), "legal"))
        except ValueError as error:
            rows.append((written(rules), str(error)))
    return table("rules | verdict", rows)
