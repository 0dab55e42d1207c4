"""Parts: splitting a tensor over the ranks of a group and joining it again.

`sizes` gives the length of each part; without it all are equal. Backends send only parts of equal length, so for the
transfer, uneven parts are padded with zeros to the length of the longest.
"""

import operator

import torch


def dimension(op: str, x, dim: int) -> int:
    """`dim` counted from the front.

    raises  ValueError if x has no such dim
    """
    if not -x.dim() <= dim < x.dim():
        raise ValueError(
            f"{op} along dim {dim} is not possible for shape {tuple(x.shape)}: give a dim that the tensor has"
        )
    return dim % x.dim()


def integers(op: str, sizes) -> list[int]:
    """The given lengths as ints: a tensor with one integer, or numpy's integer, is accepted.

    raises  ValueError for anything else

    >>> integers("split", torch.tensor([3, 2]))
    [3, 2]
    """
    try:
        return [operator.index(one) for one in sizes]
    except TypeError:
        raise ValueError(f"{op} cannot use the lengths {sizes}: give a list of integers") from None


def lengths(op: str, length: int, dim: int, ranks: int, sizes=None) -> list[int]:
    """For a dim of this length, the length of every rank's part.

    raises  ValueError if the dim cannot be cut like that

    >>> lengths("split", 6, 0, 2), lengths("split", 5, 0, 2, (3, 2))
    ([3, 3], [3, 2])
    """
    if sizes is None:
        if length % ranks:
            raise ValueError(
                f"{op} cannot split dim {dim} of length {length} into {ranks} equal parts: pad it to a multiple of "
                f"{ranks}, or give the length of each part"
            )
        return [length // ranks] * ranks
    sizes = integers(op, sizes)
    if len(sizes) != ranks or sum(sizes) != length or min(sizes) < 0:
        raise ValueError(
            f"{op} cannot split dim {dim} of length {length} into {tuple(sizes)}: give {ranks} lengths that add up to "
            f"{length}"
        )
    return sizes


def stacked(x, dim: int, sizes: list[int]):
    """The parts of x one after another, in one contiguous tensor: (ranks, …); each is padded to the longest."""
    longest = max(sizes)
    if min(sizes) == longest and dim == 0:
        return x.contiguous().view(len(sizes), longest, *x.shape[1:])
    parts = torch.stack([filled(part, dim, longest) for part in x.split(sizes, dim)])
    return parts.contiguous()  # for four dims in reversed memory order, torch would keep that order


def filled(x, dim: int, length: int):
    """x padded with zeros along `dim` to this length; x itself if no padding is needed."""
    missing = length - x.shape[dim]
    return torch.cat([x, zeros(x, dim, missing)], dim) if missing else x


def zeros(x, dim: int, length: int):
    """Zeros to pad x along `dim`."""
    return x.new_zeros(resized(x.shape, dim, length))


def resized(shape, dim: int, length: int) -> tuple[int, ...]:
    """A shape with another length along one dim.

    >>> resized((2, 3, 4), 1, 5)
    (2, 5, 4)
    """
    return (*shape[:dim], length, *shape[dim + 1 :])


def joined(room, dim: int, sizes: list[int]):
    """The parts in `room`, in the form of `stacked`, joined along `dim` without their padding."""
    if dim == 0 and min(sizes) == max(sizes):
        return room.flatten(0, 1)
    return torch.cat([part.narrow(dim, 0, length) for part, length in zip(room, sizes)], dim)


def flat_of(x):
    """x in a form that a collective can read: outside autograd, contiguous; the tensor's own memory where possible."""
    return tensor_of(x).detach().contiguous()


def tensor_of(x) -> torch.Tensor:
    """x, which must be a tensor.

    raises  TypeError naming its type
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"ranks exchange tensors, but this is {'None' if x is None else f'a {type(x).__name__}'}")
    return x
