"""What a hybrid layout sends in one step: every meeting of ranks, its bytes, and how many of them leave a node.

The sums over all meetings are those of `train.formulas`, which the ledgers are held against (a test compares both).
Between nodes a collective is counted as a ring in rank order does it, a message as itself.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from hybridlab.core.layout import even
from hybridlab.predict import sharing
from hybridlab.predict.collectives import cost
from hybridlab.predict.traffic import tensor, traffic


class Meeting(NamedTuple):
    """Ranks that do one operation together: for a message the sender and the receiver.

    axis   the axes along which they differ;  op  as in the ledger
    bytes  of the full tensor, all times of a step together
    """

    axis: str
    op: str
    ranks: tuple[int, ...]
    bytes: float

    @property
    def counted(self) -> float:
        """What the ledgers of all ranks add up to: a collective counts on each, a message where it leaves."""
        return self.bytes * (1 if self.op == "isend" else len(self.ranks))

    def between(self, per_node: int) -> float:
        """The bytes that leave a node of so many ranks."""
        if self.op == "isend":
            return self.bytes * _apart(*self.ranks, per_node)
        ring = zip(self.ranks, self.ranks[1:] + self.ranks[:1])
        return cost(self.op, len(self.ranks), self.bytes).bytes * sum(_apart(*pair, per_node) for pair in ring)


def _apart(one, other, per_node):
    return one // per_node != other // per_node


def meetings(job) -> list[Meeting]:
    """All meetings of one step of a task without skips, up to ZeRO's stage 2."""
    return [*_messages(job), *_sums(job), *(_inside(job) if job.mesh["tp"] > 1 else ())]


def by_axis(job) -> dict[tuple[str, str], float]:
    """{(axis, operation): bytes of a step in the ledgers of all ranks}."""
    table = Counter()
    for one in meetings(job):
        table[one.axis, one.op] += one.counted
    return dict(sorted(table.items()))


def between_nodes(job, per_node: int) -> dict[str, float]:
    """{axis: bytes of a step that leave a node}, the axes in the order of the mesh."""
    table = Counter({axis: 0 for axis in job.mesh.axes})
    for one in meetings(job):
        table[one.axis] += one.between(per_node)
    return dict(table)


def counted(ledger, steps: int = 1) -> dict[tuple[str, str], float]:
    """{(axis, operation): bytes of a step} of a training's ledger rows: what the modes sent, not losses and clocks."""
    from hybridlab.train.check import SENDERS

    table, senders = Counter(), [(file, op) for files, ops in SENDERS.values() for file in files for op in ops]
    for row in ledger:
        if (row["source"].split(":")[0], row["op"]) in senders:
            table[row["axis"], row["op"]] += row["bytes"]
    return {key: table[key] / steps for key in sorted(table)}


def _widths(job):
    from hybridlab.train.formulas import widths_of  # here, because exercises are asked for without torch

    return widths_of(job)


def _axis(mesh, ranks) -> str:
    places = [mesh.coordinates(rank) for rank in ranks]
    return "+".join(axis for axis in mesh.axes if len({place[axis] for place in places}) > 1)


def _messages(job) -> Iterator[Meeting]:
    """Activations and gradients between stages: the whole on every line of ranks, or each line its part."""
    mesh, shape = job.mesh, job.shape
    whole = job.sequences * shape.width * _widths(job).value * job.accumulate
    links = traffic(job.schedule)
    parts = even(shape.context, mesh["tp"])
    for line in sorted({mesh.line(rank) for rank in range(mesh.size)}):
        low, high = parts[mesh.coordinates(line[0]).get("tp", 0)] if job.sequence or job.scatter else (0, shape.context)
        for (one, other), (messages, _) in links.items():
            pair = line[one], line[other]
            yield Meeting(_axis(mesh, pair), "isend", pair, messages * whole * (high - low))


def _sums(job) -> Iterator[Meeting]:
    """Gradients added, and with ZeRO shares gathered, pack by pack, each meeting once."""
    for pack in job.layout.packs:
        every = [one for rank in range(job.mesh.size) for one in sharing.meetings(job.layout, pack, rank, _widths(job))]
        for _, op, ranks, size in dict.fromkeys(every):
            yield Meeting(_axis(job.mesh, ranks), op, ranks, size)


def _inside(job) -> Iterator[Meeting]:
    """What the ranks that share a stage do together, stage by stage and copy by copy."""
    mesh, shape, schedule = job.mesh, job.shape, job.schedule
    width, last = _widths(job).value, schedule.stages - 1
    terms = tensor(shape, job.sequences, mesh["tp"], job.sequence, 1 if job.scatter and not job.sequence else 0)
    for (stage, replica), seat in schedule.place.items():
        times = sum(one == replica for one in schedule.replica_of) * job.accumulate
        blocks = sum(1 <= layer <= shape.layers for layer in job.bounds[stage]) / shape.layers
        weight = {"blocks": blocks, "embedding": stage == 0, "head": stage == last, "loss": stage == last}
        table = Counter()
        for (what, when), elements in terms.items():
            here = weight.get(what, stage > 0 if when == "forward" else stage < last)
            for op, share in _ops(what, when, job.sequence):
                table[op] += here * share * elements
        group = mesh.group(mesh.line(0)[seat], "tp")
        for op, elements in table.items():
            if elements:
                yield Meeting("tp", op, group, times * elements * width)


def _ops(what: str, when: str, sequence: bool) -> list[tuple[str, float]]:
    """Which operations one term of `traffic.tensor` is made of, and their shares."""
    if what == "boundaries" or when == "again":
        return [("all_gather", 1)]
    if not sequence or what == "loss":
        return [("all_reduce", 1)]
    if what == "blocks":  # into a pair of matrices and out of it
        return [("all_gather", 0.5), ("reduce_scatter", 0.5)]
    gathers = (what == "head") == (when == "forward")
    return [("all_gather" if gathers else "reduce_scatter", 1)]
