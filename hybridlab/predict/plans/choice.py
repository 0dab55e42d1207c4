"""Choice: one plan with its predicted step and its memory, as `planner` finds it."""

from typing import NamedTuple

from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.arithmetic import DAY
from hybridlab.predict.plans.footprint import Footprint
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.performance import Step
from hybridlab.predict.plans.plan import NAMED, Plan
from hybridlab.predict.plans.ranges import refuse_tokens
from hybridlab.predict.plans.scaled import Scaled, scaled


class Choice(NamedTuple):
    """One plan with its predicted step and its memory."""

    plan: Plan
    step: Step
    memory: Footprint
    rate: float  # FLOP/s of one device, recomputation included
    model_rate: float  # the same, but only the model's FLOPs
    shape: Shape
    batch: int

    def job(self) -> dict:
        """The arguments of `check`, `train`, `run` and `dry_run` for this plan; see `predict.plans.jobs`."""
        return job_of_plan(self.plan, self.shape, self.batch)

    def scaled(self) -> Scaled:
        """The same plan with two ranks along every axis that it uses, and a small model, for one machine."""
        return scaled(self.plan, self.shape)

    @property
    def facts(self) -> dict:
        """The plan's fields and its predictions, with units in the names."""
        names = {field: names[getattr(self.plan, field)] for field, names in NAMED.items()}
        fields = self.plan._asdict() | names
        return fields | {
            "step_seconds": self.step.total,
            "tflops_per_gpu": self.rate / 1e12,
            "bubble_fraction": self.step.idle,
            "communication": self.step.communication,
            "memory_gb": self.memory.total / 1e9,
        }

    def __repr__(self) -> str:
        return (
            f"{self.plan}: {self.step.total:.2f} s a step, {self.rate / 1e12:.0f} TFLOP/s a device, "
            f"{self.memory.total / 1e9:.1f} GB"
        )


def days(choice: Choice, shape: Shape, batch: int, tokens: float) -> float:
    """The number of days to train on `tokens` tokens, with one step for every batch.

    choice  one of the plans found by `hl.plan`
    shape   of the model
    batch   sequences in a step
    tokens  to train on

    raises  ValueError if tokens is not positive

    >>> import hybridlab as hl
    >>> best = hl.plan("gpt3-175b", "a100", gpus=1024, batch=1536, zero=0, recompute="full").best
    >>> round(days(best, best.shape, 1536, 300e9))
    29
    """
    refuse_tokens(tokens)
    return tokens / (batch * shape.context) * choice.step.total / DAY
