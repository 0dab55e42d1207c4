"""The ranges of the numbers in a plan, for every model. `plan.check_plan` asks whether they fit a model."""

from hybridlab.core.what.shape import MOST
from hybridlab.predict.plans.plan import Plan


def refuse_numbers(**numbers: int) -> None:
    """Raise ValueError for numbers of devices or sequences that no plan has."""
    for name, number in numbers.items():
        if not 1 <= number <= MOST:
            raise ValueError(f"{name}={number} is out of range: give 1 or more, and at most {MOST:.0e}")


def refuse_sizes(given: dict) -> None:
    """Raise ValueError for sizes that no plan can have."""
    whole = {name: (1 if name in Plan._fields[:5] + ("x", "cp", "ep", "n") else 0, MOST) for name in Plan._fields}
    spans = whole | {"zero": (0, 3), "redone": (0, 1), "offload": (0, 1), "further": (0, 16), "optimizer": (0, 1)}
    for name, value in given.items():
        least, most = spans.get(name, (0, MOST))
        if value is None or not isinstance(value, str) and not least <= value <= most:
            raise ValueError(f"{name}={value} is not possible: give a number from {least} to {most:g}")
