"""Give the usual error of a prediction, by software.

The errors are from the scoreboard (docs/predictor.md): published runs, predicted without their source. People chose to
run these plans. For plans that no one runs, the error is unknown.
"""

from typing import NamedTuple

from hybridlab.predict.plans.software import PRECISIONS, SOFTWARE, Software


class Error(NamedTuple):
    """The median and the 90th percentile of the absolute errors, as fractions."""

    median: float
    nine_of_ten: float

    def __str__(self) -> str:
        return f"±{self.median:.0%} in half of the published runs, ±{self.nine_of_ten:.0%} in nine of ten"


ERRORS = {  # a test compares them with results/predictor.json
    "megatron-2021": Error(0.038, 0.169),
    "deepspeed-2021": Error(0.036, 0.071),
    "megatron-2022": Error(0.040, 0.052),
    "fsdp-2023": Error(0.029, 0.054),
    "megatron-2024": Error(0.038, 0.164),
    "meta-2024": Error(0.048, 0.052),
    "megatron-static": Error(0.091, 0.162),
}


def error_of(software: Software) -> Error:
    """The error of predictions for a software; for other terms, the largest of all.

    >>> print(error_of(SOFTWARE["megatron-2021"]))
    ±4% in half of the published runs, ±17% in nine of ten
    """
    plain = software._replace(precision=PRECISIONS.index("bf16"))
    name = next((name for name, one in SOFTWARE.items() if one == plain), None)
    return ERRORS[name] if name else Error(*map(max, zip(*ERRORS.values())))
