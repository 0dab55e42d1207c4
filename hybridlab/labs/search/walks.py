"""Notebook 43: the number of random walks that find the best strategy or leave a valley, for many seeds and two kinds
of α.
"""

from dataclasses import replace

from hybridlab.labs.rows import Table, table
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.search.chain import chain
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.mcmc import PUBLISHED, mcmc, relative
from hybridlab.predict.search.problem import Problem

SEEDS = 20


def slower(problem: Problem, times: float) -> Problem:
    """The same problem on a machine that is slower by this factor in everything.

    >>> from hybridlab.labs.search.sizes import IMAGES
    >>> round(chain(slower(IMAGES, 100)).seconds / chain(IMAGES).seconds, 6)
    100.0
    """
    rated = problem.profile
    link = Link(times * rated.links.alpha, times * rated.links.beta)
    rates = {"multiply": rated.multiply / times, "memory": rated.memory / times, "launch": times * rated.launch}
    return replace(problem, profile=replace(rated, links=link, **rates))


def rates(problems: dict[str, Problem], budget: int = 300, seeds: int = SEEDS) -> Table:
    """The number of `seeds` walks that find the best strategy, and the fraction of slower proposals that were accepted.

    The last column counts the same walks without returns to the best strategy so far.
    """
    rows = []
    for name, problem in problems.items():
        best, start = chain(problem).seconds, data_parallel(problem).seconds
        for kind, alpha in alphas(start):
            found, free = ([mcmc(problem, budget, seed, alpha, back=back) for seed in range(seeds)]
                           for back in (True, False))  # fmt: skip
            right, alone = (sum(one.seconds <= best * (1 + 1e-9) for one in walks) for walks in (found, free))
            slow = [one.kept for walk in found for one, here in zip(walk.trace[1:], walk.now) if one.seconds > here]
            worst = max(one.seconds for one in found) / best
            kept, far = f"{sum(slow) / len(slow):.0%}", f"{worst:.2f} × the best"
            rows.append((name, kind, kept, f"{right} of {seeds}", far, f"{alone} of {seeds}"))
    return table("machine | α | slower ones kept | found the best | worst walk | found it, never called back", rows)


def leaving(problem: Problem, ways: dict[str, tuple[int, bool, int]]) -> Table:
    """The number of walks that find a better strategy than data parallelism, from which they start.

    ways  {the head of a column: (budget, whether walks return to the best strategy so far, number of walks)}
    """
    start = data_parallel(problem).seconds
    rows = []
    for kind, alpha in alphas(start):
        row = [kind]
        for budget, back, seeds in ways.values():
            found = [mcmc(problem, budget, seed, alpha, back=back).seconds for seed in range(seeds)]
            row.append(f"{sum(one < start * (1 - 1e-9) for one in found)} of {seeds}")
        rows.append(tuple(row))
    return table(" | ".join(["α", *ways]), rows)


def alphas(start: float) -> tuple:
    """The two kinds of α: the published one, and one in units of the step with which a walk begins."""
    return ("1 per ms", PUBLISHED), ("20 per start", relative(start))
