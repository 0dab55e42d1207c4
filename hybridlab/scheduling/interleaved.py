"""Interleaved 1F1B: every rank owns several thin stages, and the bubble shrinks with their number."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions


def interleaved(ranks: int, microbatches: int, chunks: int = 2, group: int | None = None) -> Schedule:
    """1F1B with several chunks per rank: groups of microbatches pass through one chunk after another, depth first.

    Placement:   stage k·p + r on rank r, for chunk k
    Order:       the table of `table`; F × w, then (F, B), then B, with w = min(2(p-1-r) + (v-1)N, v·m)
    Needs:       groups of N ≥ p microbatches; by default as few uneven ones as possible, N about p
    Bubble:      bubble_overhead (p-1)/(v·m); per chunk costs, idle (p-1)(F+B) as in 1F1B with stages v times thinner
    Peak:        min((v-1)N + 2(p-1-r) + 1, v·m) chunks on rank r (N = p)
    Source:      Narayanan et al. 2021, arXiv:2104.04473; the factor 2 in w, because a microbatch that leaves must come
                 back

    raises  ValueError if `chunks` or `group` is not possible

    >>> print(interleaved(ranks=2, microbatches=2, chunks=2))
    rank 0: 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
    """
    sizes = groups(ranks, microbatches, group)
    forwards, backwards = passes(ranks, 0, chunks, sizes)
    length = len(forwards) + len(backwards)
    rows = np.empty((ranks * length, forwards.shape[1]), dtype=np.int64, order="F")  # the law reads whole columns
    for r in range(ranks):
        w = min(2 * (ranks - 1 - r) + (chunks - 1) * sizes[0], chunks * microbatches)
        program = rows[r * length : (r + 1) * length]
        program[:w], program[length - w :] = forwards[:w], backwards[len(backwards) - w :]
        program[w : length - w : 2], program[w + 1 : length - w : 2] = forwards[w:], backwards[: len(backwards) - w]
        program[:, 1] += r  # what rank 0 does on stage s, rank r does on stage s + r
    starts, place = length * np.arange(ranks + 1), round_the_ranks(ranks, chunks)
    return Schedule("interleaved", rows, starts, place, microbatches, (0,) * microbatches, chunks)


def groups(ranks: int, microbatches: int, group: int | None) -> list[int]:
    """The sizes of the groups of microbatches that pass through the chunks together.

    ranks         p
    microbatches  m
    group         the requested size; None: as below

    raises  ValueError if groups of this size do not fit

    By default, max(1, m // p) groups of nearly equal sizes; if they are equal, PyTorch uses the same groups.

    >>> groups(4, 10, None), groups(4, 9, None), groups(4, 12, 8)
    ([5, 5], [5, 4], [8, 4])
    """
    if group is None:
        return [len(part) for part in np.array_split(np.arange(microbatches), max(1, microbatches // ranks))]
    rest = microbatches % group if group > 0 else 0
    if not min(ranks, microbatches) <= group <= microbatches or 0 < rest < ranks:
        fits = [n for n in range(min(ranks, microbatches), microbatches + 1) if not 0 < microbatches % n < ranks]
        raise ValueError(f"group={group} does not fit {microbatches} microbatches on {ranks} ranks: choose from {fits}")
    return [group] * (microbatches // group) + [rest] * (rest > 0)


def table(chunks: int, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The order of virtual microbatches, as (chunk, microbatch) columns: group by group, chunk by chunk.

    chunks  v, stages per rank
    sizes   of the groups of microbatches, in order

    raises  ValueError if chunks is not an integer of 1 or more

    >>> [column.tolist() for column in table(2, [3, 2])]
    [[0, 0, 0, 1, 1, 1, 0, 0, 1, 1], [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]]
    """
    if not isinstance(chunks, int) or chunks < 1:
        raise ValueError(f"chunks={chunks!r} is not possible: give a whole number of stages per rank, 1 or more")
    firsts = np.cumsum([0] + sizes[:-1])
    chunk = np.concatenate([np.repeat(np.arange(chunks), size) for size in sizes])
    microbatch = np.concatenate([np.tile(first + np.arange(size), chunks) for first, size in zip(firsts, sizes)])
    return chunk, microbatch


def passes(ranks: int, rank: int, chunks: int, sizes: list[int], backward: str = "B") -> tuple[np.ndarray, np.ndarray]:
    """All forwards and all backwards of one rank, in the order of the table; backwards start with the last chunk."""
    chunk, microbatch = table(chunks, sizes)
    forwards, backwards = actions("F", 0, microbatch), actions(backward, 0, microbatch)
    forwards[:, 1] = chunk * ranks + rank
    backwards[:, 1] = (chunks - 1 - chunk) * ranks + rank
    return forwards, backwards


def looped(name: str, programs: list, ranks: int, microbatches: int, chunks: int) -> Schedule:
    """A schedule whose stages go round the ranks: stage k·p + r on rank r."""
    return Schedule.of(name, programs, round_the_ranks(ranks, chunks), microbatches, chunks=chunks)


def round_the_ranks(ranks: int, chunks: int) -> dict[tuple[int, int], int]:
    """Stage k·p + r on rank r, as a schedule's `place`."""
    return {(stage, 0): stage % ranks for stage in range(chunks * ranks)}
