"""Notebook 43, tables: the choices of each operator, the cost of a strategy, and the results of the searches."""

from hybridlab.core.what.operators import Strategy
from hybridlab.labs.rows import Table, table
from hybridlab.predict.search.chain import chain
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.elimination import elimination
from hybridlab.predict.search.exhaustive import exhaustive
from hybridlab.predict.search.found import Found
from hybridlab.predict.search.mcmc import mcmc
from hybridlab.predict.search.megatron import megatron
from hybridlab.predict.search.one_rule import one_rule
from hybridlab.predict.search.problem import Problem

SEARCHES = {
    "data parallel": data_parallel, "megatron": megatron, "one table of rules": one_rule, "exhaustive": exhaustive,
    "chain": chain, "elimination": elimination, "mcmc": mcmc,
}  # fmt: skip
WHOLE = "–"


def choices(problem: Problem) -> Table:
    """The dims that each operator may cut, along one axis or along all axes together."""
    rows = [(one.name, one.signature, _written(problem.choices[one.name]), len(problem.choices[one.name]))
            for one in problem.graph.operators]  # fmt: skip
    return table("operator | dims | may be cut | choices", rows)


def _written(its) -> str:
    dims = dict.fromkeys(dim or WHOLE for one in its for dim in one)
    return " ".join(dims)


def parts(problem: Problem, strategy: Strategy) -> Table:
    """A step, operator by operator: work, messages that it waits for, all-reduces of gradients; in ms."""
    rows, found = [], problem.parts(strategy)
    for part in found:
        work, waits = part.forward + part.backward, part.there + part.back
        rows.append((part.operator, written(strategy[part.operator]), *map(ms, (work, waits, part.sums))))
    work = sum(part.forward + part.backward for part in found)
    waits, sums = sum(part.there + part.back for part in found), sum(part.sums for part in found)
    rows.append(("together", "", ms(work), ms(waits), f"{ms(sums)}, in all {ms(work + waits + sums)}"))
    return table("operator | cuts | work | its messages | sums of gradients", rows)


def rivals(problem: Problem, *names: str) -> Table:
    """The results of searches: seconds of a step, and the strategy."""
    return searched({name: SEARCHES[name](problem) for name in names})


def searched(found: dict[str, Found]) -> Table:
    """The results of searches, and the number of costs that each search computed."""
    heads = "search | a step | costs evaluated | strategy"
    return table(heads, [(name, ms(one.seconds), one.asked, told(one.strategy)) for name, one in found.items()])


def steps_apart(problem: Problem, start: Strategy, end: Strategy, order: list[str]) -> Table:
    """The step times on the way from one strategy to another, changing one operator at a time."""
    here, rows = dict(start), [("none", ms(problem.seconds(start)))]
    for name in order:
        here[name] = end[name]
        rows.append((f"{name}: {written(start[name])} → {written(end[name])}", ms(problem.seconds(here))))
    return table("changed | a step", rows)


def told(strategy: Strategy) -> str:
    """
    >>> told({"up": ("B", "F"), "loss": ("", "")})
    'B F, – –'
    """
    return ", ".join(map(written, strategy.values()))


def written(choice) -> str:
    return " ".join(dim or WHOLE for dim in choice)


def ms(seconds: float) -> str:
    """
    >>> ms(0.004761)
    '4.761 ms'
    >>> ms(-1e-20)
    '0.000 ms'
    """
    return f"{round(1e3 * seconds, 3) + 0.0:.3f} ms"
