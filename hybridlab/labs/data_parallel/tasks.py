"""The exercises of notebook 21, data parallelism. The package computes every number, as for all notebooks."""

import functools
from functools import partial

import numpy as np

from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.data_parallel import build_tasks
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.words import in_words
from hybridlab.labs.trials.trial import OnRanks
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.time.buckets import overlap

ROWS = (1, 3)  # of the batch, on each rank
FEATURES, WIDTH = 4, 2
LAST = {"ranks": 8, "link": Link(30e-6, 1 / 25e9), "bytes": (26e6, 9e6), "full": (26e-3, 28e-3)}
MOST, LARGEST, WITHIN = 10, 48 << 20, 1.15  # buckets, bytes of one, times the best, in data_parallel.buckets

task = partial(Task, notebook="21_data_parallel")


# --- one gradient, as on a single process -------------------------------------------------------------------------


def tied_numbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weight, inputs, targets) of the model x·w·wᵀ, which uses w twice, for the rows of all ranks."""
    draw = np.random.default_rng(0)
    return tuple(draw.normal(size=shape) for shape in ((FEATURES, WIDTH), *[(sum(ROWS), FEATURES)] * 2))


def tied_part(rank: int) -> tuple:
    """(first, last, x, targets) as tensors: the two uses of one weight, as separate copies, and a rank's rows."""
    import torch

    w, *rows = map(torch.tensor, tied_numbers())
    start = sum(ROWS[:rank])
    parts = [row[start : start + ROWS[rank]] for row in rows]
    return w.clone().requires_grad_(), w.clone().requires_grad_(), *parts


def _uses(rank):
    """The gradients of a rank's *summed* squared errors with respect to the first use of the weight, and the last."""
    w, x, targets = tied_numbers()
    mine = slice(sum(ROWS[:rank]), sum(ROWS[: rank + 1]))
    error = 2 * (x[mine] @ w @ w.T - targets[mine])
    return np.stack([x[mine].T @ error @ w, error.T @ x[mine] @ w])


def tied_gradient() -> list[float]:
    """The gradient of the mean over all rows with respect to the weight, as one process computes it."""
    return (sum(_uses(rank).sum(axis=0) for rank in (0, 1)) / sum(ROWS)).flatten().tolist()


def _equal(answer) -> Verdict:
    """The gradient of the tied weight, from each of two ranks."""
    try:
        homes = np.array([[float(value) for value in home] for home in answer])
    except (TypeError, ValueError, OverflowError):
        homes = np.zeros(0)
    if homes.shape != (2, FEATURES * WIDTH):
        return False, f"Answer with a function that returns {FEATURES * WIDTH} numbers from each of two ranks."
    if np.allclose(homes, tied_gradient(), rtol=1e-9, atol=0):
        return True, "Both ranks hold the gradient that one process computes for a weight that is used twice."
    for wrong, told in _slips():
        if all(np.allclose(home, its.flatten(), rtol=1e-9, atol=0) for home, its in zip(homes, wrong)):
            return False, told
    return False, "This is not the gradient of the mean over all four rows."


def _slips():
    """(the gradients on the two ranks, the mistake that gives them)."""
    one, two = (_uses(rank) for rank in (0, 1))
    means = [one.sum(axis=0) / ROWS[0], two.sum(axis=0) / ROWS[1]]
    total = (one + two).sum(axis=0)
    for own in (means, [one.sum(axis=0) / 4, two.sum(axis=0) / 4]):
        yield own, "Each rank has its own gradient: nothing was summed over the ranks."
    yield [sum(means)] * 2, "That is a sum of means. Divide the local sums by the number of all rows, 4."
    yield [sum(means) / 2] * 2, "That is a mean of means: the one row of rank 0 counts as much as three of rank 1."
    yield [total] * 2, "That is the gradient of the sum. Divide by the number of all rows, 4."
    yield [total / 2] * 2, "You divided the sum by the number of ranks. Divide it by the number of all rows, 4."
    yield (
        [total / 8] * 2,
        ("You divided by the number of all rows, and also by the number of ranks. The first is enough."),
    )
    for use, name in enumerate(("first", "last")):
        only = "Only one use of the weight has contributed; the other one belongs to the gradient too."
        yield [(one + two)[use] / 4] * 2, f"{only} This is the gradient of {name} alone."
        yield [one[use] / ROWS[0], two[use] / ROWS[1]], f"{only} And nothing was summed over the ranks."
        yield [one[use] / ROWS[0] + two[use] / ROWS[1]] * 2, f"{only} And each rank took the mean over its own rows."


# --- buckets ------------------------------------------------------------------------------------------------------


def _layout(sizes, ranks, packs) -> Layout:
    """Parameters of these sizes in bytes, the first one made last by the backward; packs[i] is the pack of number i."""
    params = [Param(f"{i}", (round(size / 4),), partial=("dp",), pack=packs[i]) for i, size in enumerate(sizes)]
    return Layout(Mesh(dp=ranks), tuple(params))


def _last_exposed(busy=True, early=True):
    """ms exposed by the last two buckets; without `busy`, by the last one alone."""
    sizes, full = LAST["bytes"][::-1], dict(zip("10", LAST["full"]))
    if not busy:
        sizes, full = sizes[:1], {"0": full["0"]}
    layout = _layout(sizes, LAST["ranks"], range(len(sizes))[::-1])
    return 1e3 * overlap(layout, full, LAST["link"], early=early).exposed


def _order_exposed(reverse: bool, count: int, each: float, sums: float):
    """ms exposed when a bucket per layer goes in one order or the other; the backward makes the last layer first."""
    packs = range(count)[::-1] if reverse else range(count)
    made = {f"{layer}": each * (count - layer) / 1e3 for layer in range(count)}
    alone = Link(alpha=sums / 2e3, beta=0.0)  # two messages between two ranks: every sum takes so long
    return 1e3 * overlap(_layout([4] * count, 2, packs), made, alone).exposed


@functools.cache
def best_exposed(most: int = MOST, largest: float = LARGEST) -> float:
    """The least exposed seconds of the large model with at most `most` buckets of neighbours, each of `largest` bytes.

    Dynamic programming: the soonest end of the first i gradients in k buckets follows from the ends with k-1.
    """
    from hybridlab.labs.data_parallel.pictures import LINK, RANKS, model

    one = model()
    names, sizes = zip(*one.gradients)
    ends, made = np.concatenate([[0], np.cumsum(sizes)]), np.array([one.made[name] for name in names])
    alpha, beta = (LINK.seconds("all_reduce", RANKS, size) for size in (0, 1))
    soonest, best = np.full(len(ends), np.inf), np.inf
    soonest[0] = 0.0
    for _ in range(most):
        ready = np.maximum(soonest[:-1, None], made[None, :])  # a bucket from gradient j up to gradient i
        size = ends[None, 1:] - ends[:-1, None]
        sums = np.where((size > 0) & (size <= largest), ready + alpha + (beta - alpha) * size, np.inf)
        soonest = np.concatenate([[np.inf], sums.min(axis=0)])
        best = min(best, soonest[-1])
    return float(best - made[-1])


def _bucketed(answer) -> Verdict:
    """The verdict on lists of names: every gradient once, few buckets, and little exposed time."""
    from hybridlab.labs.data_parallel.pictures import LINK, model

    one = model()
    try:
        found = overlap(one.grouped(answer), one.made, LINK)
    except (TypeError, ValueError) as error:
        return False, str(error) if isinstance(error, ValueError) else "Give a list of buckets, each a list of names."
    count, exposed, target = len(found.buckets), 1e3 * found.exposed, 1e3 * WITHIN * best_exposed()
    told = f"{count} bucket{'s' * (count != 1)}, {exposed:.2f} ms exposed"
    if count > MOST:
        return False, f"{told}. At most {MOST} buckets are allowed."
    if (largest := max(bucket.bytes for bucket in found.buckets)) > LARGEST:
        return False, f"{told}, but one bucket has {largest / 2**20:.1f} MiB. {LARGEST >> 20} MiB are allowed."
    if exposed > target:
        return False, f"{told}. Expose at most {target:.2f} ms."
    return True, f"{told}; with {MOST} buckets of consecutive gradients, {1e3 * best_exposed():.2f} ms is the best."


def _reverse(count, each, sums):
    """The exercise about the other order: `count` layers, `each` ms for a backward, `sums` ms for an all-reduce."""
    usual = _order_exposed(True, count, each, sums)
    return task(
        f"A model has {count} layers. Each has a backward of {each} ms and its own bucket, and an all-reduce takes "
        f"{sums} ms. If the buckets are sent in the order of the backward, {usual:g} ms are exposed. Now number "
        "the buckets from the first layer to the last, and send them in this order. How many ms are exposed?",
        Number(
            lambda: _order_exposed(False, count, each, sums),
            "ms",
            slips=[
                (usual, "That is the order of the backward. Which gradient is computed last?"),
                (count * (sums + each), "That includes the backward too. Only the time after it is exposed."),
                (
                    (count - 1) * sums,
                    f"One is missing: can any of the {in_words(count)} begin before the backward has ended?",
                ),
            ],
        ),
        (
            "Bucket 0 is sent first. When is it full?",
            "The first layer's gradient is computed last. So no all-reduce begins before the backward ends, and all "
            f"{in_words(count)} come after it.",
            f"{in_words(count).capitalize()} all-reduces of {sums} ms, one after another, all after the backward.",
        ),
        objective="Say why buckets are sent in the order of the backward.",
        difficulty=1,
        minutes=3,
    )


TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    "data_parallel.equal": task(
        f"Rank 0 has {ROWS[0]} row of the batch, rank 1 has {ROWS[1]}. The model uses one weight twice; in the next "
        "cell, `first` and `last` are copies of it. On each rank, return the gradient that one process would compute "
        "for this weight, as a flat list. The loss is the mean over all four rows.",
        OnRanks(_equal, (2,)),
        (
            "Divide the local sum by the number of rows on all ranks. Then add the gradients of both uses and of all "
            "ranks.",
            "squares has the squared errors of the rank's rows, so the loss of a rank is squares.sum() / 4. Add the "
            "gradients of both uses before the all-reduce.",
            "loss = squares.sum() / 4, and after the backward g = first.grad + last.grad; comm.all_reduce(g)",
        ),
        objective="Compute the gradient of one process on ranks with unequal numbers of rows.",
        difficulty=2,
        minutes=6,
    ),
    "data_parallel.reverse": varying(_reverse, count=(4, 5, 6, 8), each=(5, 6, 10), sums=(4, 3, 2)),
    "data_parallel.exposed": task(
        f"{LAST['ranks']} ranks have links with α = 30 µs and 25 GB/s. The backward ends at 28 ms. The bucket before "
        "the last, of 26 MB, is full at 26 ms, and the link is free then. The last one, of 9 MB, is full at 28 ms. How "
        "many ms are exposed, to two decimals? An all-reduce is a ring, as in notebook 20.",
        Number(
            _last_exposed,
            "ms",
            within=0.005,
            slips=[
                (_last_exposed(busy=False), "That is the last all-reduce alone. Is the link free at 28 ms?"),
                (
                    _last_exposed(early=False),
                    "That is both all-reduces. The first of them begins at 26 ms, during the backward.",
                ),
            ],
        ),
        (
            "The last all-reduce begins as soon as its bucket is full and the link is free: at the later of these two "
            "times.",
            "max(28, 26 + time of 26 MB) + time of 9 MB - 28; an all-reduce takes 14 · 30 µs + 1.75 · bytes / 25 GB/s.",
            "26 MB take 2.24 ms, so the link is free at 28.24 ms. 9 MB take 1.05 ms.",
        ),
        objective="Say which part of the all-reduces the backward cannot hide.",
        difficulty=2,
        minutes=4,
    ),
    "data_parallel.buckets": task(
        f"Group the gradients of the large model into at most {MOST} buckets. A bucket is a copy of its gradients, so "
        f"none may be larger than {LARGEST >> 20} MiB. The exposed time may be at most {WITHIN:g} times the shortest "
        "possible. Give a list of buckets in the order in which they are sent; each bucket is a list of names.",
        _bucketed,
        (
            "Fill a bucket until the next gradient would not fit, then begin another. Which size is good?",
            "Large buckets need fewer messages, but the last one is exposed: choose a size that leaves little for it.",
            "With 38 to 40 MiB for every bucket there are few enough, and the last one is small enough.",
        ),
        objective="Group gradients into buckets within limits of number, memory and time.",
        difficulty=3,
        minutes=12,
    ),
}
