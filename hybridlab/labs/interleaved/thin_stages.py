"""Notebook 13: thin stages, predicted and really run, until slow messages turn their gain into a loss."""

import hybridlab as hl

MICROBATCHES = 4  # of a real step: few, so that a sweep is short
LATENCIES = (0, 0.5, 1.5)  # units: rank forwards
UNIT = 0.08  # seconds that a rank's forward takes; a quarter of it is the shortest action of four chunks


def thinned(chunks: int, ranks: int = 4, microbatches: int = 8) -> hl.Schedule:
    """Interleaved 1F1B; with one chunk per rank it is 1F1B."""
    if chunks == 1:
        return hl.schedule("1f1b", ranks=ranks, microbatches=microbatches)
    return hl.schedule("interleaved", ranks=ranks, microbatches=microbatches, chunks=chunks)


def costs(chunks: int, latency: float = 0, unit: float = 1) -> hl.Costs:
    """A rank's forward takes one unit and its backward two, whatever the number of its chunks.

    >>> costs(2, latency=0.1)
    Costs(F=0.5, B=1.0, latency=0.1)
    """
    return hl.Costs(F=unit / chunks, B=2 * unit / chunks, latency=latency * unit)


def run(chunks: int, latency: float, unit: float = UNIT, steps: int = 1) -> hl.Timeline:
    """A real run on four ranks: waiting in place of computing, every message under way for `latency` units at least."""
    return hl.run(thinned(chunks, 4, MICROBATCHES), costs=costs(chunks, 0, unit), latency=latency * unit, steps=steps)


def sweep(chunks=(1, 2, 4), latencies=LATENCIES, unit: float = UNIT) -> dict[tuple[int, float], hl.Timeline]:
    """A real run for each number of chunks and each latency: {(chunks, latency): measured timeline}."""
    return {(v, latency): run(v, latency, unit) for v in chunks for latency in latencies}


def length(chunks: int, latency: float) -> float:
    """The predicted length of the same step, in units.

    >>> length(1, 0), length(4, 0)
    (21.0, 14.25)
    """
    return hl.simulate(thinned(chunks, 4, MICROBATCHES), costs(chunks, latency)).length


def sent(real: hl.Timeline) -> int:
    """The bytes that a step's messages took, from what the ranks' ledgers counted."""
    rows = (row for row in real.ledger if row["op"] == "isend" and row["purpose"] == "messages")
    return sum(row["bytes"] for row in rows) // (real.steps + 1)  # one step was played and not measured
