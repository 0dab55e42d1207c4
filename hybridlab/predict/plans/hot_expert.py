"""Predict the cost of a popular expert: its rank has more tokens than the others, and the others wait.

Relatives: `predict.bytes.experts`, how uneven loads are; `predict.plans.time_of_context_and_experts`; notebook 32.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.machines import machine_of
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.experts import imbalance, popular
from hybridlab.predict.plans.footprint import Footprint, footprint
from hybridlab.predict.plans.performance import Step, step
from hybridlab.predict.plans.plan import Plan, check_plan

SKEWS = (0.0, 0.3, 0.6, 0.9, 1.2)


class Hot(NamedTuple):
    """A plan under one skew of the experts' popularity.

    most  the fraction of all choices for the most popular expert;  load  the load of its rank, over the mean
    """

    skew: float
    most: float
    load: float
    step: Step
    memory: Footprint

    def __str__(self) -> str:
        return (
            f"skew {self.skew:.1f}: {self.most:.0%} of all choices on one expert, {self.load:.2f} times the mean on "
            f"its rank, {self.step.total:.1f} s a step, {self.memory.activations / 1e9:.0f} GB of activations"
        )


def hot(
    model: str | Shape, machine: str | Machine, batch: int, plan: Plan, skews: Iterable[float] = SKEWS
) -> list[Hot]:
    """The same plan for each of several skews.

    More ranks along ep do not help against one hot expert: ep does not divide it, and the mean load falls.

    raises  ValueError when the catalog lacks a name, or the plan is not legal

    >>> from dataclasses import replace
    >>> short = replace(catalog.model("mixtral-8x7b").shape, context=4096)
    >>> for one in hot(short, "h100", 256, Plan(p=4, d=2, v=8, zero=1, ep=8, fused=True), skews=(0, 0.5, 1)): print(one)
    skew 0.0: 12% of all choices on one expert, 1.00 times the mean on its rank, 2.9 s a step, 37 GB of activations
    skew 0.5: 23% of all choices on one expert, 1.83 times the mean on its rank, 4.4 s a step, 59 GB of activations
    skew 1.0: 37% of all choices on one expert, 2.94 times the mean on its rank, 6.5 s a step, 89 GB of activations
    """
    shape = catalog.shape_of(model)
    kind = machine_of(machine)
    return [_under(shape, kind, batch, check_plan(plan, shape, batch)._replace(skew=skew)) for skew in skews]


def _under(shape: Shape, kind: Machine, batch: int, plan: Plan) -> Hot:
    most = popular(shape.experts, shape.chosen, plan.skew)[0] / shape.chosen
    load = float(imbalance(shape.experts, shape.chosen, plan.expert_ways, plan.skew))
    time = Step(*map(float, step(shape, plan, batch, kind)))
    return Hot(plan.skew, most, load, time, Footprint(*map(float, footprint(shape, plan, batch))))
