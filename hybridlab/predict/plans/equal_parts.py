"""Refuse the stages, experts, token slices, further tokens and fragments of one plan that its ranks cannot divide.

Relatives: `predict.plans.plan.check_plan`, which checks the other sizes; `predict.plans.divisions`, rules of ranks.
"""

import math
from typing import TYPE_CHECKING

from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.partition import most_stages

if TYPE_CHECKING:
    from hybridlab.predict.plans.plan import Plan


def ways(of: int) -> str:
    """The divisors of a number, in words.

    >>> ways(6)
    '1, 2, 3, 6'
    """
    return ", ".join(str(n) for n in range(1, of + 1) if of % n == 0)


def choice(whole: int, **factors: int) -> str:
    """The first factor that can be changed alone so that all factors together divide a number, and its valid values.

    >>> choice(96, d=3, b=4), choice(96, d=1, b=7)
    ('d from 1, 2, 3, 4, 6, 8, 12, 24', 'b from 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96')
    """
    for name in factors:
        others = math.prod(size for other, size in factors.items() if other != name)
        if whole % others == 0:
            return f"{name} from {ways(whole // others)}"
    return f"each of {', '.join(factors)} smaller"


def refuse_stages(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError unless stages have equal numbers of blocks, or may be unequal, and all have pieces of the head
    or none."""
    if plan.p * plan.v > most_stages(shape.layers):
        raise ValueError(
            f"p·v = {plan.p * plan.v} stages are too many for a model of {shape.layers} layers, an embedding and a "
            f"head: choose p·v up to {most_stages(shape.layers)}"
        )
    if shape.layers % (plan.p * plan.v) and not plan.uneven:
        raise ValueError(
            f"p·v = {plan.p * plan.v} must divide the model's {shape.layers} layers: "
            f"choose {choice(shape.layers, p=plan.p, v=plan.v)}, or allow unequal stages with uneven=True"
        )
    if plan.spread_head and (plan.p == 1 or plan.v > 1 or plan.sequence):
        raise ValueError(
            "spread_head needs several stages, one on each rank, and all positions there: choose p=2 or more, v=1 and "
            "sequence=False, or leave it out"
        )


def refuse_experts(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError unless ranks have equal numbers of experts."""
    if shape.experts == 1 and (plan.ep > 1 or plan.fold):
        asked = "fold=True" if plan.fold else f"ep = {plan.ep}"
        raise ValueError(
            f"{asked} distributes experts, but this model has none: leave out {'fold' if plan.fold else 'ep'}"
        )
    if plan.fold and plan.t * plan.cp == 1:
        raise ValueError("fold=True has no effect without t or cp: give one of them, or leave out fold")
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
            f"more, p·v up to {shape.layers}, and leave out spread_head"
        )
    refuse_empty_slices(plan.n, shape)


def refuse_empty_slices(n: int, shape: Shape) -> None:
    """Raise ValueError for more token slices than a row has tokens."""
    if n > shape.context:
        raise ValueError(f"n = {n} slices are too many: a row has {shape.context} tokens, so choose n up to that")


def refuse_further(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError unless the last rank can predict further tokens."""
    if plan.further and (plan.spread_head or plan.n > 1 or plan.further >= shape.context):
        raise ValueError(
            f"further={plan.further} needs full rows of more tokens than that, and a head on the last stage: leave out "
            "n and spread_head, or further"
        )


def refuse_rounds(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError if fields about exchanges are given but copies do not train alone, or if these fields do not fit
    the model.
    """
    if plan.sync_every:
        plan.rounds.refuse(layers_of(shape, plan))
        return
    for name in ("fragments", "sync_delay"):
        if (value := getattr(plan, name)) != plan._field_defaults[name]:
            raise ValueError(f"{name}={value} has no effect without sums=local: give both, or leave out {name}")


def refuse_overlap(plan: "Plan") -> None:
    """Raise ValueError if messages along tp cannot be sent in pieces."""
    if plan.overlap and (plan.t == 1 or not plan.sequence):
        raise ValueError("overlap=True has no effect without sequence: give both, or leave out overlap")
    refuse_lone_directions(plan)
    if plan.overlap:
        refuse_partial_sums(plan.x)


def refuse_without_effect(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError for a given field that changes nothing without another field, or with this model."""
    refuse_rounds(plan, shape)
    refuse_lone_directions(plan)
    if plan.skew and shape.experts == 1:
        raise ValueError(f"skew={plan.skew} is invalid: this model has no experts. Leave skew out.")


def refuse_idle(plan: "Plan", shape: Shape) -> None:
    """Raise ValueError for a field of a complete plan that changes nothing without another, or with this model."""
    refuse_without_effect(plan, shape)
    _refuse_lone_copies(plan)
    needs = (
        ("attend", plan.attend, "cp", plan.cp > 1),
        ("zigzag", plan.zigzag, "cp", plan.cp > 1),
        ("dispatch", plan.dispatch, "ep", plan.ep > 1),
        ("sequence", plan.sequence, "t", plan.t > 1),
        ("scatter", plan.scatter, "p and t", plan.p > 1 and plan.t > 1),
        ("sync_every", plan.sync_every, "d", plan.d > 1),
        ("redone", plan.redone != 1, "recompute", plan.recompute > 0),
    )
    for name, given, other, there in needs:
        if given and not there:
            raise ValueError(f"{name} has no effect without {other}: give {other} too, or leave out {name}")
    if plan.uneven and not shape.layers % (plan.p * plan.v):
        raise ValueError(
            f"uneven=True has no effect: p·v = {plan.p * plan.v} divides the {shape.layers} layers; leave it out"
        )


def _refuse_lone_copies(plan: "Plan") -> None:
    """Raise ValueError unless there are copies among which the states are sharded, in the words of a plan."""
    if plan.zero and plan.copies[1] == 1 and not plan.sync_every:
        raise ValueError(f"zero={plan.zero} shards over copies, but d=1 is only one: give d=2 or more")
    if plan.two_levels and not 1 < plan.z < plan.copies[1]:
        raise ValueError(
            "two_levels=True needs several groups of several owners: give z=2 or more, and d a larger multiple of z, "
            "or leave out two_levels"
        )


def refuse_lone_directions(plan: "Plan") -> None:
    """Raise ValueError for directions of pieces if nothing is sent in pieces."""
    if plan.directions != 1 and not plan.overlap:
        raise ValueError(
            f"directions={plan.directions} has no effect without overlap: give both, or leave out directions"
        )
    refuse_directions(plan.directions)


def refuse_directions(directions: int) -> None:
    """Raise ValueError for a number of directions that a ring does not have."""
    if directions not in (1, 2):
        raise ValueError(f"directions={directions} is not possible, because a ring has two: give 1 or 2")


def refuse_partial_sums(x: int) -> None:
    """Raise ValueError if pieces of a matmul are not complete, because an axis shards its inputs too."""
    if x > 1:
        raise ValueError(
            f"x={x} shards each matrix a second time, so a piece of a matmul is a partial sum: leave out overlap or x"
        )


def layers_of(shape: Shape, plan: "Plan") -> int:
    """The layers of a job: the embedding, the blocks, each in one or more parts, and the head, or its norm and pieces.

    >>> from hybridlab.predict.plans.plan import Plan
    >>> layers_of(Shape(layers=4), Plan()), layers_of(Shape(layers=4), Plan(p=2, spread_head=True))
    (6, 8)
    """
    return shape.pieces * shape.layers + 2 + plan.spread_head * plan.p
