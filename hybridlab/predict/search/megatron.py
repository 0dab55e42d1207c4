"""Find the best of Megatron's divisions.

Some axes shard the batch, the others heads and hidden units. The search assigns the axes.

Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3. Relatives: `modes.tensor_parallel`; notebooks 30 and 40.
"""

import itertools

from hybridlab.core.what.operators import shared
from hybridlab.predict.search.data_parallel import BATCH
from hybridlab.predict.search.found import Found, fastest
from hybridlab.predict.search.problem import Problem

INSIDE = "HF"  # heads, hidden units


def megatron(problem: Problem) -> Found:
    """The fastest of Megatron's tables {B: some axes, H: the others, F: the others}.

    raises  ValueError if the program has neither heads nor hidden units, or if no legal division fits
    """
    graph, mesh, strategies = problem.graph, problem.mesh, []
    inside = [dim for dim in INSIDE if dim in graph.dims]
    if not inside:
        raise ValueError("megatron: the program has no dimension H or F to shard: use another search")
    for kinds in itertools.product((True, False), repeat=len(mesh.axes)):
        data, others = ("+".join(a for a, is_data in zip(mesh.axes, kinds) if is_data == which) for which in (1, 0))
        rules = ({BATCH: data} if data else {}) | (dict.fromkeys(inside, others) if others else {})
        try:
            strategies.append(shared(graph, rules, mesh))
        except ValueError:
            continue  # a length that these axes do not divide
    return fastest("megatron", problem, strategies)
