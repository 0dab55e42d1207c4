"""Which process group serves the emulated device, and how torch learns it.

torch lets a process group that is written in Python take the place of all others that were asked for. So each of ours
has gloo inside for what lies in host memory, and stands for the whole of "cpu:gloo,gpu:like_nccl" or of "gloo".
"""

import functools

import torch.distributed as dist
from torch.distributed.distributed_c10d import BackendConfig

from emulated_gpu.like_nccl import LikeNCCL
from emulated_gpu.staged import Staged

BESIDE_GLOO, STAGED = "gloo_and_like_nccl", "gloo_staged"


def register():
    """Make the names known; the first one is the device's own backend."""
    alone = functools.partial(LikeNCCL, with_host=False)
    for name, make in (("like_nccl", alone), (BESIDE_GLOO, LikeNCCL), (STAGED, Staged)):
        dist.Backend.register_backend(name, lambda about, _, make=make: make(about), extended_api=True, devices=["gpu"])
    as_asked = BackendConfig.get_device_backend_map
    BackendConfig.get_device_backend_map = lambda config: _in_one(as_asked(config))


def _in_one(asked: dict) -> dict:
    if set(asked.values()) == {"gloo"}:
        return {"gpu": STAGED}
    return {"gpu": BESIDE_GLOO} if asked.get("gpu") == "like_nccl" and "cpu" in asked else asked
