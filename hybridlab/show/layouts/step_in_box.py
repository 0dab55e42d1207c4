"""A training step in a box of ranks: which groups communicate, one after the other.

Tensor groups add in every layer, pipelines send once for each microbatch, data groups add once: the picture shows how
often each axis is used. All forwards come before all backwards, as in GPipe; a moment is a slot of the pipeline.
"""

from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh

LAYERS, MICROBATCHES = 2, 2  # of a stage; of a step: few, so that a reader can count
SUMS = 2  # all-reduces of a tensor group in a layer, in the forward and again in the backward (Megatron)


class Moment(NamedTuple):
    """One moment of a step: groups of ranks that add, and how many times; or hops from rank to rank; and a text."""

    told: str
    groups: list[tuple[int, ...]]
    times: int
    hops: list[tuple[int, int]]


def moments(mesh: Mesh) -> list[Moment]:
    """A step of a mesh with the axes pp, dp and tp, moment by moment.

    >>> for one in moments(Mesh(pp=2, dp=2)): print(one.told, one.groups or one.hops)
    forward: microbatch 0 goes from stage 0 to 1. [(0, 2), (1, 3)]
    forward: microbatch 1 goes from stage 0 to 1. [(0, 2), (1, 3)]
    backward: the gradient of microbatch 0 goes from stage 1 to 0. [(2, 0), (3, 1)]
    backward: the gradient of microbatch 1 goes from stage 1 to 0. [(2, 0), (3, 1)]
    update: every data group adds its gradients, once. [(0, 1), (2, 3)]
    """
    made = [moment for way in ("forward", "backward") for moment in _pass(mesh, way)]
    if mesh["dp"] > 1:
        made.append(Moment("update: every data group adds its gradients, once.", mesh.groups("dp"), 1, []))
    return made


def in_all(mesh: Mesh) -> str:
    """The number of times that each axis was used in the step."""
    uses = {
        "tp": ("each tensor group has added", 2 * SUMS * LAYERS * MICROBATCHES),
        "pp": ("each stage boundary was crossed", 2 * MICROBATCHES),
        "dp": ("each data group has added", 1),
    }
    counts = [f"{what} {count} time{'s' * (count > 1)}" for axis, (what, count) in uses.items() if mesh[axis] > 1]
    of = f"{MICROBATCHES} microbatches and {LAYERS} layers per stage"
    return f"In this step of {of}, {', '.join(counts)}." if counts else "One rank sends no message."


def _pass(mesh, way):
    """All forwards, or all backwards: in each slot, first the sums inside the stages' layers, then the messages between
    stages.
    """
    forward, stages = way == "forward", mesh["pp"]
    for slot in range(stages + MICROBATCHES - 1):
        at = {place: slot - place for place in range(stages) if 0 <= slot - place < MICROBATCHES}
        busy = {place if forward else stages - 1 - place: m for place, m in at.items()}
        groups = [group for group in mesh.groups("tp") if mesh.coordinates(group[0]).get("pp", 0) in busy]
        work = ", ".join(f"stage {stage} computes microbatch {m}" for stage, m in sorted(busy.items()))
        if mesh["tp"] > 1:
            told = f"{way}: {work}; in each layer, their tensor groups add {SUMS} times."
            yield Moment(told, groups, SUMS * LAYERS, [])
        by = 1 if forward else -1
        sends = {stage: m for stage, m in busy.items() if stage + by in range(stages)}
        pairs = [(a, b) for line in mesh.groups("pp") for a, b in zip(line, line[1:])]
        hops = [pair if forward else pair[::-1] for pair in pairs]
        hops = [(a, b) for a, b in hops if mesh.coordinates(a).get("pp", 0) in sends]
        if hops:
            what = "" if forward else "the gradient of "
            moves = ", ".join(f"{what}microbatch {m} goes from stage {s} to {s + by}" for s, m in sorted(sends.items()))
            yield Moment(f"{way}: {moves}.", [], 0, hops)
