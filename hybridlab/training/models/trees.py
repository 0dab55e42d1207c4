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
    """The same tensors in the dtype of the computation; complex numbers in the complex dtype of this width; integers,
    such as tokens and labels, stay unchanged.

    >>> as_computed((torch.tensor(1), torch.tensor(1j)), torch.float64)
    (tensor(1), tensor(0.+1.j, dtype=torch.complex128))
    """
    return mapped(lambda one: one.to(_width(one.dtype, dtype)), x)


def as_entering(x, dtype: torch.dtype, step: int):
    """The inputs of a step in the dtype of the computation.

    raises  ValueError for whole numbers that this dtype rounds: as the number of a token, each would name another one

    >>> as_entering(torch.tensor([1001.0, 1003.0]), torch.bfloat16, 0)
    Traceback (most recent call last):
    ValueError: the inputs of step 0 have whole numbers that bfloat16 rounds, such as 1001 to 1000: give numbers of \
tokens or classes as integers, x.long(), or divide measurements, such as x / 1000
    """
    for one in (one for one in flat(x) if one.is_floating_point() and one.dtype != dtype):
        whole = one[one == one.round()]
        other = whole[as_computed(whole, dtype) != whole]
        if len(other.unique()) > 1:  # a single one may be the minus infinity of a mask, such as -10000
            name, first = str(dtype).removeprefix("torch."), other.flatten()[:1]
            raise ValueError(
                f"the inputs of step {step} have whole numbers that {name} rounds, such as {float(first):.10g} to "
                f"{float(first.to(dtype)):.10g}: give numbers of tokens or classes as integers, x.long(), or divide "
                "measurements, such as x / 1000"
            )
    return as_computed(x, dtype)


def _width(own: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    if own.is_complex:
        return torch.complex64 if dtype.itemsize < 4 else dtype.to_complex()
    return dtype if own.is_floating_point else own


def as_compared(x, dtype: torch.dtype):
    """Targets in the dtype of the computation, or in float32 if that is narrower: they enter only the loss.

    >>> as_compared(torch.tensor(1001.5), torch.bfloat16)
    tensor(1001.5000)
    """
    return as_computed(x, torch.promote_types(dtype, torch.float32))


def same(x, y) -> bool:
    """Whether two batches have the same numbers; a nan equals a nan.

    >>> nan = torch.tensor(float("nan"))
    >>> same((nan, torch.tensor(1)), (nan, torch.tensor(1))), same(nan, torch.tensor(1.0))
    (True, False)
    """
    if isinstance(x, tuple | list):
        return len(x) == len(y) and all(map(same, x, y))
    return x.shape == y.shape and bool(((x == y) | (x != x) & (y != y)).all())
