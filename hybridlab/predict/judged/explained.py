"""Explained: the reasons of the largest errors, and the published errors of other predictors."""

from typing import NamedTuple

from hybridlab.predict.judged.run import Run

SLOW_RELEASES = ("release 25.11", "release 26.02")


def why(run: Run) -> str:
    """The reason for a large error, or that it is not known."""
    return next((said for about, said in REASONS if about(run)), "not known")


REASONS = (  # (whether it is about a run, why); the first that holds
    (
        lambda run: run.note == "figure 7",
        "heads of width 32: products of queries and keys wait for memory, we count them at the speed of large ones",
    ),
    (
        lambda run: run.note == "figure 15" and run.plan.t > 8,
        "tp across nodes: the host launches while messages are on their way, and we add both",
    ),
    (lambda run: run.note == "figure 15", "a step of half a second: about 0.3 s that no term of ours has"),
    (
        lambda run: run.note == "figure 17" and run.batch == 1,
        "one sequence in 16 stages; read off as 0.6 of a sequence a second, ±0.05",
    ),
    (
        lambda run: run.note in SLOW_RELEASES and run.shape.experts > 1,
        "slow in this release: the next one runs the same plan, or one with larger microbatches, about twice as fast",
    ),
    (
        lambda run: run.note == "release 26.02.01" and run.plan.v == 1 and run.plan.p > 1,
        "the row prints no chunks; with five, as in the releases before and after it, 16 % too slow",
    ),
    (
        lambda run: run.model == "mpt-30b" and run.shape.context == 8192,
        "memory is full, and speed far below the row with 4 096 tokens; what an allocator costs then is no term",
    ),
    (
        lambda run: run.model == "mpt-760m" and run.shape.context <= 1024,
        "not known: this model alone gets slower where smaller and larger ones get faster",
    ),
    (
        lambda run: run.machine == "gb300",
        "nobody else has published rows of a GB300: it has the H100's share of the peak, and reaches more",
    ),
    (
        lambda run: run.machine == "h100" and run.shape.experts > 1 and run.plan.ep > 8,
        "tokens cross nodes: how much of it is hidden is not printed",
    ),
    (
        lambda run: run.machine == "h100" and run.source == "megatron_bridge",
        "newer libraries than those of the sources that it is calibrated on",
    ),
)


class Peer(NamedTuple):
    """What a predictor says of itself, and where."""

    name: str
    said: str
    source: str


PEERS = (
    Peer(
        "Calculon",
        "3.65 % on average over runs of Megatron-LM on A100s (our rows `selective_recomputation`); the efficiencies of "
        "operations are set by hand",
        "Isaev et al. 2023, SC'23, doi 10.1145/3581784.3607102; figure recalled",
    ),
    Peer(
        "SimAI",
        "1.9 % on average (98.1 % alignment); kernels are measured on the machine that is predicted, the network is "
        "simulated packet by packet",
        "Wang et al. 2025, NSDI'25; figure recalled",
    ),
    Peer(
        "SimuMax",
        "memory within 0.5 % on eight footprints of a B200; efficiencies are measured shape by shape",
        "MooreThreads/SimuMax; figure recalled",
    ),
)
