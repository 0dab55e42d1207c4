"""Describe a generation of training programs in numbers: how much they overlap and fuse, and how they reduce.

The plan and the machine alone do not determine the time of a step: the programs of 2021 waited for every message, and
those of 2024 hide most of them. Each field is one such property as a number, and can be changed alone. `SOFTWARE` has
the numbers of published programs, and `REASONS` their reasons. The three numbers of `rates.Fit` were fitted with the
first, "megatron-2021", which is the default.

Six fields are fractions. Each is the fraction of a message's time that the program hides by overlapping it with work:

    tensor     tp's all-reduces, with the matmuls of their block      gradients  the all-reduce over dp, with a backward
    gathers    ZeRO 3's all-gathers, with the work of a block         messages   between stages, with a stage's work
    context    keys and values, with attention                        experts    dispatched tokens, with the block

A fraction is below 1 for two reasons, which cannot be separated. The first and the last message overlap with nothing.
And copying bytes takes cores and bandwidth from the computation.

Source: the documentation of the programs says how they work (`REASONS`). The sizes of the fractions come from published
runs (`predict.judged`), never from the run that is predicted. See also `predict.plans.performance` and notebook 41.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount

PRECISIONS = ("bf16", "fp8", "fp4")  # of matmuls with weights; attention and the head stay in 16 bits


class Software(NamedTuple):
    """The properties of training programs, as numbers.

    launch     the exposed fraction of the fitted launch time: 1 if the host waits, 0 if it runs ahead
    asked      added to `launch` for each expert of a rank, if the host reads the loads from the device before it can
               launch the experts' matmuls
    early      full recomputation ends with the last tensor that the backward needs: the matmul after it is not repeated
    traffic    memory traffic for each saved byte, relative to fused kernels: eager programs write every intermediate
    library    speed of the GEMMs, relative to the libraries of 2021
    attention  speed of the fused attention kernel, relative to a GEMM
    gradient   bytes of a gradient, stored and reduced: 4 if microbatches are accumulated in single precision
    converted  bytes of a gradient next to its sum while it is added, of the largest matrix of a block: 2 as computed
               and 4 in the sum's precision; 0: the matmul adds to the sum itself
    each       sharded gradients are reduced after every microbatch, not once in a step
    layered    weights and gradients are sent layer by layer: each is a collective with a separate latency
    flat       one ring through all ranks: each sends only over its own link, and nothing is reduced inside nodes first
    ends       all-reduces along tp outside of blocks count too: the embedding's, the head's and two small ones of the
               loss. With a hundred blocks they are under 1 % of the time, and part of the fit; with four, a quarter
    once       a token is sent to a node once, even if several of its experts are there, and is copied inside the node
    network    the fraction of the links' bandwidth that collectives reach between nodes
    inside     the same inside a node
    tensor, gradients, gathers, messages, context, experts  the hidden fraction of each
    precision  of matmuls with weights: its index in PRECISIONS;  narrow  the fractions of the peaks' speed-up that
               matmuls in 8 and in 4 bits reach, casts and scales included
    """

    launch: float = 1.0
    asked: float = 0.0
    early: bool = False
    traffic: float = 1.0
    library: float = 1.0
    attention: float = 1.0
    gradient: int = 2
    converted: int = 0
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
    """The exposed seconds of a message: a fraction is hidden, at most as long as the overlapping work.

    >>> print(shown(4.0, beside=10.0, share=0.75), shown(4.0, beside=1.0, share=0.75), shown(4.0, 10.0, 0.0))
    1.0 3.0 4.0
    """
    if not share or not np.any(carried):
        return carried
    return carried - np.minimum(share * carried, beside)


MEGATRON_2021 = Software()
_HIDING = Software(
    launch=0.0, asked=0.1, library=1.1, attention=0.8, gradient=4, converted=6, each=True, layered=True, once=True,
    network=0.8, inside=0.8,
    tensor=0.5, gradients=0.9, gathers=0.9, messages=0.9, context=0.5,
)  # fmt: skip
SOFTWARE = {
    "megatron-2021": MEGATRON_2021,
    "deepspeed-2021": Software(flat=True, network=0.68),
    "megatron-2022": Software(launch=0.0),
    "megatron-2024": _HIDING,
    "megatron-2025": _HIDING._replace(gradient=2, converted=2),
    "megatron-static": _HIDING._replace(gradient=2, converted=2, asked=0.0),
    "meta-2024": _HIDING._replace(context=0.0, tensor=0.0),
    "fsdp-2023": Software(
        launch=0.0, early=True, traffic=1.6, library=1.1, attention=0.4, gradient=4, each=True, layered=True,
        gradients=0.6, gathers=0.6, network=0.7,
    ),
    "xla-2024": Software(
        launch=0.0, early=True, each=True, layered=True, tensor=0.5, gradients=0.9, gathers=0.9, messages=0.9,
        context=0.5,
    ),
}  # fmt: skip
REASONS = {  # the special properties of each
    "megatron-2021": "the program waits for every message, and the host launches each kernel after the previous one "
    "ends",
    "deepspeed-2021": "ZeRO 3 as in SC'21's table 2: one ring through all GPUs, at 17 of 25 GB/s (from that table)",
    "megatron-2022": "the host runs ahead of the device, so launches are hidden; messages are not hidden",
    "megatron-2024": "gradients are reduced in buckets during the last backward, and weights are gathered in buckets "
    "during the first forward; tp's collectives are cut into pieces that overlap with their matmuls, which hides "
    "about half; stages send ahead; gradients are stored in single precision; a token is sent to a node once; with "
    "dropless experts, the host reads their loads before it launches kernels",
    "megatron-2025": "the same as megatron-2024, but gradients are stored and reduced in 16 bits, as recipes of "
    "Megatron-Bridge ask for (grad_reduce_in_fp32=False)",
    "megatron-static": "the same as megatron-2025, but the host does not read the loads, because experts take a fixed "
    "number of tokens or full steps are replayed as graphs",
    "meta-2024": "the same as megatron-2024, but keys and values are gathered along cp before attention begins, and "
    "the program waits for tp's all-reduces",
    "fsdp-2023": "PyTorch's FSDP in eager mode: values that a fused kernel would hold in registers go through "
    "memory; recomputation ends early; the weights and gradients of each layer are sent separately, gradients in "
    "single precision, and these messages take cores from the computation",
    "xla-2024": "XLA on TPUs, as MaxText uses it: one compiled program, so nothing is launched; a recomputed forward "
    "omits the operations that no backward needs (dead code); collectives are asynchronous, and the hidden fractions "
    "are those of megatron-2024, not fitted to TPUs",
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
