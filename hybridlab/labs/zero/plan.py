"""The plans of notebook 22: memory, traffic and time of a rank when state is sharded as in ZeRO and FSDP.

Formulas are read from the layout's record (`core.where.layout`), so they hold for any owners, and padding counts.
"""

from typing import NamedTuple

import hybridlab as hl
from hybridlab.core.where.layout import Layout, Param
from hybridlab.modes.zero import shared
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.bytes.memory import MIXED, SINGLE, Widths, model_states
from hybridlab.predict.bytes.sharing import transfers
from hybridlab.show.layouts.memory_bars import Carried

PRINTED = {"value": 2, "gradient": 2, "optimizer": 12}  # bytes per element in the paper, even of a shard
SAID = {"shares": "shards"}  # the names in the record, and in the fields
POLICIES = {"mixed": MIXED, "single": SINGLE, "mixed, as printed": None, "sums in single": MIXED._replace(gradient=4)}


class Model(NamedTuple):
    """The size of a model: its elements, and its units, which are gathered one by one."""

    elements: int
    units: int


MODELS = {
    "7.5B": Model(7_500_000_000, 36),
    "175B": Model(175_000_000_000, 96),
    "small GPT": Model(hl.Shape().parameters, hl.Shape().layers),
}


class Plan(NamedTuple):
    """One choice: a model, ranks, the ZeRO stage, the number of ranks that shard a parameter, and dtypes; and whether
    there are two levels, or a second copy among neighbours.
    """

    model: str = "7.5B"
    ranks: int = 64
    stage: int = 3
    owners: int = 64
    policy: str = "mixed"
    two_levels: bool = False
    secondary: int = 0

    @property
    def layout(self) -> Layout:
        """All parameters as one record; with one owner nothing is sharded in any stage."""
        owners = self.owners if self.stage else 1
        rest = self.stage if owners > 1 else 0
        one = Layout(hl.Mesh(dp=self.ranks), (Param("all", (MODELS[self.model].elements,), partial=("dp",)),))
        return shared(one, rest, owners, two_levels=self.two_levels, secondary=self.secondary)

    @property
    def widths(self) -> Widths:
        """Bytes per element."""
        return POLICIES[self.policy] or MIXED

    @property
    def unit(self) -> float:
        """Bytes of all weights of one unit."""
        return self.widths.value * MODELS[self.model].elements / MODELS[self.model].units


def kept(plan: Plan, rank: int = 0) -> dict[str, int]:
    """{"value", "gradient", "optimizer": bytes} that a rank keeps between two steps.

    >>> [round(sum(kept(Plan(stage=stage)).values()) / 1e9, 2) for stage in (0, 1, 2, 3)]
    [120.0, 31.41, 16.64, 1.64]
    >>> [round(sum(kept(Plan(stage=s, policy="mixed, as printed")).values()) / 1e9, 2) for s in (0, 1, 2, 3)]
    [120.0, 31.41, 16.64, 1.88]
    """
    if POLICIES[plan.policy]:
        return model_states(plan.layout, rank, plan.widths)
    elements = plan.layout.elements(rank)
    return {what: width * elements[what] for what, width in PRINTED.items()}


def carried(layout: Layout, widths: Widths = SINGLE) -> list[Carried]:
    """The bytes that rank 0 sends in a step to reduce gradients and gather weights in rings, for all packs together.

    With stage 3 weights are gathered twice.

    >>> for one in carried(Plan(owners=8).layout, MIXED):
    ...     print(f"{one.name} among {one.among}: {one.bytes / 1e9:g} GB")
    reduce-scatter, gradients among 8: 13.125 GB
    all-reduce, shards among 8: 3.28125 GB
    all-gather, forward among 8: 13.125 GB
    all-gather, backward among 8: 13.125 GB
    """
    sums = {}
    for pack in layout.packs:
        for name, one in _named(layout, widths, pack):
            key = name, len(one.ranks)
            sums[key] = sums.get(key, 0) + one.sent
    return [Carried(name, among, bytes) for (name, among), bytes in sums.items()]


def _named(layout, widths, pack):
    """(purpose, transfer) for all transfers of a pack on rank 0 in a step."""
    after = ["after the update"] if layout.params[0].rest < 3 else ["forward", "backward"]
    when = iter(after)
    for one in transfers(layout, pack, 0, widths):
        about = next(when) if one.what == "weights" else SAID.get(one.what, one.what)
        yield f"{one.op.replace('_', '-')}, {about}", one


def leaving(plan: Plan, node: int) -> float:
    """Bytes that leave the first node in a step, if a node has `node` ranks and rings are in rank order.

    >>> [leaving(Plan(ranks=8, owners=owners), 4) / 1e9 for owners in (4, 8)]
    [15.0, 39.375]
    >>> leaving(Plan(ranks=8, owners=8, secondary=4), 4) / 1e9  # of three halves, two leave the node
    26.25
    """
    total = 0.0
    for rank in range(node):
        for one in transfers(plan.layout, 0, rank, plan.widths):
            after = one.ranks[(one.ranks.index(rank) + 1) % len(one.ranks)]
            total += one.sent if after >= node else 0
    return total


def offloaded(plan: Plan) -> dict[str, float]:
    """Bytes of one rank if the optimizer and its state are in the host's memory: those kept there, and those moved.

    >>> {what: bytes / 1e9 for what, bytes in offloaded(Plan(stage=2, ranks=4, owners=4)).items()}
    {'stays': 18.75, 'host': 22.5, 'there': 3.75, 'back': 3.75}
    """
    layout, own = plan.layout, kept(plan)
    share = layout.elements(0)["optimizer"]
    stays, there = own["value"] + own["gradient"], share * plan.widths.gradient
    return {"stays": stays, "host": own["optimizer"], "there": there, "back": share * plan.widths.value}


# --- time: units on two nodes, gathered ahead ---------------------------------------------------------------------

NODE = 4  # ranks of a node
INSIDE, BETWEEN = Link(0, 1 / 100e9), Link(0, 1 / 12.5e9)  # seconds per byte inside a node, and between nodes
FORWARD, BACKWARD = 0.008, 0.016  # seconds that a unit takes


def step(plan: Plan, active: int = 2) -> hl.Timeline:
    """The predicted step of one rank: a microbatch through all units, with concurrent reductions and gathers.

    active  with stage 3, the number of units that a rank holds gathered at a time. With stages 1 and 2 the weights are
            gathered after the update; `seconds` adds that time

    >>> round(step(Plan(ranks=8, owners=4), active=2).length, 3)
    0.879
    """
    once = hl.schedule("looped_bfs", ranks=1, microbatches=1, chunks=MODELS[plan.model].units)
    programs, shared = hl.sharded(once, active).program, plan.layout.params[0].rest == 3
    if not shared:
        programs = [[action for action in program if "SHARD" not in action.kind] for program in programs]
    sums, gather = _times(plan)
    costs = hl.Costs(F=FORWARD, B=BACKWARD, reduce=sums, gather=gather, unit="s")
    return hl.simulate(once.with_programs(programs), costs)


def seconds(plan: Plan, active: int = 2) -> float:
    """The predicted length of a step, including the gather after the update if weights are not sharded."""
    after = plan.layout.params[0].rest in (1, 2)
    return step(plan, active).length + after * _times(plan)[1] * MODELS[plan.model].units


def most(plan: Plan, active: int = 2) -> float:
    """The most bytes of the model that a rank holds: its own state, and the gathered weights of `active` units."""
    return sum(kept(plan).values()) + (active * plan.unit if plan.layout.params[0].rest == 3 else 0)


def _times(plan) -> tuple[float, float]:
    """(seconds of the reductions, seconds of one gather) of a single unit; a ring is as fast as its slowest link."""
    sums, gather = 0.0, 0.0
    for one in transfers(plan.layout, 0, 0, plan.widths, gathers=1):
        link = INSIDE if one.ranks[-1] // NODE == one.ranks[0] // NODE else BETWEEN
        taken = link.seconds(one.op, len(one.ranks), one.bytes / MODELS[plan.model].units)
        sums, gather = (sums, taken) if one.what == "weights" else (sums + taken, gather)
    return sums, gather
