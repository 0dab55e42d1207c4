"""The memory of an object: the numbers in all tensors reachable from it, each storage counted once."""

import types
from collections.abc import Iterable, Iterator, Mapping

import torch


def tensors(*objects) -> Iterator[torch.Tensor]:
    """All tensors that can be reached from objects: through attributes, lists, dicts, and gradients; without those of a
    `Comm`.

    >>> weight = torch.nn.Parameter(torch.ones(3))
    >>> weight.grad = torch.ones(3)
    >>> len(list(tensors({"some": [weight, weight]}, torch.optim.Adam([weight]))))
    2
    """
    seen, waiting = set(), list(objects)
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            yield one
            waiting += [] if one.grad is None else [one.grad]
        else:
            waiting += _parts(one)


def _parts(one) -> list:
    if isinstance(one, Mapping):
        return [*one.keys(), *one.values()]
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)
    if isinstance(one, types.FunctionType):
        return [cell.cell_contents for cell in one.__closure__ or ()]
    if isinstance(one, types.MethodType):
        return [one.__self__]
    if isinstance(one, type | types.ModuleType) or type(one).__module__.startswith("hybridlab."):
        return []
    return list(getattr(one, "__dict__", {}).values())


def numbers(held: Iterable[torch.Tensor], beside: Iterable[torch.Tensor] = ()) -> int:
    """The number of elements in the storages of some tensors, without the storages of the tensors in `beside`.

    A view holds its full storage; a storage that was resized to 0 holds no number.

    >>> whole = torch.ones(8)
    >>> numbers([whole[:2], whole[2:4]]), numbers([whole[:2].clone()]), numbers([whole], beside=[whole[:1]])
    (8, 2, 0)
    """
    sizes = {_storage(one): one.untyped_storage().nbytes() // one.element_size() for one in held}
    return sum(sizes[key] for key in sizes.keys() - set(map(_storage, beside)))


def _storage(tensor) -> int:
    return tensor.untyped_storage()._cdata
