"""Packages of others, which `make test-peers` installs beside .venv: without them nothing here can be collected."""

import importlib.util
import os
import pathlib
import re

import torch

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1"
)  # every model is made from its config: nothing is fetched


def operators_without_kernels():
    """Name torchvision's operators where its build does not fit torch's, as PyPI's is made for CUDA: timm imports it,
    and no model here calls one of them."""
    found = importlib.util.find_spec("torchvision")
    said = (pathlib.Path(found.submodule_search_locations[0]) / "_meta_registrations.py").read_text(encoding="utf-8")
    for name in set(re.findall(r"""(?:register_fake\(.torchvision::|register_meta\(.)(\w+)""", said)):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor x) -> Tensor")


operators_without_kernels()
