"""Compute the FLOPs of a step, the time of a training run, and the roofline of a device.

A multiplication of m×k by k×n takes 2 m k n operations. A backward has two matmuls for each one of the forward, and
full recomputation repeats the forward: 4 forwards instead of 3. Attention counts in full, including entries that a
causal mask hides, as in the papers.

Sources: Narayanan et al. 2021, arXiv:2104.04473, section 5.1 and appendix; Korthikanti et al. 2022, arXiv:2205.05198;
Williams, Waterman, Patterson 2009, *Roofline*. Relatives: `core.what.shape`, `predict.plans.performance`, notebooks 02
and 42.
"""

from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import RECOMPUTE

DAY = 86_400


class Flops(NamedTuple):
    """FLOPs of one optimizer step, by part of the model."""

    blocks: float
    attention: float
    head: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return added(self)


def flops(shape: Shape, batch: int = 1, recompute: str = "none", further: int = 0) -> Flops:
    """The operations of one step over `batch` sequences; "blocks" are the matmuls with weights in all blocks,
    "attention" those of queries, keys and values with each other.

    shape      of the model
    batch      sequences in a step
    recompute  "none", "selective" or "full"
    further    tokens that are predicted beyond the next one: each adds one block and one more use of the head

    With recompute="none" these are the *model's* FLOPs, which define MFU: 72 B s l h² (1 + s/6h + V/12lh). HFU counts
    all FLOPs of the hardware: with "full", 96 B s l h² (1 + s/6h + V/16lh).

    raises  ValueError for any other value of recompute

    >>> from hybridlab.core.what.catalog import model
    >>> gpt3 = model("gpt3-175b").shape
    >>> l, h, s, V = gpt3.layers, gpt3.width, gpt3.context, gpt3.vocabulary
    >>> flops(gpt3, 1536, "full").total == 96 * 1536 * s * l * h * h + 16 * 1536 * s * s * l * h + 6 * 1536 * s * h * V
    True
    """
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute={recompute!r} is not known: choose one of {', '.join(RECOMPUTE)}")
    tokens = batch * shape.context
    plain, again = len(shape.plain), 4 if recompute == "full" else 3
    blocks = (shape.layers - plain + further) * shape.multiplied
    blocks += plain * shape.plain_ones.multiplied if plain else 0
    core = 2 * tokens * (shape.layers + further) * shape.context * (shape.query_width + shape.found_width)
    return Flops(
        2 * tokens * (blocks * again + 3 * further * 2 * shape.width**2),
        core * (3 if recompute == "none" else 4),
        3 * 2 * tokens * shape.width * shape.vocabulary * (1 + further),
    )


def utilisation(shape: Shape, batch: int, seconds: float, devices: int, peak: float, recompute: str = "none") -> float:
    """The fraction of the peak reached by a step of this length in seconds: MFU, or HFU if recomputation counts too.

    >>> from hybridlab.core.what.catalog import machine, model
    >>> gpt = model("gpt-1t").shape
    >>> hfu = utilisation(gpt, 3072, seconds=102.6, devices=3072, peak=machine("a100").peak, recompute="full")
    >>> mfu = utilisation(gpt, 3072, seconds=102.6, devices=3072, peak=machine("a100").peak)
    >>> f"{hfu:.1%} of the peak, {mfu:.1%} without what is done twice"
    '52.3% of the peak, 39.2% without what is done twice'
    """
    return flops(shape, batch, recompute).total / (seconds * devices * peak)


def training_seconds(tokens: float, parameters: float, devices: int, rate: float) -> float:
    """The time to train, 8 T P / (n X): six FLOPs for each token and parameter, and two more to recompute forwards.

    tokens      T, to train on
    parameters  P, of the model
    devices     n
    rate        FLOP/s that one device achieves

    >>> round(training_seconds(300e9, 175e9, devices=1024, rate=140e12) / DAY, 1)
    33.9
    """
    return 8 * tokens * parameters / (devices * rate)


def training_seconds_exact(tokens: float, shape: Shape, devices: int, rate: float, recompute: str = "full") -> float:
    """The time to train on `tokens` tokens, from all FLOPs, including attention and head.

    tokens     to train on
    shape      of the model
    devices    the number of devices
    rate       FLOP/s that one device achieves
    recompute  "none", "selective" or "full"

    >>> from hybridlab.core.what.catalog import model
    >>> round(training_seconds_exact(300e9, model("gpt3-175b").shape, devices=1024, rate=140e12) / DAY, 1)
    34.7
    """
    return tokens / shape.context * flops(shape, 1, recompute).total / (devices * rate)


class Intensity(NamedTuple):
    """One operation on the roofline: its FLOPs, its bytes to and from memory, and its minimum time."""

    flops: float
    bytes: float
    seconds: float
    bound: str

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.bytes


def product(m: int, k: int, n: int, peak: float, bandwidth: float, width: int = 2) -> Intensity:
    """An m×k matrix times a k×n matrix on the roofline: each is read once, and the result is written once.

    width  bytes of a number;  peak in FLOP/s, bandwidth in bytes/s

    >>> from hybridlab.core.what.catalog import machine
    >>> a100 = machine("a100")
    >>> [product(b, 4096, 4096, a100.peak, a100.bandwidth).bound for b in (1, 4096)]
    ['memory', 'arithmetic']
    """
    work, moved = 2 * m * k * n, width * (m * k + k * n + m * n)
    reckoned, carried = work / peak, moved / bandwidth
    return Intensity(work, moved, max(reckoned, carried), "arithmetic" if reckoned >= carried else "memory")
