"""Token slices: a row passes through the pipeline in slices of its tokens, so a few long rows fill it.

Causal attention only looks back. So a stage can compute the first tokens of a row before the later ones have arrived,
if it keeps their keys and values for later slices. One row in n slices then fills a pipeline as n microbatches do,
and a rank holds activations of slices instead of rows.

    stage s on slice i is stage s·n + i of the schedule; arrows of one row, n = 3:

    stage 0   0 ─▶ 1 ─▶ 2        ─▶  keys and values, inside a rank
              ▼    ▼    ▼         ▼  the stream of activations, to the next rank
    stage 1   3 ─▶ 4 ─▶ 5

Each slice of a stage is a stage of the law, because a key gets a gradient from every later slice. So the backward of a
row goes from its last slice to its first, and the law refuses any other order.

Source: Li et al. 2021, "TeraPipe", arXiv:2102.07988; Sun et al. 2024, "Seq1F1B", arXiv:2406.03488. Relatives:
`interleaved`, whose table the chunks follow; `training.models.slices`, the model; `predict.plans.slicing`, lengths.
"""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions, alternate
from hybridlab.scheduling.interleaved import groups, round_the_ranks, table
from hybridlab.scheduling.zero_bubble import delayed


def seq1f1b(ranks: int, microbatches: int, slices: int = 2, chunks: int = 1, halves: bool = False) -> Schedule:
    """1F1B over the slices of each row: forwards start with the first slice, backwards with the last.

    Placement:   stage s on slice i is stage s·n + i; stage k·p + r of the model on rank r, for chunk k
    Order:       F × w, then (F, B), then B, with w = min(p-1-r + n-1, n·m); with v chunks w = min(2(p-1-r) + (v-1)N +
                 n-1, v·n·m) on the table of interleaved, in groups of whole rows: N slices each, at least p if there
                 are that many; with halves w = (p-1-r) + (v-1)N + n-1, I for B, and W r slices later, as in ZB-H1
    Needs:       a model with causal attention
    Bubble:      bubble_overhead (p-1)/(v·n·m), of slices of equal cost, for n·m ≥ p or one chunk; idle (p-1)(F+B), of
                 one slice in one chunk; with halves idle (p-1)F at F = I = W, for n(m-1) ≥ p-1
    Peak:        min(n+p-1-r, n·m) slices on rank r, for one chunk: 1 + (p-1-r)/n rows; with halves min(n+p-1, n·m)
    Source:      Sun et al. 2024, arXiv:2406.03488

    raises  ValueError if `slices` or `chunks` are not possible

    >>> print(seq1f1b(ranks=2, microbatches=2, slices=2))
    rank 0: 0F0 1F0 0F1 1B0 1F1 0B0 1B1 0B1
    rank 1: 2F0 3F0 3B0 2F1 2B0 3F1 3B1 2B1
    """
    _refuse(slices)
    sizes = [slices * rows for rows in groups(-(-ranks // slices), microbatches, None)]
    programs = []
    hold = slices - 1 + (chunks - 1) * sizes[0]
    for r in range(ranks):
        forwards, backwards = _passes(ranks, r, chunks, sizes, slices)
        w = min((ranks - 1 - r) * (1 if halves or chunks == 1 else 2) + hold, len(forwards))
        if halves:
            inputs, weights = (_renamed(backwards, kind) for kind in "IW")
            programs.append(delayed(forwards, inputs, weights, warm=w, delay=r))
        else:
            steady = alternate(forwards[w:], backwards[: len(backwards) - w])
            programs.append(np.concatenate([forwards[:w], steady, backwards[len(backwards) - w :]]))
    return on_slices(Schedule.of("seq1f1b", programs, _place(ranks, chunks, slices), microbatches), slices)


def terapipe(ranks: int, microbatches: int, slices: int = 2) -> Schedule:
    """GPipe over the slices of each row: all forwards, then all backwards, those of a row from its last slice on.

    Placement:   stage s on slice i is stage s·n + i, on rank s
    Order:       F × n·m, then B × n·m, row after row
    Needs:       a model with causal attention
    Bubble:      bubble_overhead (p-1)/(n·m), of slices of equal cost
    Peak:        n·m slices on every rank
    Source:      Li et al. 2021, arXiv:2102.07988

    raises  ValueError if `slices` are not possible

    >>> print(terapipe(ranks=2, microbatches=1, slices=2))
    rank 0: 0F0 1F0 1B0 0B0
    rank 1: 2F0 3F0 3B0 2B0
    """
    _refuse(slices)
    whole = [slices * microbatches]
    programs = [np.concatenate(_passes(ranks, r, 1, whole, slices)) for r in range(ranks)]
    return on_slices(Schedule.of("terapipe", programs, _place(ranks, 1, slices), microbatches), slices)


def on_slices(schedule: Schedule, slices: int) -> Schedule:
    """The same schedule with the dependencies between slices; in its list of actions, stage s·n + i is stage s on slice
    i.

    schedule  the list of actions
    slices    n

    raises  ValueError if the stages are not a multiple of n, or the list has two directions, arrows or messages already

    >>> on_slices(Schedule.from_csv("0F0,1F0,1B0,0B0\\n2F0,3F0,3B0,2B0"), slices=2).skips
    ((0, 2), (1, 3))
    """
    _refuse(slices)
    if schedule.replicas > schedule.dp:
        raise ValueError(
            f"slices={slices} is invalid: {schedule.name} runs in two directions, but the gradient of a key is on "
            "only one rank. Give a schedule in one direction"
        )
    if schedule.lowered or schedule.skips or schedule.breaks or schedule.exchanges:
        raise ValueError(
            f"slices={slices} is invalid: {schedule.name} already has messages or arrows between its stages. Give a "
            "plain list of actions"
        )
    if schedule.stages % slices:
        raise ValueError(
            f"slices={slices} is invalid: {schedule.name} has {schedule.stages} stages, which is not a multiple of "
            f"{slices}. Number stage s on slice i as s·slices + i"
        )
    last = schedule.stages - slices
    down = [] if slices == 1 else [(stage, stage + slices) for stage in range(last)]
    ends = [] if slices == 1 else [(stage - 1, stage) for stage in range(slices, schedule.stages, slices)]
    chunks = max(1, len(schedule.place) // schedule.ranks)
    more = {"skips": tuple(down), "breaks": tuple(ends), "slices": slices, "chunks": chunks}
    return schedule.with_programs(np.split(schedule.rows, schedule.starts[1:-1]), fused=schedule.fused, **more)


def _passes(ranks: int, rank: int, chunks: int, sizes: list[int], slices: int) -> tuple[np.ndarray, np.ndarray]:
    """All forwards and all backwards of one rank, by the table of interleaved, with slices as microbatches."""
    chunk, number = table(chunks, sizes)
    row, slice_ = np.divmod(number, slices)
    forwards, backwards = actions("F", 0, row), actions("B", 0, row)
    forwards[:, 1] = (chunk * ranks + rank) * slices + slice_
    backwards[:, 1] = ((chunks - 1 - chunk) * ranks + rank) * slices + slices - 1 - slice_
    return forwards, backwards


def _renamed(backwards: np.ndarray, kind: str) -> np.ndarray:
    """The same actions, of another kind."""
    rows = backwards.copy()
    rows[:, 0] = actions(kind, 0)[0, 0]
    return rows


def _place(ranks: int, chunks: int, slices: int) -> dict[tuple[int, int], int]:
    homes = round_the_ranks(ranks, chunks)
    return {(stage * slices + i, 0): rank for (stage, _), rank in homes.items() for i in range(slices)}


def _refuse(slices: int) -> None:
    if not isinstance(slices, int) or isinstance(slices, bool) or slices < 1:
        raise ValueError(f"slices={slices!r} is invalid: it must be a number of slices. Give a whole number, 1 or more")
