"""Notebook 33 on real ranks: the counted words of each way; the time of a ring in order and in a zigzag."""

import time
from contextlib import contextmanager
from functools import partial

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.chunks import Chunks
from hybridlab.labs.context.sizes import of_one_layer
from hybridlab.labs.trials.against import gap, words_of
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.context import ATTEND

WAYS = [way for way in ATTEND if way != "usp"]  # a ring of groups is measured separately
WHEN = ("forward", "backward")
SIZES = (2, 8, 4, 32, 16)  # the sizes in `sent`: sequences, heads of queries and of keys, positions, width of a head


def sent(pool, sizes=SIZES) -> Table:
    """Words that a rank sends in one layer's attention, forward and backward, counted and predicted, for each way."""
    sequences, heads, keys, context, width = sizes
    shape = Shape(width=heads * width, heads=heads, kv_heads=keys, context=context)
    foreseen = lambda way, when: sequences * of_one_layer(way, shape, pool.size, when, width=1)
    homes = {way: pool.run(_sent, way, sizes) for way in WAYS}
    rows = [
        (way, *(f"{counted:,} / {foreseen(way, when):,.0f}" for counted, when in zip(its[0][1:], WHEN)))
        for way, its in homes.items()
    ]
    worst = max(home[0] for its in homes.values() for home in its)
    equal = "All equal one device" if worst < 1e-12 else f"One is off by {worst:.1e}"
    return Table(("way", "forward: counted / predicted", "backward: counted / predicted"), tuple(rows), f"{equal}.")


def timed(pool, context: int, pair_seconds: float, times: int = 5) -> dict[str, tuple[float, float]]:
    """{form: (predicted, measured) seconds} of a ring's forward, in order and in a zigzag, with emulated work.

    pair_seconds  that a rank waits instead of computing each (query, key) pair
    """
    forms = {"in order": Chunks.in_order(context, pool.size), "zigzag": Chunks.zigzag(context, pool.size)}
    return {
        form: (max(chunks.pairs) * pair_seconds, pool.run(_timed, chunks, pair_seconds, times)[0])
        for form, chunks in forms.items()
    }


# --- on a rank ----------------------------------------------------------------------------------------------------


def inputs(sizes):
    """(queries, keys, values, the gradient of the output), unsharded, the same on every rank."""
    import torch

    sequences, heads, keys, context, width = sizes
    draw = torch.Generator().manual_seed(0)
    make = lambda number: torch.randn(sequences, number, context, width, dtype=torch.float64, generator=draw)
    return make(heads), make(keys), make(keys), make(heads)


def _sent(comm, way, sizes):
    """(largest difference from one device, words forward, words backward)."""
    from hybridlab.modes.context_parallel import by_heads, gathered
    from hybridlab.modes.parts.ring_attention import ring_attention
    from hybridlab.training.models.gpt import attend

    *whole, pull = inputs(sizes)
    chunks = Chunks.in_order(sizes[3], comm.size)
    own = chunks.positions(comm.rank)
    does = {
        "gather": partial(gathered, comm=comm, chunks=chunks),
        "ring": partial(ring_attention, comm=comm, axis="cp", chunks=chunks),
        "ulysses": partial(by_heads, comm=comm, chunks=chunks, attend=attend),
    }[way]
    mine = [x[:, :, own].clone().requires_grad_() for x in whole]
    right = [x.clone().requires_grad_() for x in whole]
    attend(*right).backward(pull)
    start = len(comm.ledger)
    out = does(*mine)
    middle = len(comm.ledger)
    forward = words_of(comm.ledger, start)
    out.backward(pull[:, :, own])
    gaps = [gap(out.detach(), attend(*whole)[:, :, own])]
    gaps += [gap(x.grad, y.grad[:, :, own]) for x, y in zip(mine, right)]
    return max(gaps), forward, words_of(comm.ledger, middle)


def _timed(comm, chunks, pair_seconds, times):
    import torch

    from hybridlab.modes.parts.ring_attention import ring_attention

    q, k, v = torch.zeros(3, 1, 1, chunks.length(comm.rank), 4)
    took = []
    with waiting(pair_seconds):
        for _ in range(times + 1):
            comm.barrier()
            begin = time.perf_counter()
            ring_attention(q, k, v, comm, "cp", chunks)
            comm.barrier()
            took.append(time.perf_counter() - begin)
    return min(took[1:])  # the first one warms up


@contextmanager
def waiting(pair_seconds):
    """Emulated work: the time of a query chunk with a key chunk is proportional to the pairs that count."""
    from hybridlab.modes.parts import ring_attention

    plain = ring_attention.part_of_attention

    def part(q, k, v, seen_QS=None):
        pairs = q.shape[-2] * k.shape[-2] if seen_QS is None else int(seen_QS.sum())
        time.sleep(pairs * pair_seconds)
        return plain(q, k, v, seen_QS)

    ring_attention.part_of_attention = part
    try:
        yield
    finally:
        ring_attention.part_of_attention = plain
