"""Which backend serves the emulated device, and how torch learns it."""

import torch.distributed as dist
from torch.distributed.distributed_c10d import BackendConfig

from emulated_gpu import library
from emulated_gpu.like_nccl import LikeNCCL
from emulated_gpu.staged import Staged

STAGED = "gloo_staged"


def register():
    """Make the names known; the first one is the device's own backend."""
    called = library.module("groups").called
    for name, make in (("like_nccl", LikeNCCL), (STAGED, Staged)):

        def served(store, rank, size, timeout, name=name, make=make):
            return called(make(store, rank, size, timeout), rank, size, name, make.SILENT)

        dist.Backend.register_backend(name, served, devices=["gpu"])
    as_asked = BackendConfig.get_device_backend_map
    BackendConfig.get_device_backend_map = lambda config: _staged(as_asked(config))


def _staged(asked: dict) -> dict:
    """gloo takes tensors of any device: those of ours go by what stands for it."""
    return {"cpu": "gloo", "gpu": STAGED} if set(asked.values()) == {"gloo"} else asked
