"""Trust: the usual error of a prediction, by machine and kind of run.

The errors are from the scoreboard (docs/predictor.md): published runs, predicted without their source. These are plans
that people chose to run. For other plans, the error is unknown.
"""

from typing import NamedTuple

from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import PRECISIONS, SOFTWARE, Software
from hybridlab.predict.plans.usual import family


class Error(NamedTuple):
    """The bars for half and for nine in ten absolute errors, as fractions (`judged.bars`)."""

    median: float
    nine_of_ten: float

    def __str__(self) -> str:
        return f"±{self.median:.0%} in half of the published runs, ±{self.nine_of_ten:.0%} in nine of ten"


KINDS = ("dense", "context", *PRECISIONS[1:], "experts")
# A test compares these with results/predictor.json. `judged.bars` describes the rows from which each is computed.
ERRORS = {
    ("a100", "dense"): Error(0.032, 0.093),
    ("a100", "context"): Error(0.032, 0.093),
    ("a100", "fp8"): Error(0.064, 0.171),
    ("a100", "fp4"): Error(0.032, 0.093),
    ("a100", "experts"): Error(0.067, 0.419),
    ("h100", "dense"): Error(0.035, 0.071),
    ("h100", "context"): Error(0.03, 0.135),
    ("h100", "fp8"): Error(0.023, 0.135),
    ("h100", "fp4"): Error(0.03, 0.135),
    ("h100", "experts"): Error(0.072, 1.081),
    ("b200", "dense"): Error(0.068, 0.173),
    ("b200", "context"): Error(0.068, 0.173),
    ("b200", "fp8"): Error(0.074, 0.172),
    ("b200", "fp4"): Error(0.068, 0.173),
    ("b200", "experts"): Error(0.067, 0.361),
    ("tpu-v5p", "dense"): Error(0.064, 0.153),
    ("tpu-v5p", "context"): Error(0.064, 0.153),
    ("tpu-v5p", "fp8"): Error(0.064, 0.171),
    ("tpu-v5p", "fp4"): Error(0.064, 0.153),
    ("tpu-v5p", "experts"): Error(0.067, 0.419),
}
CALIBRATED = {  # if another row of the same source and model gives the share of the peak
    "dense": Error(0.03, 0.149),
    "context": Error(0.004, 0.014),
    "fp8": Error(0.026, 0.161),
    "fp4": Error(0.081, 0.165),
    "experts": Error(0.089, 0.465),
}
PUBLISHED = ("a100", "h100", "b200", "b300", "gb200", "gb300", "tpu-v4", "tpu-v5e", "tpu-v5p")


def kind_of(shape: Shape, plan: Plan, software: Software) -> str:
    """The kind of a run: with experts, with matmuls in fewer than 16 bits, with a sharded context, or none of these."""
    if shape.experts > 1:
        return "experts"
    if software.precision:
        return PRECISIONS[software.precision]
    return "context" if plan.cp > 1 else "dense"


def error_of(machine: Machine, kind: str, software: Software, calibrated: bool = False) -> Error:
    """The usual error of predictions for a machine and a kind of run; without published runs, the largest error of all
    kinds.

    calibrated  with numbers that were measured on the machine itself

    >>> from hybridlab.core.what.catalog import machine
    >>> print(error_of(machine("a100"), "dense", SOFTWARE["megatron-2021"]))
    ±3% in half of the published runs, ±9% in nine of ten
    """
    if calibrated:
        return CALIBRATED[kind]
    published = software._replace(precision=0) in SOFTWARE.values() and machine.like in PUBLISHED
    return ERRORS[family(machine), kind] if published else Error(*map(max, zip(*ERRORS.values())))
