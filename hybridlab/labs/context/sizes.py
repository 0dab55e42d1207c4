"""Notebook 33, tables that need no ranks: memory of a long sequence, bytes of each method, links from the catalog."""

from collections import Counter
from dataclasses import replace

from hybridlab.core.what.catalog import machine, model
from hybridlab.labs.rows import Table, table
from hybridlab.predict.bytes.activations import kept, kept_for
from hybridlab.predict.bytes.collectives import Link, cost
from hybridlab.predict.bytes.context import exchanged

LLAMA = model("llama3-8b").shape
LONG, GB = 131_072, 1e9
SHARE = 0.5  # of a device's peak that attention reaches


def memory(contexts=(8192, 32768, LONG)) -> Table:
    """The memory in GB that one sequence needs on a device in training, for several lengths: Llama 3 8B, recomputed."""
    rows = []
    for context in contexts:
        shape = replace(LLAMA, context=context)
        inputs, one = shape.layers * kept_for(shape, 1, recompute="full")[0], kept(shape, 1)
        rows.append((context, *(f"{size / GB:,.1f}" for size in (inputs, one.whole + one.cut, one.core))))
    heads = ("positions", "inputs of all layers, GB", "one layer at work, GB", "its scores, if they were kept, GB")
    return table(heads, rows)


def of_one_layer(way: str, shape, ranks: int, when: str = "forward", width: int = 2, ulysses: int = 1) -> float:
    """Bytes that one rank sends in one layer for one sequence, if each collective is sent as a ring.

    ulysses  the ranks of a group that exchange heads, with usp

    >>> small = replace(LLAMA, context=1024)
    >>> of_one_layer("ring", small, 4) == of_one_layer("gather", small, 4) == 2 * 1024 * 1024 * 3 / 4 * 2
    True
    >>> of_one_layer("ulysses", small, 4) == (2 * 4096 + 2 * 1024) * 1024 / 4 * 3 / 4 * 2
    True
    """
    return float(sum(_by_operation(way, shape, ranks, when, width, ulysses).values()))


def _by_operation(way, shape, ranks, when="forward", width=2, ulysses=1) -> Counter:
    """{operation: the bytes that one rank sends for it}; see `of_one_layer`."""
    together, found = ulysses if way == "usp" else ranks, Counter()
    for op, numbers in exchanged(shape, 1, ranks, way, when, ulysses=ulysses):
        found[op] += numbers * width if op == "isend" else cost(op, together, numbers * width).bytes
    return found


def ways(every_ranks=(2, 4, 8, 16, 64), shape=None) -> Table:
    """MB that a rank sends in the forward of one layer of a long sequence, for a ring and for Ulysses."""
    shape = shape or replace(LLAMA, context=LONG)
    rows = []
    for ranks in every_ranks:
        turned = of_one_layer("ulysses", shape, ranks) / 1e6
        divides = shape.key_heads % ranks == 0
        rows.append((ranks, f"{of_one_layer('ring', shape, ranks) / 1e6:.0f}", f"{turned:.0f}" if divides else "–"))
    return table(("ranks", "ring or gather, MB", "Ulysses, MB"), rows)


def groups(ranks: int = 16, every=(1, 2, 4, 8), shape=None) -> Table:
    """MB that a rank sends in the forward of one layer of a long sequence, if groups of u ranks exchange heads."""
    shape = shape or replace(LLAMA, context=LONG)
    rows = []
    for u in every:
        sent = _by_operation("usp", shape, ranks, ulysses=u)
        each = sent["all_to_all"], sent["isend"], sum(sent.values())
        rows.append((u, ranks // u, *(f"{size / 1e6:.0f}" for size in each)))
    return table(("u", "groups in the ring", "all-to-alls, MB", "hops, MB", "together, MB"), rows)


def link_of(card: str, link: str) -> Link:
    """A link from the catalog: "inside a node" or "between nodes"."""
    inside, one = link == "inside a node", machine(card)
    return Link(one.latency[not inside], 1 / (one.inside if inside else one.across))
