"""The ranges of the numbers in a plan, for every model. `plan.check_plan` checks whether they fit a model."""

import math
from typing import Any

import numpy as np

from hybridlab.doors import COUNT, MOST
from hybridlab.predict.plans.plan import Plan, named

AT_LEAST_ONE = (*Plan._fields[:5], "x", "cp", "ep", "n", "fragments", "directions")


def refuse_numbers(**numbers: int) -> None:
    """Raise ValueError for numbers of devices or sequences that no plan can have."""
    for name, number in numbers.items():
        COUNT(name, number)


def refuse_tokens(tokens: float) -> None:
    """Raise ValueError for a number of tokens on which nothing can be trained."""
    if not 0 < tokens < math.inf:
        raise ValueError(f"tokens={tokens:g} is not positive: give a number above 0")


def refuse_question(sizes: dict) -> None:
    """Raise ValueError for a question about plans that names no size, an unknown one, or an impossible one."""
    if not sizes:
        raise ValueError("no size was asked for: give one, such as t=4")
    named(sizes)
    refuse_sizes(sizes)


def refuse_plan(name: str, plan: Plan) -> None:
    """Raise ValueError if a field of a plan, or of one of many plans, is not a possible number."""
    for field, value in plan._asdict().items():
        every = np.asarray(value)
        if every.dtype.kind not in "biuf" or not every.size:
            raise ValueError(f"{field}={value!r} in {name} is not possible: give a number")
        refuse_sizes({field: every.min().item()} | {field: every.max().item()})


def refuse_cluster(name: str, cluster: Any) -> None:
    """Raise ValueError for a cluster without devices, or with more than any."""
    try:
        refuse_numbers(**cluster._asdict())
    except TypeError:
        raise ValueError(f"{name}={cluster!r} is not a cluster: give whole numbers, such as Submesh(2, 8)") from None


def refuse_sizes(given: dict) -> None:
    """Raise ValueError for sizes that no plan can have. A field of a plan is a whole number unless it is a fraction."""
    whole = {name: (int(name in AT_LEAST_ONE), MOST) for name in Plan._fields}
    spans = whole | {"zero": (0, 3), "redone": (0, 1), "offload": (0, 1), "further": (0, 16), "optimizer": (0, 1)}
    for name, value in given.items():
        least, most = spans.get(name, (0, MOST))
        if value is None or not isinstance(value, str) and not least <= value <= most:
            raise ValueError(f"{name}={value} is not possible: give a number from {least} to {most:g}")
        if isinstance(value, float) and Plan.__annotations__.get(name) is not float:
            raise ValueError(f"{name}={value} is not possible: give a whole number, such as {name}=2")
