"""Scale a plan down until its ranks fit on one machine, with a small model of the same kind.

Every axis that the plan uses has two ranks; with usp, cp has four, in groups of two. All choices stay: recomputation,
ZeRO, the method of attention. So the same program runs, with smaller sizes. Its time says nothing about the time of the
plan.

See also `predict.plans.jobs` (turns it into a job), the command line's `plan --run` and notebook 50.
"""

from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.context import ULYSSES
from hybridlab.predict.plans.jobs import AXES, job_of_plan
from hybridlab.predict.plans.plan import Plan, check_plan

HEAD, POSITIONS, VOCABULARY = 4, 4, 256  # width of a head; positions on a rank; tokens, one for each byte


class Scaled(NamedTuple):
    """A small plan, with the model and the batch that it divides."""

    plan: Plan
    shape: Shape
    batch: int

    def job(self) -> dict:
        """The arguments of `check`, `train`, `run` and `dry_run` for the small plan."""
        return job_of_plan(self.plan, self.shape, self.batch)


def scaled(plan: Plan, shape: Shape) -> Scaled:
    """A plan with two ranks along every axis that it uses.

    It has two chunks or slices if the plan has several, two experts on a rank if the plan has more, one plain block,
    and two microbatches for each stage. If stages may be unequal, one stage has an extra block. With z, there are four
    copies, and groups of two shard the weights; with secondary, four copies shard them, and groups of two have the
    second copy. Local steps exchange their updates after every second step, or after each, in two fragments if the plan
    has several; one step hides an exchange.

    >>> from hybridlab.core.what.catalog import model
    >>> one = scaled(Plan(p=16, t=8, d=8, zero=2, sequence=True, uneven=True), model("llama3-405b").shape)
    >>> print(one.plan, one.shape.layers, one.shape.heads, one.shape.key_heads, one.batch)
    p=2 t=2 d=2 b=1, uneven stages, ZeRO 2, sequence parallel 3 4 2 8
    """
    axes = {field: min(getattr(plan, field), 2) for field in AXES.values()}
    if plan.z or plan.secondary:
        axes["d"] = 4
    if plan.ulysses > 1:
        axes["cp"] = 4
    fields = ("v", "z", "n", "ulysses", "secondary", "sync_every", "fragments")
    fewer = {field: min(getattr(plan, field), 2) for field in fields} | {"sync_delay": min(plan.sync_delay, 1)}
    small = plan._replace(**axes, b=1, **fewer)
    keys = small.t * (small.cp if plan.attend == ULYSSES else small.ulysses)
    grouped = shape.heads and shape.key_heads < shape.heads
    heads = keys * 2 if shape.heads else 0
    one = replace(
        shape,
        layers=max(small.p * small.v + bool(plan.uneven), 1 + bool(shape.plain)),
        heads=heads,
        kv_heads=keys if grouped else None,
        width=HEAD * (heads or 4),
        inner=None if shape.inner is None else 2 * HEAD * (heads or 4),
        context=POSITIONS * small.cp * small.t * small.n,
        vocabulary=VOCABULARY,
        experts=2 * small.expert_ways if shape.experts > 1 else 1,
        chosen=min(shape.chosen, 2),
        plain=(0,) if shape.plain else (),
        plain_inner=shape.plain and 3 * HEAD * (heads or 4) or None,
        documents=(),
        **({"latent": 2 * HEAD, "rotary": 2} if shape.latent else {}),
        **({"query_latent": 3 * HEAD} if shape.query_latent else {}),
    )
    batch = 2 * small.p * small.d * small.ep
    return Scaled(check_plan(small, one, batch), one, batch)
