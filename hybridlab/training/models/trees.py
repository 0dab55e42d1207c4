"""A tensor, or a tuple of tensors: a model's input, the activations between its layers, its targets."""

import torch


def mapped(function, x):
    """A function applied to a tensor, or to every tensor of a tuple.

    >>> mapped(lambda one: one + 1, (torch.tensor(1), torch.tensor(2)))
    (tensor(2), tensor(3))
    """
    return tuple(mapped(function, one) for one in x) if isinstance(x, tuple | list) else function(x)


def flat(x) -> tuple[torch.Tensor, ...]:
    """A tensor, or a tuple of them, as a tuple."""
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def mapped_together(function, some: list):
    """A function applied to a list of tensors; for tuples, to the list of the first ones, of the second ones, …

    >>> mapped_together(torch.stack, [(torch.tensor(1), torch.tensor(2)), (torch.tensor(3), torch.tensor(4))])
    (tensor([1, 3]), tensor([2, 4]))
    """
    if isinstance(some[0], tuple | list):
        return tuple(mapped_together(function, one) for one in zip(*some))
    return function(list(some))


def rows_of(x, some: slice):
    """Some rows of a batch."""
    return mapped(lambda one: one[some], x)


def as_computed(x, dtype: torch.dtype):
    """The same in the dtype of the computation; integers, such as tokens and labels, stay unchanged."""
    return mapped(lambda one: one.to(dtype) if one.is_floating_point() else one, x)
