"""The network: the functions of torch that `door` uses, under names that hold in every version.

A dry run replaces it with a network without other ranks (`dry`).
"""

import functools

import torch
import torch.distributed as dist
from torch.distributed import new_group

__all__ = ["ABOVE", "all_gather", "all_reduce", "all_to_all_single", "barrier", "broadcast", "irecv", "isend",
           "new_group", "reduce_scatter"]  # fmt: skip

ABOVE = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # where `overheard` listens


def _unheard(call):
    """The same call, below the level of `overheard`, because the communicator has already recorded it."""

    @functools.wraps(call)
    def below(*given, **named):
        with torch._C._ExcludeDispatchKeyGuard(ABOVE):
            return call(*given, **named)

    return below


all_reduce, all_to_all_single = _unheard(dist.all_reduce), _unheard(dist.all_to_all_single)
barrier, broadcast = _unheard(dist.barrier), _unheard(dist.broadcast)
irecv, isend = _unheard(dist.irecv), _unheard(dist.isend)
# torch 2.13 has new names for these and warns about the old ones; 2.10 has only the old ones.
all_gather = _unheard(getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor)
reduce_scatter = _unheard(getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor)
