"""Real devices and links: which blocks of a GPT fit on a device, and which could be swapped without costing time."""

from typing import NamedTuple

from hybridlab.core.what.catalog import MACHINES, model
from hybridlab.core.what.shape import Shape
from hybridlab.labs.rows import Table
from hybridlab.labs.rows import table as rows_of
from hybridlab.predict.bytes.activations import kept
from hybridlab.predict.plans.arithmetic import flops

STATE = 16  # bytes for each weight: weight, gradient, master copy, two averages of Adam


class Link(NamedTuple):
    """A link between a device and its host: bytes/s one way, and the source of the number."""

    name: str
    bandwidth: float
    source: str


LINKS = (
    Link("PCIe 4.0 x16", 32e9, "NVIDIA, A100 data sheet 2021: 64 GB/s both ways"),
    Link("PCIe 5.0 x16", 64e9, "NVIDIA, H100 data sheet 2023: 128 GB/s both ways"),
    Link("NVLink-C2C", 450e9, "NVIDIA, Grace Hopper white paper 2022: 900 GB/s both ways"),
)
SHARE = 0.5  # the fraction of its peak speed that a device reaches
GPT = model("gpt2-1.5b").shape


class Fits(NamedTuple):
    """A GPT on one device: bytes of weights, gradients and Adam, bytes saved by one block, blocks that fit."""

    state: float
    block: float
    blocks: int


def fits(sequences: int, memory: float, shape: Shape = GPT) -> Fits:
    """The number of blocks that can keep their activations on a device, together with weights, gradients and Adam's
    state.

    >>> fits(sequences=8, memory=80e9).blocks
    36
    """
    state, block = STATE * shape.parameters, kept(shape, sequences).total
    return Fits(state, block, int(min(shape.layers, (memory - state) // block)))


def what_fits(memory: float = 80e9, batches=(1, 4, 12, 24), shape: Shape = GPT) -> Table:
    """GB of a GPT on one device, for several numbers of sequences."""
    rows = []
    for sequences in batches:
        one = fits(sequences, memory, shape)
        activations = one.block * shape.layers
        sizes = (f"{size / 1e9:.1f}" for size in (one.state, activations, one.state + activations))
        rows.append((str(sequences), *sizes, f"{one.blocks} of {shape.layers}"))
    return rows_of(
        ("sequences", "weights and Adam, GB", "activations, GB", "together, GB", "blocks that may keep"), rows
    )


def intensity(shape: Shape) -> float:
    """FLOP of a block's forward for each byte that it saves, if attention scores are not saved.

    >>> round(intensity(model("gpt3-175b").shape))
    8915
    """
    work = flops(shape)
    return (work.blocks + work.attention) / (3 * shape.layers) / kept(shape, 1).apart


def least_bandwidth(shape: Shape, peak: float, share: float = SHARE) -> float:
    """Bytes/s at which a copy of a block's saved activations takes as long as its forward."""
    return share * peak / intensity(shape)


def for_free(models=("gpt2-1.5b", "gpt-7.5b", "gpt3-175b", "gpt-1t"), machines=("v100", "a100", "h100")) -> Table:
    """GB/s that a link must carry one way, so that a copy takes no longer than its forward."""
    rows = []
    for name in models:
        one = model(name)
        needs = (f"{least_bandwidth(one.shape, MACHINES[device].peak) / 1e9:.0f}" for device in machines)
        rows.append((one.label, f"{one.shape.width:,}", f"{intensity(one.shape):,.0f}", *needs))
    return rows_of(
        ("model", "width", "FLOP for each byte", *(f"{name.upper()} needs, GB/s" for name in machines)), rows
    )
