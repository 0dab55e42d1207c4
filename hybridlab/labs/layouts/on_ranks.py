"""Notebook 35: layouts on real ranks: compared with one device, with messages compared with the derived ones, and work
counted.
"""

import math
import time

from hybridlab.core.what.operators import Graph, Strategy, choices, drawn, every_rules, shared
from hybridlab.labs.layouts.tables import NAMES, held, strategy_of, written
from hybridlab.labs.rows import Table, table
from hybridlab.predict.bytes.arrows import arrows, sent
from hybridlab.predict.time.operators import times, work


def counted(pool, graph: Graph, layout) -> Table:
    """One step on the ranks of a pool: every derived message, and the number of ranks with it in their ledgers;
    messages of one length are counted together.

    raises  ValueError if a ledger has further messages
    """
    strategy = strategy_of(graph, layout, pool.mesh)
    found, rows = tried(pool, graph, [strategy])[0], []
    for home in found:
        if home.strange:
            raise ValueError(f"there is no program for {home.strange[0]}: give another layout")
    alike = lambda sends: [one._replace(peer=None) for one in sends]
    sent = [alike(home.sent) for home in found]
    for one in dict.fromkeys(one for home in found for one in alike(home.derived)):
        ranks = sum(one in its for its in sent)
        when = "backward" if one.backward else "forward"
        rows.append((one.value, when, f"{NAMES[one.op]} {one.axis}", int(one.elements), f"{ranks} of {pool.size}"))
    return table("tensor | when | derived | words | in the ledgers of ranks", rows)


def every(pool, graph: Graph) -> Table:
    """Every legal table of rules on the ranks of a pool: its traffic, memory and work, and whether it is right."""
    mesh, tables = pool.mesh, every_rules(graph, pool.mesh)
    strategies = [shared(graph, rules, mesh) for rules in tables]
    rows = []
    for rules, strategy, found in zip(tables, strategies, tried(pool, graph, strategies)):
        words = sent(arrows(graph, strategy, mesh), mesh)
        done = f"{times(work(graph, strategy, mesh)):.2f} ×"
        rows.append((words, (written(rules), f"{words:,.0f}", held(graph, strategy, mesh), done, judged(found))))
    rows.sort(key=lambda row: row[0])
    return table("rules | words sent by a rank | weights held | work | on ranks", [row for _, row in rows])


def some(pool, graph: Graph, count: int, seed: int = 0) -> Table:
    """Strategies in which every operator's choice is drawn separately, on the ranks of a pool."""
    legal = math.prod(len(choices(one, graph.sizes, pool.mesh)) for one in graph.operators)
    verdicts = [judged(found) for found in tried(pool, graph, drawn(graph, pool.mesh, count, seed))]
    rows = [(legal, count, verdict, verdicts.count(verdict)) for verdict in set(verdicts)]
    return table("legal strategies | drawn | on ranks | number", rows)


def judged(found: list) -> str:
    """The verdict in words: whether the results of all ranks were right, and whether they sent the derived messages.

    found  the `modes.products.layout_proof.Home` of each rank
    """
    worst = max(home.gap for home in found)
    equal = "equal" if worst < 1e-12 else f"off by {worst:.1e}"
    return f"{equal}, {'other messages' if any(home.strange for home in found) else 'as derived'}"


def repeated(pool, graph: Graph, layout) -> Table:
    """Flops of the matmuls in a forward: counted on every rank by torch, predicted, and with evenly divided work."""
    strategy = strategy_of(graph, layout, pool.mesh)
    products = {one.name for one in graph.operators if one.does in ("einsum", "attention")}
    done, share = (
        sum(getattr(one, what) for one in work(graph, strategy, pool.mesh) if one.operator in products)
        for what in ("done", "share")
    )
    rows = [(f"rank {rank}", int(flops), f"{done:,.0f}", f"{share:,.0f}", f"{flops / share:.2f} ×")
            for rank, flops in enumerate(pool.run(_counted_flops, graph, strategy))]  # fmt: skip
    return table("rank | flops counted | predicted | its share | computed", rows)


def seconds(pool, graph: Graph, layout, times: int = 9) -> list[float]:
    """Seconds of each of several steps, forward and backward, on the slowest rank."""
    homes = pool.run(_timed, graph, strategy_of(graph, layout, pool.mesh), times)
    return [max(one) for one in zip(*homes)]


def tried(pool, graph: Graph, strategies: list[Strategy]) -> list[list]:
    """For each strategy, the result of every rank: its `modes.products.layout_proof.Home`."""
    from hybridlab.modes.products import layout_proof  # here: torch is not needed to ask an exercise

    return layout_proof.tried(pool, graph, strategies)


# --- on a rank ----------------------------------------------------------------------------------------------------


def _counted_flops(comm, graph, strategy):
    from torch.utils.flop_counter import FlopCounterMode

    from hybridlab.modes.products import layouts
    from hybridlab.modes.products.layout_proof import numbers

    mine = layouts.parts(comm, graph, strategy, numbers(graph))
    with FlopCounterMode(display=False) as counter:
        layouts.run(comm, graph, strategy, mine)
    return counter.get_total_flops()


def _timed(comm, graph, strategy, count):
    from hybridlab.modes.products import layouts
    from hybridlab.modes.products.layout_proof import numbers

    mine, took = layouts.parts(comm, graph, strategy, numbers(graph)), []
    for _ in range(count):
        comm.barrier()
        start = time.perf_counter()
        layouts.run(comm, graph, strategy, mine).backward()
        took.append(time.perf_counter() - start)
    return took
