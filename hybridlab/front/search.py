"""Strategies for a program of operators on a mesh: a problem, and its search methods."""

from hybridlab.doors import AMOUNT, COUNT, POSITIVE, door, doors
from hybridlab.predict.search.chain import chain
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.exhaustive import exhaustive
from hybridlab.predict.search.mcmc import mcmc, relative
from hybridlab.predict.search.one_rule import one_rule
from hybridlab.predict.search.played import played
from hybridlab.predict.search.problem import Problem

__all__ = ["Problem", "chain", "data_parallel", "exhaustive", "mcmc", "one_rule", "played", "relative"]

chain, data_parallel, exhaustive, mcmc, one_rule, played = doors(
    chain, data_parallel, exhaustive, mcmc, one_rule, played, most=COUNT, budget=COUNT, alpha=AMOUNT
)
relative = door(relative, seconds=POSITIVE, times=POSITIVE)
