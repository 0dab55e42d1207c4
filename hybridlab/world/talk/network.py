"""The network: what the door asks of torch, under names that hold in every version.

A dry run puts another in its place, in which nobody else is there (`dry`).
"""

import torch.distributed as dist
from torch.distributed import all_reduce, all_to_all_single, barrier, broadcast, irecv, isend, new_group

__all__ = ["all_gather", "all_reduce", "all_to_all_single", "barrier", "broadcast", "irecv", "isend", "new_group",
           "reduce_scatter"]  # fmt: skip

# torch 2.13 has new names for these and warns of the old ones; 2.11 has the old ones only.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
