"""What formulas say that a training step sends: every meeting of ranks, and its bytes.

The ledgers of real runs are held against it, in sum and axis by axis; the labs draw it. Three modes send:

    messages  activations and gradients between stages
    sums      gradients added, shares of parameters gathered
    inside    what the ranks that share a stage do together, along tp

Relatives: `predict.bytes.sharing`, `predict.bytes.traffic`; `train.check`, notebook 40.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from hybridlab.core.layout import even
from hybridlab.core.mesh import Mesh
from hybridlab.predict.bytes import sharing, traffic
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.memory import Widths
from hybridlab.train.stages import Links

NUMBER = 8  # bytes that say which microbatch comes, where no order is written


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

    @property
    def sent(self) -> float:
        """What leaves each rank that sends: all of a message, of a collective its part of the ring."""
        return self.bytes if self.op == "isend" else cost(self.op, len(self.ranks), self.bytes).bytes

    def between(self, per_node: int) -> float:
        """The bytes that leave a node of so many ranks; rings go round in rank order."""
        way = [self.ranks] if self.op == "isend" else zip(self.ranks, self.ranks[1:] + self.ranks[:1])
        return self.sent * sum(_apart(*pair, per_node) for pair in way)


def _apart(one, other, per_node):
    return one // per_node != other // per_node


def meetings(job) -> dict[str, list[Meeting]]:
    """All meetings of one step of a task, by the mode that holds them."""
    return {"messages": list(_messages(job)), "sums": list(_sums(job)), "inside": list(_inside(job))}


def by_axis(every: Iterable[Meeting]) -> dict[tuple[str, str], float]:
    """{(axis, operation): bytes of a step in the ledgers of all ranks}."""
    table = Counter()
    for one in every:
        table[one.axis, one.op] += one.counted
    return {key: table[key] for key in sorted(table) if table[key]}


def widths_of(job) -> Widths:
    """Bytes of one number, by what it is used for."""
    value, gradient, master = (getattr(torch, name).itemsize for name in (job.dtype, job.sum_dtype, job.master_dtype))
    return Widths(value, gradient, master, states={"sgd": 0, "adamw": 2}[job.optimizer])


def _between(mesh: Mesh, op: str, ranks: tuple[int, ...], bytes: float) -> Meeting:
    places = [mesh.coordinates(rank) for rank in ranks]
    axis = "+".join(axis for axis in mesh.axes if len({place[axis] for place in places}) > 1)
    return Meeting(axis, op, ranks, bytes)


# --- between stages ---------------------------------------------------------------------------------------------


def _messages(job) -> Iterator[Meeting]:
    """The whole tensor on every line of ranks that play the schedule together, or each line its part."""
    mesh, context, crossing = job.mesh, job.shape.context, _crossing(job)
    row = job.sequences * job.shape.width * widths_of(job).value
    number = NUMBER if job.driven else 0
    for line in sorted({mesh.line(rank) for rank in range(mesh.size)}):
        part = mesh.coordinates(line[0]).get("tp", 0)
        low, high = even(context, mesh["tp"])[part] if job.sequence or job.scatter else (0, context)
        for (one, other), (tensors, times) in crossing.items():
            size = job.accumulate * (tensors * row * (high - low) + times * number)
            yield _between(mesh, "isend", (line[one], line[other]), size)
            yield _between(mesh, "isend", (line[other], line[one]), size)  # as many gradients come back


def _crossing(job) -> dict[tuple[int, int], tuple[int, int]]:
    """{(rank of the line, another): (tensors, messages) forward in a step}."""
    schedule, tensors, times = job.schedule, Counter(), Counter()
    for (a, b), layers in Links.of(job.bounds, job.shape.skipping).crossing.items():
        for replica in schedule.replica_of:
            pair = schedule.place[a, replica], schedule.place[b, replica]
            if pair[0] != pair[1]:
                tensors[pair] += len(layers)
                times[pair] += 1
    return {pair: (tensors[pair], times[pair]) for pair in tensors}


# --- sums and shares --------------------------------------------------------------------------------------------


def _sums(job) -> Iterator[Meeting]:
    """Pack by pack, each meeting once: where its first rank stands."""
    widths, gathers = widths_of(job), gathers_of(job)
    for pack in job.layout.packs:
        for rank in range(job.mesh.size):
            for _, op, ranks, size in sharing.meetings(job.layout, pack, rank, widths, gathers.get((pack, rank))):
                if rank == ranks[0]:
                    yield _between(job.mesh, op, ranks, size)


def gathers_of(job) -> dict[tuple[int, int], int]:
    """{(pack, rank): how often a step gathers it}, where ZeRO's stage 3 gathers as the schedule says."""
    found = {}
    for rank in range(job.mesh.size) if job.zero == 3 else ():
        line = job.mesh.line(rank)
        program = job.schedule.program[line.index(rank)]
        for pack, names in job.layout.packs.items():
            found[pack, rank] = job.accumulate * _opened(program, job.homes[names[0]])
    return found


def _opened(program, stages) -> int:
    """How often a program gathers what these stages share: not when one of them has it already."""
    opened = in_use = 0
    for action in program:
        if action.stage in stages and action.kind in ("UNSHARD", "RESHARD"):
            opened += action.kind == "UNSHARD" and not in_use
            in_use += 1 if action.kind == "UNSHARD" else -1
    return opened


def moved(job) -> int:
    """Bytes of one step's way to the optimizer and back: the gradients of all shares, and new values for them, padded;
    with ZeRO's stage 3 the values once for each gather."""
    layout, widths, gathers = job.layout, widths_of(job), gathers_of(job)
    down = up = 0
    for pack, names in layout.packs.items():
        for rank in range(layout.mesh.size):
            if layout.box(names[0], rank) is None:
                continue
            shares = [layout.share(name, rank) for name in names]
            down += sum(share.stop - share.start for share in shares)
            up += layout.piece(pack, rank) * gathers.get((pack, rank), 1)
    return down * widths.gradient + up * widths.value


# --- inside a stage ---------------------------------------------------------------------------------------------


def _inside(job) -> Iterator[Meeting]:
    """What every rank of a line does with those that share its stages."""
    mesh, width = job.mesh, widths_of(job).value * job.accumulate
    for seat, program in enumerate(job.schedule.program) if mesh["tp"] > 1 else ():
        group, elements = mesh.group(mesh.line(0)[seat], "tp"), Counter()
        played = Counter((part.kind, part.stage) for action in program for part in action.parts or (action,))
        for (kind, stage), times in played.items():
            for op, size in _of_action(job, kind, stage):
                elements[op] += times * size
        for op, size in elements.items():
            if size:
                yield _between(mesh, op, group, size * width)


def _of_action(job, kind: str, stage: int) -> Iterator[tuple[str, int]]:
    """(operation, elements) of all that one action does along tp. Both halves of a backward gather what they need; in
    the first stage, where nothing entered, the weight half does all."""
    whole = "W" if stage == 0 else "I"
    does = {"F": ["forward"], "C": ["forward"], "R": ["forward"], "B": ["backward", "again"]}
    does |= {"I": [], "W": ["again"], whole: ["backward", "again"]}
    phases = does.get(kind, ())
    for layer in job.bounds[stage] if phases else ():
        terms = traffic.tensor_of_layer(job.shape, layer, job.sequences, job.mesh["tp"], job.sequence)
        for (what, when), elements in terms.items():
            if when in phases:
                yield from _operations(what, when, elements, job.sequence)
    if job.scatter and not job.sequence:  # the parts that crossed a cut are put together
        links = Links.of(job.bounds, job.shape.skipping)
        tensors = {"forward": sum(map(len, links.into(stage))), "backward": sum(map(len, links.out_of(stage)))}
        crossed = sum(tensors.get(when, 0) for when in phases)
        yield "all_gather", crossed * traffic.boundary(job.shape, job.sequences, job.mesh["tp"])


def _operations(what: str, when: str, elements: int, sequence: bool) -> list[tuple[str, int]]:
    """Which operations one term of `traffic.tensor_of_layer` is made of."""
    if when == "again":
        return [("all_gather", elements)]
    if not sequence or what == "loss":
        return [("all_reduce", elements)]
    if what == "blocks":  # into a pair of matrices and out of it
        return [("all_gather", elements // 2), ("reduce_scatter", elements // 2)]
    gathers = (what == "head") == (when == "forward")
    return [("all_gather" if gathers else "reduce_scatter", elements)]
