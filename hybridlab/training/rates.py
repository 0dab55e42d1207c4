"""The learning rate of each step: a number or a function of the step, a warm-up, and its decay afterwards.

It depends only on the index of the step, so every rank computes it itself, and a resumed run needs no state.
"""

import math
from collections.abc import Callable, Iterable
from numbers import Real

from hybridlab.training.models.left_behind import changed, kept_by_loss

LARGEST = 2**63  # every valid number is below this, but infinity is not
ANNEALED: dict[str, Callable[[float], float]] = {  # of the fraction of steps done since the warm-up
    "constant": lambda share: 1.0,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    "linear": lambda share: 1 - share,
}


def rate_at(step: int, steps: int, rate: float | Callable, warmup: int = 0, anneal: str = "constant") -> float:
    """The learning rate of step number `step` (from 0) out of `steps` steps.

    rate    a number, or a function of the step
    warmup  number of steps in which it grows linearly: in step s it is (s + 1)/warmup of the rate
    anneal  a name in `ANNEALED`: the decay after the warm-up, which would reach 0 in the step after the last

    raises  ValueError for a function that returns no valid rate

    >>> [rate_at(step, 6, 0.4, warmup=2, anneal="linear") for step in range(6)]
    [0.2, 0.4, 0.4, 0.30000000000000004, 0.2, 0.1]
    """
    full = rate(step) if callable(rate) else rate
    if not isinstance(full, Real) or not 0 <= full < LARGEST:
        raise ValueError(
            f"rate({step})={full!r} is not possible: return a number, at least 0 and less than {LARGEST:.2g}"
        )
    if step < warmup:
        return float(full) * (step + 1) / warmup
    return float(full) * ANNEALED[anneal](min(1.0, (step - warmup) / max(1, steps - warmup)))


def rate_of(job, step: int) -> float:
    """The learning rate of a step of a job."""
    return rate_at(step, job.steps, job.rate, job.warmup, job.anneal)


def set_rate(job, optimizers: Iterable, step: int):
    """Set the learning rate of a step in a job's optimizers."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = rate_of(job, step)


def refuse_rate(steps: int, rate: float | Callable):
    """Raise an error unless a rate is a valid number, or a function that returns the same number for the same step.

    raises  ValueError if it is not
    """
    if not callable(rate):
        if not 0 <= rate < LARGEST:
            raise ValueError(f"rate={rate} is not possible: give a number, at least 0 and less than {LARGEST:.2g}")
        return
    kept = kept_by_loss(rate)
    for step in (0, steps - 1):
        try:
            first, again = (rate_at(step, steps, rate) for _ in range(2))
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(
                f"rate({step}) raised {type(error).__name__} ({error}): give a function of the step"
            ) from error
        if first != again:
            raise ValueError(
                f"rate({step}) returned {first:g}, then {again:g}: every rank calls it, so let it depend only on the "
                "step"
            )
    if name := changed(kept, kept_by_loss(rate)):
        raise ValueError(
            f"rate changes {name} when it is called, but every rank calls it, often twice in a step: compute the "
            "rate from the step alone"
        )
