"""Where a benchmark runs: its flags, and the placement that they mean."""

import argparse
import os

from hybridlab.world.devices.placement import ASKED, Placement, placement


def add_flags(parser: argparse.ArgumentParser):
    """The flags that choose devices and backend."""
    parser.add_argument("--device", help='"cpu", or a kind and how many, such as cuda:2; default: what is here')
    parser.add_argument("--backend", choices=("gloo", "nccl"), help="default: nccl with a GPU for each rank, else gloo")


def placed(chosen: argparse.Namespace, ranks: int) -> Placement:
    """What the flags mean for so many ranks; printed, because no figure is worth much without it."""
    if chosen.device:
        os.environ[ASKED] = chosen.device
    found = placement(ranks, backend=chosen.backend)
    print(found)
    return found
