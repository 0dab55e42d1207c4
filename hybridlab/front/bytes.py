"""Closed formulas for bytes: model states, collectives, tensor parallelism, convolutions, experts, copies of experts,
matmuls."""

from hybridlab.doors import AMOUNT, COUNT, FEW, POSITIVE, both, door, doors, no_list, several, span
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

COUNTS, AMOUNTS = both(no_list, COUNT), both(no_list, AMOUNT)
cost, hierarchical = doors(cost, hierarchical, ranks=COUNTS, nodes=COUNTS, per_node=COUNTS, size=AMOUNTS)
crossover = door(crossover, ranks=COUNT)
lent = door(lent, loads=AMOUNT, ranks=FEW, each=FEW)
link_needed, sent_per_step = doors(
    link_needed, sent_per_step, parameters=POSITIVE, copies=COUNT, every=COUNT, seconds=POSITIVE, fragments=COUNT,
    delay=AMOUNT, width=COUNT,
)  # fmt: skip
lower_bound, ranked = doors(lower_bound, ranked, sizes=several(3, COUNT), ranks=FEW, held=POSITIVE)
moved = door(moved, sizes=several(3, COUNT), grid=several(3, COUNT))
model_states, tensor = doors(model_states, tensor, sequences=COUNT, ways=COUNT, crossings=AMOUNT)
popular = door(popular, experts=FEW, chosen=FEW, skew=span(0, 8, "give a number from 0 to 8"))
