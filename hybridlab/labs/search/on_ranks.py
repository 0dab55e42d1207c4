"""Notebook 43, real ranks: pieces and links are measured, a search uses these times, and its strategies are run."""

from hybridlab.core.what.operators import Graph, Strategy
from hybridlab.labs.rows import Table, table
from hybridlab.predict.search.problem import Problem

GAP = 1e-12


def here(pool, graph: Graph, rounds: int = 3) -> Problem:
    """The problem of a graph on the ranks of a pool, with the seconds that pieces and collectives take there."""
    from hybridlab.measuring.strategies import timed  # here: torch is not needed to ask an exercise

    return Problem(graph, pool.mesh, timed(pool, graph, rounds=rounds).profile)


def measured(pool, problem: Problem, strategies: dict[str, Strategy], rounds: int = 15) -> dict:
    """{name: (predicted, [seconds of each step])}, for `labs.machines`."""
    from hybridlab.measuring.strategies import steps

    taken = steps(pool, problem.graph, list(strategies.values()), rounds)
    return {name: (problem.seconds(one), took) for (name, one), took in zip(strategies.items(), taken)}


def once(strategies: dict[str, Strategy]) -> dict[str, Strategy]:
    """Each strategy once, under its first name.

    >>> list(once({"by hand": {"up": ("B",)}, "chain": {"up": ("F",)}, "walk": {"up": ("F",)}}))
    ['by hand', 'chain']
    """
    kept = {}
    for name, one in strategies.items():
        if one not in kept.values():
            kept[name] = one
    return kept


def proved(pool, graph: Graph, strategies: dict[str, Strategy], steps: int = 3) -> Table:
    """Some steps of SGD under each strategy, compared with one device, and the ledgers with the derived messages."""
    from hybridlab.modes.products import layout_proof

    rows = []
    for name, homes in zip(strategies, layout_proof.tried(pool, graph, list(strategies.values()), steps)):
        gap = max(home.gap for home in homes)
        equal = "equal" if gap < GAP else f"off by {gap:.1e}"
        ledgers = "as derived" if not any(home.strange for home in homes) else "other messages"
        rows.append((name, equal, ledgers))
    return table(f"strategy | {steps} steps, compared with one device | ledgers", rows)
