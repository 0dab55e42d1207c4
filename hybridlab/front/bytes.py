"""Closed formulas for bytes: model states, collectives, tensor parallelism, convolutions, experts, copies of experts,
matmuls."""

from hybridlab.predict.bytes.collectives import Cost, Link, cost, crossover, hierarchical
from hybridlab.predict.bytes.convolution import Conv
from hybridlab.predict.bytes.copied_experts import lent
from hybridlab.predict.bytes.experts import popular
from hybridlab.predict.bytes.local_steps import Rounds, link_needed, sent_per_step
from hybridlab.predict.bytes.matmul import lower_bound, moved, ranked
from hybridlab.predict.bytes.memory import MIXED, SINGLE, Widths, model_states
from hybridlab.predict.bytes.traffic import tensor

__all__ = [
    "Conv",
    "Cost",
    "Link",
    "MIXED",
    "Rounds",
    "SINGLE",
    "Widths",
    "cost",
    "crossover",
    "hierarchical",
    "lent",
    "link_needed",
    "lower_bound",
    "model_states",
    "moved",
    "popular",
    "ranked",
    "sent_per_step",
    "tensor",
]
