"""Connect ranks according to a placement. Afterwards this process is one of several ranks that can communicate."""

import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

from hybridlab.world.devices.placement import Placement

SHARE = 0.9  # maximum fraction of a GPU's memory, for all ranks on it together


def meet(placed: Placement, timeout: timedelta, rank: int, **where):
    """Wait for the other ranks.

    where  store and world_size, as `init_process_group` takes them, by which the ranks find each other
    """
    dist.init_process_group(backends(placed), timeout=timeout, rank=rank, **where)
    if placed.kind == "cpu":  # otherwise torch warns in every backward if the driver of an unused GPU is too old
        warnings.filterwarnings("ignore", "CUDA initialization", UserWarning)
    if placed.takes_at_once(rank):
        take_device(placed, rank)


def backends(placed: Placement) -> str:
    """The backend string for torch. A GPU's backend is combined with gloo, for host memory and for barriers.

    >>> from hybridlab.world.devices.placement import placement
    >>> backends(placement(2, gpus=2)), backends(placement(2, gpus=1))
    ('cpu:gloo,cuda:nccl', 'gloo')
    """
    if placed.backend == "gloo":
        return "gloo"
    return f"cpu:gloo,{of_device(placed)}"


def of_device(placed: Placement) -> str:
    """Only the backend of the ranks' devices: "cuda:nccl"."""
    return f"{placed.kind}:{dist.get_default_backend_for_device(placed.kind)}"


def take_device(placed: Placement, rank: int) -> torch.device:
    """This rank's device, made ready. If the rank shares a GPU, it may fill only its fraction of the memory."""
    device = torch.device(placed.devices[rank])
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
        exact()
        # when ranks make this directory at the same time, torch says so, and compiles its kernels without it
        warnings.filterwarnings("ignore", "Specified kernel cache directory", UserWarning)
        x = torch.ones(1, device=device, requires_grad=True)  # the first allocation creates a context, in seconds
        (x * x).backward()  # a kernel on autograd's own thread; torch warns if the first one there is a matrix product
    if device.type == "cuda" and placed.shared:
        torch.cuda.set_per_process_memory_fraction(SHARE / placed.devices.count(str(device)), device)
    return device


def exact():
    """Use float32 with full precision. GPUs since Ampere may round factors to the ten bits of TF32, in convolutions
    even by default. Then a parallel run would differ from one device by 1e-2 instead of 1e-6."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
