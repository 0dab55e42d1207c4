"""Routing: how tokens find their experts, and how these are kept evenly loaded."""

import math
from dataclasses import dataclass

from hybridlab.signatures import refuse_types

SCORES = ("softmax", "sigmoid")
BALANCES = ("none", "loss", "bias")


@dataclass(frozen=True)
class Routing:
    """How tokens find their experts.

    scores      "softmax": of all experts together; "sigmoid": of each by itself
    normalised  the weights of a token's chosen experts are divided by their sum
    balance     what keeps experts evenly loaded: "none"; "loss", a summand of the loss that grows with the load of an
                expert and with its scores; "bias", a number for each expert that is added to its scores when tokens
                choose, and nowhere else
    pace        the factor of that loss, or the step by which biases move
    capacity    None: an expert takes every token that chose it. A number: of one sequence it takes at most so many
                times what even loads would bring, and drops the rest

    raises  ValueError for a name that is not known, or a number that is not positive

    >>> Routing(capacity=1.25).slots(context=32, experts=8, chosen=2)
    10
    """

    scores: str = "softmax"
    normalised: bool = True
    balance: str = "none"
    pace: float = 0.01
    capacity: float | None = None

    def __post_init__(self) -> None:
        refuse_types(self)
        for name, choices in (("scores", SCORES), ("balance", BALANCES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} is not known: choose one of {', '.join(choices)}")
        for name in ("pace", "capacity"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} is not a positive finite number: give a number above 0")

    def slots(self, context: int, experts: int, chosen: int) -> int:
        """The tokens of one sequence that an expert takes at most, where there is a capacity.

        context  tokens in the sequence
        experts  in the block;  chosen  of them by each token
        """
        return min(context, math.ceil((self.capacity or experts) * context * chosen / experts))
