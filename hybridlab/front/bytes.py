"""Closed formulas for bytes: model states, collectives, tensor parallelism, convolutions, experts, matmuls."""

from hybridlab.predict.bytes.collectives import Cost, Link, cost, crossover, hierarchical
from hybridlab.predict.bytes.convolution import Conv
from hybridlab.predict.bytes.experts import popular
from hybridlab.predict.bytes.matmul import lower_bound, moved, ranked
from hybridlab.predict.bytes.memory import MIXED, SINGLE, Widths, model_states
from hybridlab.predict.bytes.traffic import tensor

__all__ = [
    "Conv",
    "Cost",
    "Link",
    "MIXED",
    "SINGLE",
    "Widths",
    "cost",
    "crossover",
    "hierarchical",
    "lower_bound",
    "model_states",
    "moved",
    "popular",
    "ranked",
    "tensor",
]
