"""The learning rate of each step: a number or a function of the step, a warm-up, and how it falls behind that.

It follows from the number of the step alone, so every rank finds it by itself, and a run that goes on needs no state.
"""

import math
from collections.abc import Callable, Iterable
from numbers import Real

LARGEST = 2**63  # of any number that is given; infinity is larger
ANNEALED: dict[str, Callable[[float], float]] = {  # by the share of the steps behind the warm-up that is over
    "constant": lambda share: 1.0,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    "linear": lambda share: 1 - share,
}


def rate_at(step: int, steps: int, rate: float | Callable, warmup: int = 0, anneal: str = "constant") -> float:
    """The learning rate of one of so many steps, counted from 0.

    rate    a number, or a function of the step
    warmup  steps in which it grows evenly: of step s it is (s + 1)/warmup
    anneal  a name in `ANNEALED`: how it falls behind the warm-up, so that it would be 0 in the step after the last

    raises  ValueError for a function that gives no rate

    >>> [rate_at(step, 6, 0.4, warmup=2, anneal="linear") for step in range(6)]
    [0.2, 0.4, 0.4, 0.30000000000000004, 0.2, 0.1]
    """
    full = rate(step) if callable(rate) else rate
    if not isinstance(full, Real) or not 0 <= full < LARGEST:
        raise ValueError(f"rate({step}) gave {full!r}: return a number from 0 to below {LARGEST:.2g}")
    if step < warmup:
        return float(full) * (step + 1) / warmup
    return float(full) * ANNEALED[anneal](min(1.0, (step - warmup) / max(1, steps - warmup)))


def rate_of(job, step: int) -> float:
    """The learning rate of a step of a job."""
    return rate_at(step, job.steps, job.rate, job.warmup, job.anneal)


def set_rate(job, optimizers: Iterable, step: int):
    """Give optimizers of a job the learning rate of a step."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = rate_of(job, step)


def refuse_rate(steps: int, rate: float | Callable):
    """Nothing, where a rate is a number that is possible, or a function that gives one number for one step.

    raises  ValueError in one sentence
    """
    if not callable(rate):
        if not 0 <= rate < LARGEST:
            raise ValueError(f"rate={rate} is not possible: give a number from 0 to below {LARGEST:.2g}")
        return
    for step in (0, steps - 1):
        try:
            first, again = (rate_at(step, steps, rate) for _ in range(2))
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"rate({step}) fails: {type(error).__name__}: {error}") from error
        if first != again:
            raise ValueError(
                f"rate({step}) gave {first:g}, then {again:g}: every rank asks it by itself, so let it depend on the "
                "step only"
            )
