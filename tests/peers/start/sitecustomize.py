"""What every Python of these tests does first, ranks and their parent too: torchvision's operators get their names.

Its build on PyPI is made for CUDA and does not fit torch's build for CPUs: the import would fail where it describes
operators that are not there. timm and transformers import it, and no model here calls one of them.
"""

import importlib.util
import pathlib
import re


def operators_without_kernels():
    """Name torchvision's operators where its build does not fit torch's."""
    found = importlib.util.find_spec("torchvision")
    if found is None or importlib.util.find_spec("torch") is None:
        return
    import torch

    said = (pathlib.Path(found.submodule_search_locations[0]) / "_meta_registrations.py").read_text(encoding="utf-8")
    for name in set(re.findall(r"""(?:register_fake\(.torchvision::|register_meta\(.)(\w+)""", said)):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor x) -> Tensor")


operators_without_kernels()
