"""Explain the largest errors of the predictor."""

from hybridlab.predict.judged.run import Run

SLOW_RELEASES = ("release 25.11", "release 26.02")


def why(run: Run) -> str:
    """The reason for a large error, or "not known"."""
    return next((said for about, said in REASONS if about(run)), "not known")


REASONS = (  # (whether the reason applies to a run, the reason); the first one that applies is taken
    (
        lambda run: run.note == "figure 7",
        "heads of width 32: the matmuls of queries and keys are memory-bound, but we count them at the speed of "
        "large ones",
    ),
    (
        lambda run: run.note == "figure 15" and run.plan.t > 8,
        "tp across nodes: the host launches kernels while messages are sent, but we add both times",
    ),
    (lambda run: run.note == "figure 15", "the step is short: it contains about 0.3 s that none of our terms covers"),
    (
        lambda run: run.note == "figure 17" and run.batch == 1,
        "one sequence in 16 stages; the figure shows 0.6 sequences per second, ±0.05",
    ),
    (
        lambda run: run.note in SLOW_RELEASES and run.shape.experts > 1,
        "this release is slow: the next one runs the same plan, or one with larger microbatches, about twice as fast",
    ),
    (
        lambda run: run.note == "release 26.02.01" and run.plan.v == 1 and run.plan.p > 1,
        "the row does not give the number of chunks; with five, as in the releases before and after it, our speed is "
        "16 % too low",
    ),
    (
        lambda run: run.model == "mpt-30b" and run.shape.context == 8192,
        "memory is full, and the run is much slower than the row with 4096 tokens; we have no term for the "
        "allocator's cost",
    ),
    (
        lambda run: run.model == "mpt-760m" and run.shape.context <= 1024,
        "cause not found: only this model gets slower here; smaller and larger models get faster",
    ),
    (
        lambda run: run.machine.startswith("tpu"),
        "with more slices XLA loses some speed for which we have no term; what it saves and repeats differs from our "
        "three ways",
    ),
    (
        lambda run: run.machine == "gb300",
        "no other source has runs on a GB300, so we use the H100's fraction of the peak; the GB300 reaches more",
    ),
    (
        lambda run: run.machine == "h100" and run.shape.experts > 1 and run.plan.ep > 8,
        "tokens cross nodes; the source does not say how much of this is hidden",
    ),
    (
        lambda run: run.machine == "h100" and run.source == "megatron_bridge",
        "its libraries are newer than those of the sources used for calibration",
    ),
)
