"""A pipeline next to ZeRO 3 on the same number of ranks: two ways to shard the weights of one job, from dry runs."""

import hybridlab as hl
from hybridlab.core.dry import DryRun
from hybridlab.labs.rows import Table, table
from hybridlab.show.layouts.memory_bars import size

HEADS = ("rank 0", "peak", "weights and optimizer", "activations", "sent in a step", "when")
WHENS = {"pipeline": "between stages, for every microbatch", "ZeRO 3": "around every layer"}


def pipeline_or_zero(ranks: int, **job) -> Table:
    """The costs of a job on rank 0, as a pipeline of some ranks, and with ZeRO 3 on them.

    ranks  of either;  job  arguments of `hl.dry_run`

    >>> print(pipeline_or_zero(2, model=hl.Shape(layers=2)))
    rank 0 ...
    """
    runs = {"pipeline": hl.dry_run(hl.Mesh(pp=ranks), **job), "ZeRO 3": hl.dry_run(hl.Mesh(dp=ranks), zero=3, **job)}
    return table(HEADS, [(name, *_costs(run), WHENS[name]) for name, run in runs.items()])


def _costs(run: DryRun) -> tuple[str, ...]:
    peak = run.peak
    kept = peak["weights"] + peak["optimizer"]
    return size(run.peak_bytes), size(kept), size(peak["activations"]), size(sum(run.bytes.values()))
