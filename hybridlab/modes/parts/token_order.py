"""Arrivals: tokens in the order of their experts, and the experts' outputs back in the order of the tokens.

A token that chose C experts has C arrivals. On one device they are only sorted by expert; `modes.parts.dispatch` also
sends them to other ranks.

Shape suffixes
    N tokens, E experts, C chosen by each token, A arrivals, D width
"""

import torch


def dispatch(x_ND, chosen_NC, weights_NC, experts):
    """Every token through its experts, on one device.

    x_ND        tokens
    chosen_NC   the experts that each token chose
    weights_NC  of these choices
    experts     a function of the tokens, sorted by expert, and of the number of tokens of each expert
    """
    order_A, counts_E = in_order(chosen_NC, len(experts.up.weight))
    y_AD = experts(x_ND[order_A // chosen_NC.shape[1]], counts_E.tolist())
    return combine(y_AD, order_A, weights_NC)


def in_order(chosen_NC, experts: int, every: int = 0, first: int = 0):
    """((token, choice) pairs sorted by expert, number of pairs for each expert); the second is on the host.

    chosen_NC  the experts that each token chose
    experts    the number of counted experts, with indices from 0
    every      the number of experts of the layer; 0: only these
    first      the index in the layer of the first of these experts

    Pair a is choice a % C of token a // C. Pairs of one expert stay in the order of their tokens; dropped pairs are
    omitted. On torch's meta device, where choices are unknown, pairs are divided equally among these experts or, if
    `every` is given, among all experts of the layer.

    >>> in_order(torch.tensor([[1, 0], [0, 2]]), experts=2)
    (tensor([1, 2, 0]), tensor([2, 1]))
    """
    if chosen_NC.is_meta:
        number = every or experts
        ends = torch.arange(number + 1) * chosen_NC.numel() // number  # the remainder is spread
        counts_E = ends.diff()[first : first + experts]
    else:
        counts_E = loads(chosen_NC, experts).long().cpu()
    return chosen_NC.flatten().argsort(stable=True)[: int(counts_E.sum())], counts_E


def combine(y_AD, order_A, weights_NC):
    """For every token, the weighted sum of its experts' outputs; an expert that dropped the token contributes 0.

    y_AD        the experts' outputs, in the order of the experts
    order_A     as `in_order` returns it
    weights_NC  of the choices
    """
    y_NCD = y_AD.new_zeros(weights_NC.numel(), y_AD.shape[1]).index_copy(0, order_A, y_AD)
    return (y_NCD.view(*weights_NC.shape, -1) * weights_NC[..., None]).sum(1)


def loads(chosen, experts: int):
    """The number of choices of each expert, as float64.

    chosen   the experts that tokens chose
    experts  the number of experts

    >>> loads(torch.tensor([[0, 2], [2, 1]]), experts=4).tolist()
    [1.0, 1.0, 2.0, 0.0]
    """
    every = torch.zeros(experts + 1, dtype=torch.float64, device=chosen.device)
    return every.index_add_(0, chosen.flatten(), every.new_ones(chosen.numel()))[:experts]


def by_expert(counts_RE):
    """The order that sorts received rows by expert; they arrive rank by rank, and from each rank expert by expert.

    counts_RE  how many rows each rank has for each expert

    >>> by_expert(torch.tensor([[1, 2], [1, 1]])).tolist()
    [0, 3, 1, 2, 4]
    """
    ranks, experts = counts_RE.shape
    return torch.arange(experts).repeat(ranks).repeat_interleave(counts_RE.flatten()).argsort(stable=True)
