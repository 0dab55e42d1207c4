"""Data parallelism as a strategy: every axis shards the batch of every operator that has one.

FlexFlow's search starts here.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 6.2. Relatives: `core.what.operators.shared`; notebook 21.
"""

from hybridlab.core.what.operators import shared
from hybridlab.predict.search.found import Found, fastest
from hybridlab.predict.search.problem import Problem

BATCH = "B"


def data_parallel(problem: Problem) -> Found:
    """The strategy of the one rule {B: all axes}.

    problem  a graph on a mesh, with a profile

    raises  ValueError if the batch is not divisible by the number of ranks, or a rank has not enough memory for a copy

    >>> from hybridlab.core.where.mesh import Mesh
    >>> from hybridlab.core.what.programs import mlp
    >>> from hybridlab.predict.search.profile import Rated
    >>> data_parallel(Problem(mlp(), Mesh(x=2, y=2), Rated())).strategy["up"]
    ('B', 'B')
    """
    strategy = shared(problem.graph, {BATCH: "+".join(problem.mesh.axes)}, problem.mesh)
    return fastest("data parallel", problem, [strategy])
