"""What formulas say that each mode sends in one step, over all ranks: what the ledgers are held against."""

from collections import Counter

import torch

from hybridlab.predict import traffic
from hybridlab.predict.memory import Widths
from hybridlab.predict.sharing import meetings
from hybridlab.train.stages import Links

NUMBER = 8  # bytes that say which microbatch comes, where no order is written


def sent(job) -> int:
    """Bytes of one step's messages: an activation and a gradient for every tensor that crosses a cut."""
    boundary = job.sequences * job.shape.context * job.shape.width * getattr(torch, job.dtype).itemsize
    schedule, links = job.schedule, Links.of(job.bounds, job.shape.skipping)
    there = [
        len(layers)
        for (a, b), layers in links.crossing.items()
        for replica in schedule.replica_of
        if schedule.place[a, replica] != schedule.place[b, replica]
    ]
    lines = 1 if job.sequence or job.scatter else job.mesh["tp"]
    numbers = NUMBER * len(there) if job.driven else 0
    return 2 * job.accumulate * (sum(there) * lines * boundary + numbers)


def summed(job) -> int:
    """Bytes of one step's sums and gathers of parameters, over all ranks."""
    gathers, widths = _gathers(job) if job.zero == 3 else {}, widths_of(job)
    every = [(pack, rank) for pack in job.layout.packs for rank in range(job.mesh.size)]
    return sum(one.bytes for at in every for one in meetings(job.layout, *at, widths, gathers.get(at)))


def widths_of(job) -> Widths:
    """Bytes of one number, by what it is used for."""
    value, gradient, master = (getattr(torch, name).itemsize for name in (job.dtype, job.sum_dtype, job.master_dtype))
    return Widths(value, gradient, master, states={"sgd": 0, "adamw": 2}[job.optimizer])


def moved(job) -> int:
    """Bytes of one step's way to the optimizer and back: the gradients of all shares, and new values for them, padded;
    with ZeRO's stage 3 the values once for each gather."""
    layout, down, up = job.layout, 0, 0
    gathers = _gathers(job) if job.zero == 3 else None
    for pack, names in layout.packs.items():
        for rank in range(layout.mesh.size):
            if layout.box(names[0], rank) is None:
                continue
            shares = [layout.share(name, rank) for name in names]
            down += sum(share.stop - share.start for share in shares)
            up += layout.piece(pack, rank) * (1 if gathers is None else gathers[pack, rank])
    widths = widths_of(job)
    return down * widths.gradient + up * widths.value


def _gathers(job) -> dict:
    """{(pack, rank): how often a step gathers it}."""
    found = {}
    for rank in range(job.mesh.size):
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


def split(job) -> int:
    """Bytes of one step's collectives along tp, over all ranks."""
    actions = [part for program in job.schedule.program for action in program for part in action.parts or (action,)]
    played = Counter((part.kind, part.stage) for part in actions)
    elements = sum(count * _inside(job, *action) for action, count in played.items())
    return job.accumulate * job.mesh["tp"] * elements * getattr(torch, job.dtype).itemsize


def _inside(job, kind, stage) -> int:
    """Elements that one action sends along tp. Both halves of a backward gather what they need; in the first stage,
    where nothing entered, the weight half does all."""
    whole = "W" if stage == 0 else "I"
    does = {"F": ["forward"], "C": ["forward"], "R": ["forward"], "B": ["backward", "again"]}
    does |= {"I": [], "W": ["again"], whole: ["backward", "again"]}
    layers = [
        traffic.tensor_of_layer(job.shape, layer, job.sequences, job.mesh["tp"], job.sequence)
        for layer in job.bounds[stage]
    ]
    elements = sum(terms.get((what, when), 0) for terms in layers for what, when in terms if when in does.get(kind, ()))
    if job.scatter and not job.sequence:
        links = Links.of(job.bounds, job.shape.skipping)
        tensors = {"forward": sum(map(len, links.into(stage))), "backward": sum(map(len, links.out_of(stage)))}
        crossing = sum(tensors.get(when, 0) for when in does.get(kind, ()))
        elements += crossing * traffic.boundary(job.shape, job.sequences, job.mesh["tp"])
    return elements
