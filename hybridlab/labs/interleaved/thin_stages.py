"""Notebook 13: thin stages, predicted and really run, until slow messages turn their gain into a loss."""

import itertools

import hybridlab as hl

MICROBATCHES = 4  # microbatches of a real step: few, so that a sweep is short
LATENCIES = (0, 0.5, 1.5)  # units: rank forwards
UNIT = 0.08  # seconds that a rank's forward takes; with four chunks, the shortest action takes a quarter of it


def thinned(chunks: int, ranks: int = 4, microbatches: int = 8) -> hl.Schedule:
    """Interleaved 1F1B; with one chunk per rank it is 1F1B."""
    if chunks == 1:
        return hl.schedule("1f1b", ranks=ranks, microbatches=microbatches)
    return hl.schedule("interleaved", ranks=ranks, microbatches=microbatches, chunks=chunks)


def costs(chunks: int, latency: float = 0, unit: float = 1) -> hl.Costs:
    """A rank's forward takes one unit and its backward two, for any number of chunks.

    >>> costs(2, latency=0.1)
    Costs(F=0.5, B=1.0, latency=0.1)
    """
    return hl.Costs(F=unit / chunks, B=2 * unit / chunks, latency=latency * unit)


def run(chunks: int, latency: float, unit: float = UNIT, steps: int = 1) -> hl.Timeline:
    """A real run on four ranks with emulated work; every message takes at least `latency` units."""
    return hl.run(thinned(chunks, 4, MICROBATCHES), costs=costs(chunks, 0, unit), latency=latency * unit, steps=steps)


def sweep(chunks=(1, 2, 4), latencies=LATENCIES, unit: float = UNIT) -> dict[tuple[int, float], hl.Timeline]:
    """A real run for each number of chunks and each message time: {(chunks, latency): measured timeline}."""
    return {(v, latency): run(v, latency, unit) for v in chunks for latency in latencies}


def length(chunks: int, latency: float) -> float:
    """The predicted length of the same step, in units.

    >>> length(1, 0), length(4, 0)
    (21.0, 14.25)
    """
    return hl.simulate(thinned(chunks, 4, MICROBATCHES), costs(chunks, latency)).length


def loses_from(chunks: int, step: float = 0.01) -> float:
    """The smallest message time, in multiples of `step` units, for which this number of chunks is not better than 1F1B.

    >>> loses_from(8)
    0.16
    """
    for count in itertools.count(1):
        latency = count * step
        many, one = (hl.simulate(thinned(v), costs(v, latency)).length for v in (chunks, 1))
        if many >= one:
            return round(latency, 9)


def speed_up(row: dict) -> float:
    """The speed-up of a step of a published configuration by interleaving, from its published durations.

    row  one of `published("zero_bubble_tables")`
    """
    ranks, microbatches, chunks = (row[name] for name in ("stages_p", "microbatches_m", "chunks_v_for_1F1B_I"))
    forward, backward, message = row["TF_ms"], row["TB_ms"] + row["TW_ms"], row["Tcomm_ms"]
    one, many = (
        hl.simulate(thinned(v, ranks, microbatches), hl.Costs(F=forward / v, B=backward / v, latency=message)).length
        for v in (1, chunks)
    )
    return one / many


def sent(real: hl.Timeline) -> int:
    """The bytes of a step's messages, from the ranks' ledgers."""
    rows = (row for row in real.ledger if row["op"] == "isend" and row["purpose"] == "messages")
    return sum(row["bytes"] for row in rows) // (real.steps + 1)  # one step was run but not measured
