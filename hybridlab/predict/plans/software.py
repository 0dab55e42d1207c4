"""Software: the overlap, fusion and reductions of programs of one generation, as terms that can be switched one by one.

A plan and a machine do not say how long a step takes: the programs of 2021 waited for every message, and those of 2024
hide most of them. Each field says one such thing in a number; `SOFTWARE` has the numbers of programs that were
published about, each share with its reason. The first, "megatron-2021", is what the three numbers of `rates.Fit` were
fitted on, and what nobody has to ask for.

    share of seconds that a message takes, hidden behind work that can stand beside it
    tensor     tp's sums, behind the products of their block          gradients  the sum over copies, behind a backward
    gathers    weights that ZeRO 3 collects, behind a block's work    messages   between stages, behind a stage's work
    context    keys and values, behind attention                      experts    tokens on their way, behind the block

A share below 1 has two causes that a message cannot be asked apart: the first and the last one have nothing beside
them, and what copies bytes takes cores and bandwidth from what computes.

Sources of the shares: what the programs do is documented (`REASONS`); how much it brings is read off published runs
(`predict.judged`), never off a run that is then predicted. Relatives: `predict.plans.performance`, notebook 41.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount

PRECISIONS = ("bf16", "fp8", "fp4")  # of products by weights; attention and the head stay in 16 bits


class Software(NamedTuple):
    """What the programs do, in numbers.

    launch     the share of the fitted launch time that shows: 1 where the host waits, 0 where it runs ahead
    asked      added to that share for each expert of a rank, where the host has to ask the device for their loads
               before it can launch their products
    early      full recomputation ends with the last tensor that a backward needs: the product behind it is not repeated
    traffic    how often a kept byte moves, of what it would with fused kernels: eager programs write all between
    library    the speed of its GEMMs, of those in the libraries of 2021
    attention  the speed of the fused attention kernel, of that of a GEMM
    gradient   bytes of a gradient, kept and summed: 4 where microbatches are added up in single precision
    each       gradients that are shared out are summed after every microbatch, and not once in a step
    layered    weights and gradients travel layer by layer: each is a collective with a latency of its own
    flat       one ring through all ranks: each sends over its own link only, and nothing is summed inside nodes first
    ends       sums along tp outside of blocks count too: the embedding's, the head's and two small ones of the loss. In
               a model of a hundred blocks they are under a hundredth, and part of the fit; in one of four, a quarter
    once       a token crosses to a node once, however many of its experts are there, and is copied inside
    network    the share of the links' bandwidth that its collectives reach between nodes
    inside     the same inside a node
    tensor, gradients, gathers, messages, context, experts  the share of each that is hidden
    precision  of products by weights: its place in PRECISIONS;  narrow  the shares of the faster peaks' promise that
               products in 8 and in 4 bits keep, casts and scales included
    """

    launch: float = 1.0
    asked: float = 0.0
    early: bool = False
    traffic: float = 1.0
    library: float = 1.0
    attention: float = 1.0
    gradient: int = 2
    each: bool = False
    layered: bool = False
    flat: bool = False
    ends: bool = False
    once: bool = False
    network: float = 1.0
    inside: float = 1.0
    tensor: float = 0.0
    gradients: float = 0.0
    gathers: float = 1.0
    messages: float = 0.0
    context: float = 0.0
    experts: float = 0.0
    precision: int = 0
    narrow: tuple[float, float] = (0.8, 0.5)


def shown(carried: Amount, beside: Amount, share: Amount) -> Amount:
    """The seconds of a message that show: a share of it is hidden, as far as the work beside it lasts.

    >>> print(shown(4.0, beside=10.0, share=0.75), shown(4.0, beside=1.0, share=0.75), shown(4.0, 10.0, 0.0))
    1.0 3.0 4.0
    """
    if not share:
        return carried
    return carried - np.minimum(share * carried, beside)


MEGATRON_2021 = Software()
_HIDING = Software(
    launch=0.0, asked=0.1, library=1.1, attention=0.8, gradient=4, each=True, layered=True, once=True,
    network=0.8, inside=0.8,
    tensor=0.5, gradients=0.9, gathers=0.9, messages=0.9, context=0.5,
)  # fmt: skip
SOFTWARE = {
    "megatron-2021": MEGATRON_2021,
    "deepspeed-2021": Software(flat=True, network=0.68),
    "megatron-2022": Software(launch=0.0),
    "megatron-2024": _HIDING,
    "megatron-static": _HIDING._replace(asked=0.0),
    "meta-2024": _HIDING._replace(context=0.0, tensor=0.0),
    "fsdp-2023": Software(
        launch=0.0, early=True, traffic=1.6, library=1.1, attention=0.4, gradient=4, each=True, layered=True,
        gradients=0.6, gathers=0.6, network=0.7,
    ),
}  # fmt: skip
REASONS = {  # of each, what its programs do that the others do not
    "megatron-2021": "every message is waited for, and the host starts each kernel when the one before has ended",
    "deepspeed-2021": "ZeRO 3 as in SC'21's table 2: one ring through all GPUs, at 17 of 25 GB/s (the table says so)",
    "megatron-2022": "the host runs ahead of the device, so launches are hidden; messages are not",
    "megatron-2024": "gradients are summed and weights gathered in buckets, behind the last backward and the first "
    "forward; tp's gathers and sums go in pieces beside the products that they feed, which hides about half; stages "
    "send ahead; gradients are kept in single precision; a token crosses to a node once; for dropless experts the host "
    "asks for loads before it launches",
    "megatron-static": "the same, and experts take a fixed number of tokens, or whole steps are replayed as graphs: "
    "the host does not ask for their loads",
    "meta-2024": "the same as megatron-2024, but keys and values are gathered along cp before attention begins, and "
    "tp's sums are waited for",
    "fsdp-2023": "PyTorch's FSDP, eager: what a fused kernel keeps in registers goes through memory; checkpoints end "
    "early; every layer's weights and gradients travel by themselves, gradients in single precision, and take cores "
    "from what computes",
}


def programs(software: str | Software, precision: str = "bf16") -> Software:
    """Software by its name, or unchanged, with matmuls in a precision.

    raises  ValueError when there is no such name, or no such precision

    >>> programs("megatron-2024", "fp8").tensor
    0.5
    """
    if isinstance(software, str):
        if software not in SOFTWARE:
            raise ValueError(f"there is no software {software!r}: choose one of {', '.join(SOFTWARE)}")
        software = SOFTWARE[software]
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not known: choose one of {', '.join(PRECISIONS)}")
    return software._replace(precision=PRECISIONS.index(precision)) if precision != "bf16" else software


def told(software: Software) -> str:
    """Software in words: its name and its precision.

    >>> print(told(programs("megatron-2024", "fp8")), "|", told(Software(tensor=0.123)))
    megatron-2024 in fp8 | own software in bf16
    """
    plain = software._replace(precision=0)
    name = next((name for name, one in SOFTWARE.items() if one == plain), "own software")
    return f"{name} in {PRECISIONS[software.precision]}"
