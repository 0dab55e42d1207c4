"""Routing: how tokens choose their experts, and how the load of the experts is balanced."""

import math
from dataclasses import dataclass

from hybridlab.doors import guarded

SCORES = ("softmax", "sigmoid")
BALANCES = ("none", "loss", "bias")


@guarded()
@dataclass(frozen=True)
class Routing:
    """How tokens choose their experts.

    scores      "softmax": over all experts; "sigmoid": for each expert separately
    normalised  the weights of a token's chosen experts are divided by their sum
    balance     how the load is balanced: "none"; "loss", a term of the loss that grows with the load of an expert and
                with its scores; "bias", a number for each expert that is added to its scores only for the choice
    pace        the factor of that loss, or the amount by which biases change in a step
    capacity    None: an expert takes every token that chose it. A number is the capacity factor: from one sequence, an
                expert takes at most this many times an equal share of the choices, and drops the rest

    raises  ValueError for an unknown name, a number that is not positive, or a pace without balance

    >>> Routing(capacity=1.25).slots(context=32, experts=8, chosen=2)
    10
    """

    scores: str = "softmax"
    normalised: bool = True
    balance: str = "none"
    pace: float = 0.01
    capacity: float | None = None

    def __post_init__(self) -> None:
        for name, choices in (("scores", SCORES), ("balance", BALANCES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} is not known: choose one of {', '.join(choices)}")
        for name in ("pace", "capacity"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} is not a positive finite number: give a number above 0")
        if self.balance == "none" and self.pace != type(self).pace:
            raise ValueError(
                f"pace={self.pace} is invalid: nothing balances the load. Give balance='loss', or leave pace out."
            )

    def slots(self, context: int, experts: int, chosen: int) -> int:
        """The maximum number of tokens of one sequence that an expert takes, if it has a capacity.

        context  tokens in the sequence
        experts  in the block;  chosen  experts per token
        """
        return min(context, math.ceil((self.capacity or experts) * context * chosen / experts))
