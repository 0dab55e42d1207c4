"""An accelerator that exists nowhere: torch loads it by itself wherever the folder above is on PYTHONPATH.

That is torch's official way for devices from outside (entry points of the group torch.backends), so a process needs no
line of its own to have it. With HYBRIDLAB_DEVICES=gpu:8 each rank computes on one of eight, with gpu:1 all share one.

library     builds device.cpp, which says what the device is, and groups.cpp, through which torch calls its backends
device      what torch asks the module of a device for
backends    which backend serves it
groups      what both backends have in common
like_nccl   one device per rank: what NCCL does and gloo does not
staged      one device for all ranks: gloo, through host memory
"""


def load():
    """What torch calls at the end of its own import. It starts no thread: ranks are forked from here."""
    import torch  # here, as the name is there by now, and so is all that the modules below use

    from emulated_gpu import backends, device, library

    torch.classes.load_library(library.built("device"))
    torch.utils.rename_privateuse1_backend("gpu")
    torch._register_device_module("gpu", device)
    torch.__future__.set_swap_module_params_on_conversion(True)  # without, `.to` unties weights, as on CUDA it does not
    backends.register()
