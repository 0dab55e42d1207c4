"""Find the best legal table of rules for a program: Mesh-TensorFlow's method, and its limits.

Data parallelism and Megatron's division are tables of rules, so the best table is never slower than these two. It is
slower than the best strategy if distant operators prefer different shardings of the same dim.

Source: Shazeer et al. 2018, arXiv:1811.02084, section 3. Relatives: `core.what.operators.every_rules`; notebook 35.
"""

from hybridlab.core.what.operators import every_rules, shared
from hybridlab.predict.search.found import Found, fastest
from hybridlab.predict.search.problem import Problem


def one_rule(problem: Problem) -> Found:
    """The fastest table of rules.

    problem  a graph on a mesh, with a profile

    raises  ValueError if none fits
    """
    tables = every_rules(problem.graph, problem.mesh)
    return fastest("one table of rules", problem, (shared(problem.graph, rules, problem.mesh) for rules in tables))
