"""Compute the costs of stages with experts for `scheduling.dispatched`, and the limit of their overlap.

A stage has three parts: attention, experts, and one for the combined tokens, which takes no time. Both exchanges take
the same time.

Source: DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1. Relatives: `predict.time.costs`; notebook 32.
"""

from typing import Any

from hybridlab.predict.time.costs import Costs


def with_experts(
    stages: int, attention: float, experts: float, exchange: float, message: float = 0, **more: Any
) -> Costs:
    """The costs of stages with experts, each cut into three parts.

    attention, experts  forward times of one stage; each half of their backwards takes the same time
    exchange  the time of one all-to-all;  message  that of one message between stages;  more  as in `Costs`

    >>> costs = with_experts(2, attention=1, experts=2, exchange=0.5, message=0.1)
    >>> costs.F, [costs.of_message(edge) for edge in range(6)]
    ((1, 2, 0, 1, 2, 0), [0.5, 0.5, 0.1, 0.5, 0.5, 0.1])
    """
    each = (attention, experts, 0) * stages
    carried = (exchange, exchange, message) * stages
    return Costs(F=each, I=each, W=each, bytes=carried, bandwidth=1, **more)


def hidden(attention: float, experts: float, exchange: float) -> bool:
    """Whether a forward and a backward, with alternating parts, hide all exchanges of each other.

    The shortest part that an exchange overlaps with is the forward of attention or of the experts.

    >>> hidden(attention=1, experts=2, exchange=1), hidden(attention=1, experts=2, exchange=1.5)
    (True, False)
    """
    return exchange <= min(attention, experts)
