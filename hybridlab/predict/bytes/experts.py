"""Compute the elements sent to dispatch tokens to experts on other ranks, and the imbalance of the ranks' loads.

Along ep a rank has its own tokens, n, and some of the E experts. Each token goes to k of them, with h features. There
are two ways to dispatch (`dispatch`):

  one layer, forward      sent by each of p ranks, if all experts are chosen equally often
  all_to_all              2·k·n·h·(p-1)/p    dispatch and return; before it, the ranks gather their counts, E each
  all_gather              2·n·h·(p-1)        all tokens to all ranks, with k choices and k weights; sums back

The backward sends the same. So gathering is better for p < k; and between nodes it sends a token once to each node,
while an all-to-all sends it once to each of its experts. Sizes may be numpy arrays.

No token is dropped: capacities (`Shape.routing`) are not counted here.

Routing is not even. `popular` is the load of each expert if popularity follows Zipf's law. `imbalance` is the load of
the busiest rank over the mean: all others wait for it.

Source: Lepikhin et al. 2020, arXiv:2006.16668 (all-to-all); Zipf loads and their placement are our own assumption. See
also `modes.expert_parallel` (the same for its ledgers), `predict.plans.time_of_context_and_experts` (the seconds),
`predict.plans.hot_expert` (the cost of a skew) and notebook 32.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape

DISPATCH = ("all_to_all", "all_gather")
ALL_TO_ALL, ALL_GATHER = range(2)


def weights_of_one(shape: Shape) -> int:
    """The number of weights of one expert in matmuls; 0 if a block has a single MLP.

    >>> weights_of_one(Shape(width=8, experts=4)), weights_of_one(Shape(width=8))
    (512, 0)
    """
    matrices = 3 if shape.style == "llama" else 2
    return matrices * shape.width * shape.inside * (shape.experts > 1)


def held(shape: Shape) -> tuple[int, int]:
    """Weights and biases of all routed experts of a block: (those that tp shards, the biases after an all-reduce, which
    it does not shard); 0 if a block has a single MLP.

    >>> held(Shape(width=8, experts=4)), held(Shape(width=8))
    ((2176, 32), (0, 0))
    """
    number = shape.experts * (shape.experts > 1)
    return number * shape.block.mlp, number * shape.width * (shape.style == "gpt")


# --- what is sent -------------------------------------------------------------------------------------------------


def between(counts: Sequence[Sequence[int]] | np.ndarray, ways: int) -> np.ndarray:
    """[from, to]: the number of (token, expert) pairs that each rank sends to each of the other ranks.

    The results return in the opposite direction. Pairs that stay on their rank count 0.

    counts  [rank, expert]: how often the tokens of each rank chose each expert; ranks have equal numbers of experts

    raises  ValueError if the ranks cannot have equal numbers of experts

    >>> between([[3, 1, 0, 0], [2, 0, 1, 1]], ways=2)  # the first rank's experts are popular
    array([[0, 0],
           [2, 0]])
    """
    counts = np.asarray(counts)
    if counts.shape[0] != ways or counts.shape[1] % ways:
        raise ValueError(
            f"counts has the shape {counts.shape}: give one row for each of {ways} ranks, and a number of columns "
            f"(experts) that {ways} divides"
        )
    to = counts.reshape(ways, ways, -1).sum(2)
    return to - np.diag(np.diag(to))


def sent(
    counts: Sequence[Sequence[int]] | np.ndarray, ways: int, width: int, bytes: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """(bytes that each rank sends, bytes that each receives) in one all-to-all of tokens to their experts. For the
    results, and for gradients, the two are swapped.

    width  h, numbers of a token;  bytes  the bytes of a number

    >>> leaves, comes = sent([[3, 1, 0, 0], [2, 0, 1, 1]], ways=2, width=8)
    >>> print(leaves, comes)
    [ 0 32] [32  0]
    """
    pairs = between(counts, ways) * width * bytes
    return pairs.sum(1), pairs.sum(0)


def exchanged(shape: Shape, tokens: Amount, ways: Amount, dispatch: str, when: str) -> list[tuple[str, str, float]]:
    """[(operation, what, numbers)] of one microbatch in one layer on one rank, if all experts are chosen equally often.
    A collective counts its full tensor, an all-to-all everything that a rank sends, also to itself.

    shape  of the model, or anything else with its `experts`, `chosen` and `width`
    what  "counts" and "choices" are integers; "tokens" and "weights" have the width of activations
    tokens  n, of one rank;  dispatch  a name in DISPATCH;  when  "forward", "backward"

    >>> for one in exchanged(Shape(width=8, experts=4, chosen=2), 16, 2, "all_to_all", "forward"): print(*one)
    all_gather counts 8
    all_to_all tokens 256
    all_to_all tokens 256
    """
    pairs, stream = shape.chosen * tokens, tokens * shape.width
    if dispatch == "all_to_all":
        counts = [("all_gather", "counts", ways * shape.experts)] * (when == "forward")
        return counts + [("all_to_all", "tokens", pairs * shape.width)] * 2
    gathered, added = [("all_gather", "tokens", ways * stream)], [("reduce_scatter", "tokens", ways * stream)]
    if when == "forward":
        return gathered + [("all_gather", what, ways * pairs) for what in ("choices", "weights")] + added
    return gathered + added + [("reduce_scatter", "weights", ways * pairs)]


def crossing(chosen: int, nodes: Amount) -> Amount:
    """The fraction of a token's copies for other nodes that is sent if each node gets a token once and copies it
    inside: the expected number of nodes with at least one of its experts, if all experts are chosen equally often.

    >>> print(f"{crossing(8, nodes=2):.3f} {crossing(2, nodes=8):.3f}")
    0.249 0.938
    """
    return nodes / chosen * (1 - (1 - 1 / nodes) ** chosen)


# --- how uneven it is ---------------------------------------------------------------------------------------------


@cache
def popular(experts: int, chosen: int, skew: float) -> tuple[float, ...]:
    """For each expert, the mean number of times that a token chooses it, with the most popular expert first.

    The sum over all experts is `chosen`.

    experts  in the block
    chosen   experts of one token
    skew     the exponent of Zipf's law; 0: all are equally popular

    raises  ValueError if a token would choose more experts than there are

    It is proportional to 1/i to the power of skew (Zipf), but a token chooses no expert twice: a value above 1 becomes
    1, and the excess is divided among the others.

    >>> [round(each, 2) for each in popular(4, 2, skew=1.0)]
    [0.96, 0.48, 0.32, 0.24]
    >>> popular(4, 2, skew=0.0)
    (0.5, 0.5, 0.5, 0.5)
    """
    if chosen > experts:
        raise ValueError(f"chosen={chosen} is more than experts={experts}: choose at most {experts}")
    weights = np.arange(1, experts + 1, dtype=float) ** -skew
    shared_out = lambda full: weights[full:] * (chosen - full) / weights[full:].sum()
    full = next(full for full in range(chosen) if shared_out(full)[0] <= 1)
    return (1.0,) * full + tuple(shared_out(full).tolist())


def imbalance(experts: int, chosen: int, ways: Amount, skew: Amount = 0.0) -> Amount:
    """The load of the rank with the most popular expert, over the mean load.

    Experts are assigned to ranks at random, so the rank with the most popular one also has E/p - 1 random others. This
    is the exact mean over all assignments. In a single assignment, the busiest rank has slightly more.

    >>> [round(float(imbalance(64, 8, ways, skew=0.6)), 2) for ways in (1, 8, 64)]
    [1.0, 1.52, 5.67]
    """
    if experts == 1:
        return 1.0
    found, back = np.unique(skew, return_inverse=True)
    most = np.array([popular(experts, chosen, float(each))[0] for each in found])[back].reshape(np.shape(skew))
    others = (experts / ways - 1) * (chosen - most) / (experts - 1)
    return (ways / chosen * (most + others))[()]
