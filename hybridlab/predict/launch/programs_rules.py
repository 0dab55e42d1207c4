"""Programs' rules: the reasons why Megatron-LM or torchtitan cannot run a legal plan. `lines` applies them first."""

from collections.abc import Callable
from typing import NamedTuple

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.context import USP
from hybridlab.predict.bytes.experts import ALL_GATHER
from hybridlab.predict.plans.plan import Plan


class Rule(NamedTuple):
    """A reason why a program cannot run a legal plan.

    broken  a test of a plan and a model
    why     the sentence that gives the reason, without the program's name at its start
    """

    broken: Callable[[Plan, Shape], bool]
    why: str


TRANSFORMERS = Rule(lambda plan, shape: not shape.heads, "starts only models with attention: give a shape with heads")
SPREAD = Rule(
    lambda plan, shape: bool(plan.spread_head), "has no pieces of the head on all stages: leave out spread_head"
)
SECOND = Rule(lambda plan, shape: plan.secondary > 0, "keeps no second copy of the weights near: leave out secondary")
# thunlp/Seq1F1B, a version of Megatron-LM of its authors, has them (--pipe-sp-splits).
SLICED = Rule(lambda plan, shape: plan.n > 1, "has no token slices: leave out n, or choose Seq1F1B's own Megatron-LM")
LOCAL = Rule(lambda plan, shape: plan.sync_every > 0, "has no local steps: leave out sums and sync_every")
# torchtitan's docs/torchft.md: one instance for each copy
APART = Rule(
    lambda plan, shape: plan.sync_every > 0,
    "takes local steps through torchft, with a command for each copy: leave out sums and sync_every",
)
# Megatron-Core 0.16, megatron/training/arguments.py and core/transformer; up to 0.15 t may not exceed the KV heads.
OF_MEGATRON = (
    TRANSFORMERS,
    SPREAD,
    Rule(lambda plan, shape: plan.x > 1, "does not support the axis x: plan without grids"),
    Rule(
        lambda plan, shape: plan.z > 0 and plan.ep > 1,
        "lets all ranks along ep share weights, not so many owners: leave out z",
    ),
    SECOND,
    SLICED,
    LOCAL,
    Rule(
        lambda plan, shape: bool(plan.offload) or plan.redone not in (0.0, 1.0),
        "has no flag for offloaded activations, or for recomputing only some layers: leave them out",
    ),
    Rule(
        lambda plan, shape: plan.cp > 1 and shape.context % (2 * plan.cp) > 0,
        "splits a sequence into 2·cp pieces: choose a context that is a multiple of 2·cp",
    ),
    Rule(
        lambda plan, shape: bool(plan.sequence) and shape.context % (plan.t * plan.cp) > 0,
        "splits a sequence into t·cp pieces with sequence parallelism: choose a context that is a multiple of t·cp",
    ),
    Rule(
        lambda plan, shape: shape.experts > 1 and plan.t > 1 and not plan.sequence,
        "combines experts and tensor parallelism only with sequence parallelism: give sequence=True",
    ),
)
# torchtitan, commit 0119de1: distributed/parallel_dims.py (`_validate`, seq_len_divisor, fsdp_enabled), where the ranks
# along ep are some of those that share weights, and all along cp; pytorch/torchtitan#2577 for KV heads.
OF_TORCHTITAN = (
    TRANSFORMERS,
    SPREAD,
    SLICED,
    APART,
    Rule(
        lambda plan, shape: plan.cp > 1 and plan.attend == USP,
        "has no flag to exchange heads inside a ring: choose another method of attention than 'usp'",
    ),
    Rule(lambda plan, shape: plan.x > 1, "does not support the axis x: plan without grids"),
    Rule(
        lambda plan, shape: bool(plan.two_levels),
        "replicates the optimizer's state between groups of owners: leave out two_levels",
    ),
    SECOND,
    Rule(lambda plan, shape: plan.zero in (1, 2), "shards everything or nothing: give zero=3 or zero=0"),
    Rule(
        lambda plan, shape: plan.t > 1 and not plan.sequence,
        "always uses sequence parallelism with tensor parallelism: give sequence=True",
    ),
    Rule(
        lambda plan, shape: shape.key_heads % plan.t > 0,
        "does not copy KV heads over t: choose a t that divides their number",
    ),
    Rule(
        lambda plan, shape: shape.context % (2 * plan.t * plan.cp) > 0,
        "splits a sequence into 2·t·cp pieces: choose a context that is a multiple of 2·t·cp",
    ),
    Rule(
        lambda plan, shape: plan.ep > 1 and plan.cp > 1 and not plan.fold,
        "takes the ranks along cp for experts too, and this plan has others: plan without cp, or with fold=True",
    ),
    Rule(
        lambda plan, shape: plan.zero == 0 and (plan.ep > 1 or plan.cp > 1),
        "shards all weights among the ranks along ep and cp: give zero=3",
    ),
    Rule(
        lambda plan, shape: plan.z > 0 and (plan.ep > 1 or plan.cp > 1),
        "lets all ranks along ep and cp share weights, not so many owners: leave out z",
    ),
    Rule(
        lambda plan, shape: plan.ep > 1 and plan.dispatch == ALL_GATHER,
        "sends tokens to experts by all-to-alls: leave out dispatch",
    ),
)


def refuse_broken(program: str, rules: tuple[Rule, ...], plan: Plan, shape: Shape) -> None:
    """Raise ValueError with the first rule of a program that a plan breaks."""
    for rule in rules:
        if rule.broken(plan, shape):
            raise ValueError(f"{program} {rule.why}")
