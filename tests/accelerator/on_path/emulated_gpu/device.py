"""What torch asks the module of a device for. Streams, events and memory are found in torch.accelerator."""

import torch


def is_available():
    return True


def is_initialized():
    return True


def device_count():
    return torch.ops.emulated_gpu.devices()


def current_device():
    return torch.accelerator.current_device_index()


def set_device(device):
    torch.accelerator.set_device_index(device)


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def manual_seed_all(seed):
    """Nothing: its kernels are the CPU's, and draw from the CPU's generator."""


def get_rng_state(device="gpu"):
    """The CPU's, for the same reason."""
    return torch.get_rng_state()


def set_rng_state(state, device="gpu"):
    torch.set_rng_state(state)


def _is_in_bad_fork():
    return False
