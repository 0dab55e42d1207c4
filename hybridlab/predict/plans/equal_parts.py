"""Refuse the experts, the token slices and the further tokens of one plan that its ranks cannot divide.

Relatives: `predict.plans.plan.check_plan`, which asks for the other sizes; `predict.plans.divisions`, rules of ranks.
"""

from typing import TYPE_CHECKING

from hybridlab.core.what.shape import Shape

if TYPE_CHECKING:
    from hybridlab.predict.plans.plan import Plan


def ways(of: int) -> str:
    """The divisors of a number, in words.

    >>> ways(6)
    '1, 2, 3, 6'
    """
    return ", ".join(str(n) for n in range(1, of + 1) if of % n == 0)


def refuse_experts(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError unless ranks have equal numbers of experts."""
    if shape.experts == 1 and (plan.ep > 1 or plan.fold):
        asked = "fold=True" if plan.fold else f"ep = {plan.ep}"
        raise ValueError(
            f"{asked} distributes experts, but this model has none: leave {'fold' if plan.fold else 'ep'} out"
        )
    if plan.fold and plan.t * plan.cp == 1:
        raise ValueError("fold=True has no effect without t or cp: give one of them, or leave fold out")
    if shape.experts % plan.expert_ways:
        axes = "ep·cp·t" if plan.fold else "ep"
        raise ValueError(
            f"{axes} = {plan.expert_ways} must divide the {shape.experts} experts: choose it from {ways(shape.experts)}"
        )


def refuse_slices(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError unless a pipeline has a block in each stage for token slices, and its head at the end."""
    if plan.n > 1 and (plan.p == 1 or plan.spread_head or plan.p * plan.v > shape.layers):
        raise ValueError(
            f"n = {plan.n} slices need several stages, each with a block, and a head on the last one: choose p = 2 or "
            f"more, p·v up to {shape.layers}, and leave spread_head out"
        )


def refuse_further(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError unless the last rank can predict further tokens."""
    if plan.further and (plan.spread_head or plan.n > 1 or plan.further >= shape.context):
        raise ValueError(
            f"further={plan.further} needs full rows, longer than that, and a head on the last stage: leave n and "
            "spread_head out, or further"
        )
