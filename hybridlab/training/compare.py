"""The comparison of trained ranks with their reference: a gap for every number and tensor, on every rank that holds it.

After steps of Adam, weights are compared with a separate bound. Relatives: `training.gaps`, which defines a gap and its
tolerance; `training.reference`, the one device; `training.check`, which trains both.
"""

import math

import torch

from hybridlab.modes.data_parallel import LOCAL
from hybridlab.training.gaps import FACTOR, NEAR, Gaps, difference, largest, nearer, tolerance_of, worst
from hybridlab.training.job import Job
from hybridlab.training.optimizers import without_decay
from hybridlab.training.rates import rate_of


def compare(parts, alone: dict, job: Job, last: Job) -> tuple[Gaps, dict[str, float], dict[str, float]]:
    """(all gaps; {"weight <name>" after Adam: the largest difference over its bound}; the weights without proof)."""
    gaps, noise = Gaps(tolerance_of(job)), alone["noise"]
    numbers = {"losses": "loss"} | ({"norm": "norm"} if "norm" in alone else {})
    for kind, name in numbers.items():
        its, *each = (torch.tensor(one[kind], dtype=torch.float64) for one in (alone, *parts))
        off = worst(difference(mine, its) for mine in each)
        gaps.add(name, off, largest(its), noise[kind], largest(its))
    if job.flushes:  # otherwise every update has a separate gradient
        _add(gaps, "gradient", parts, alone, job, "gradient")
    _add_buffers(gaps, parts, alone, job)
    _add(gaps, "weight", parts, alone, last, "moves")
    return gaps, *_adam_shares(parts, alone, last)


def hides_decay(gaps: Gaps, alone: dict, job: Job) -> bool:
    """Whether ranks with a wrong weight decay would be within all tolerances: it moves no weight by more than these."""
    share = job.decay * math.fsum(rate_of(job, step) for step in range(job.steps))
    stay = without_decay(job) | set(job.frozen)
    allowed = lambda name: gaps.limit(f"weight {name}") * largest(alone["moves"][name])
    limits = {name: allowed(name) for name in alone["weight"] if name not in stay} if share else {}
    limits |= {name: limit for name, limit in alone.get("bound", {}).items() if name in limits}
    return bool(limits) and all(bool((share * alone["weight"][name].abs() <= limits[name]).all()) for name in limits)


def _copy(rank: int, job: Job) -> tuple[int, ...]:
    """The index of a rank's copy in a tensor of the reference: if copies train alone, they are its first dim."""
    return (job.mesh.place(rank, "dp"),) if job["sums"] == LOCAL else ()


def held(kind, name, parts, reference, job):
    """(a rank's part of a parameter, the same elements of the reference), for every rank that holds some."""
    for rank, part in enumerate(parts):
        if name in part[kind]:
            whole = job.layout[name].owners == 1
            box = reference[(*_copy(rank, job), *job.layout.box(name, rank))]
            yield part[kind][name], box if whole else box.flatten()[job.layout.share(name, rank)]


def _add(gaps: Gaps, kind, parts, alone, job, scale):
    """Add a gap for every tensor of a kind: the largest over the ranks that hold it, relative to `scale`."""
    own = {name: largest(x) for name, x in alone[scale].items()}
    of_adam = alone.get("bound", {}) if kind == "weight" else {}
    for name, reference in ((name, x) for name, x in alone[kind].items() if name not in of_adam):
        off = worst(difference(mine, its) for mine, its in held(kind, name, parts, reference, job))
        trained = name not in job.frozen and (kind == "gradient" or not any(own.values()) or _pulled(name, alone))
        noise = alone["noise"][scale][name]
        if kind == "weight" and _noise_alone(name, alone):
            noise = max(noise, own[name])  # a few shadows may have moved it in the same direction by chance
        gaps.add(f"{kind} {name}", off, own[name], noise, max(own.values()), trained)


def _pulled(name, alone) -> bool:
    """Whether a weight had a gradient above the noise, so that it should have moved."""
    its = alone.get("gradient", {}).get(name)
    return its is not None and largest(its) > FACTOR * alone["noise"]["gradient"][name]


def _noise_alone(name, alone) -> bool:
    """Whether a weight had a gradient, but none above the noise."""
    its = alone.get("gradient", {}).get(name)
    return its is not None and largest(its) > 0 and not _pulled(name, alone)


def _add_buffers(gaps: Gaps, parts, alone, job):
    """Add a gap for every buffer of layers, which every rank with these layers has in full."""
    for name, its in alone["buffer"].items():
        holders = (rank for rank, part in enumerate(parts) if name in part["buffer"])
        off = worst(difference(parts[rank]["buffer"][name], its[_copy(rank, job)]) for rank in holders)
        gaps.add(f"buffer {name}", off, largest(its), alone["noise"]["buffer"][name], largest(its))


def _adam_shares(parts, alone, job) -> tuple[dict[str, float], dict[str, float]]:
    """({"weight <name>": the largest difference over its bound}, {the same: 1.0} for weights that are not proved)."""
    shares, hidden = {}, {}
    for name in alone.get("bound", {}):
        words = f"weight {name}"
        shares[words], near = _adam_share(name, parts, alone, job)
        if near < NEAR and shares[words] <= 1:
            hidden[words] = 1.0
    return shares, hidden


def _adam_share(name, parts, alone, job) -> tuple[float, float]:
    """(the largest difference of a weight over its bound, the fraction of its elements that are near the reference)."""
    every = (held("weight", name, parts, alone[kind][name], job) for kind in ("weight", "bound", "moves"))
    pieces = [((mine - its).double().abs(), bound, move.abs()) for (mine, its), (_, bound), (_, move) in zip(*every)]
    share = worst(largest(off / bound) for off, bound, _ in pieces)
    return share, min((nearer(off, move) for off, _, move in pieces), default=0.0)
