"""The proof: a layout trains as one device does. Loss, every gradient, their norm, the weights after some steps.

Gradients and norm are compared before the optimizer runs: Adam hides a constant factor. A *gap* is the largest
difference of a tensor, divided by the largest entry among all tensors of its kind, so that a gradient that is truly
zero does not count its rounding noise as an error.
"""

from dataclasses import dataclass, field

import torch

from hybridlab.core.mesh import Mesh
from hybridlab.modes.data_parallel import holders
from hybridlab.train import loop
from hybridlab.train.model import GPT
from hybridlab.train.replay import replay
from hybridlab.train.stages import Links, names_of, stages_of
from hybridlab.train.task import task
from hybridlab.train.text import Text
from hybridlab.world.launch import ranks

NUMBER = 8  # bytes that say which microbatch comes, where no order is written
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Report:
    """How far a layout is from one device.

    gaps    {"loss", "norm", "gradient <name>", "weight <name>": relative gap};  largest_gap  the worst of them
    bytes   {"what": (counted in the ledgers, by the formula)};  ok  all gaps within tolerance and all bytes equal
    reference  what it was compared with, in words
    """

    layout: str
    gaps: dict[str, float]
    bytes: dict[str, tuple[int, int]]
    tolerance: float
    losses: tuple[float, ...] = field(repr=False, default=())
    reference: str = "one device"

    @property
    def largest_gap(self) -> float:
        """The worst gap; not a number where anything was not one."""
        return max(self.gaps.values(), key=lambda gap: (gap != gap, gap))

    @property
    def ok(self) -> bool:
        """Equal within tolerance, and every byte accounted for."""
        return self.largest_gap <= self.tolerance and all(
            counted == formula for counted, formula in self.bytes.values()
        )

    def __str__(self):
        worst = max(self.gaps, key=lambda name: (self.gaps[name] != self.gaps[name], self.gaps[name]))
        lines = [
            f"{self.layout}: {'equal to' if self.ok else 'NOT equal to'} {self.reference}",
            f"  largest gap {self.largest_gap:.2g} ({worst}), allowed {self.tolerance:g}; {len(self.gaps)} compared",
        ]
        for what, (counted, formula) in self.bytes.items():
            lines.append(f"  {what}: {counted:,} bytes counted, {formula:,} by the formula")
        return "\n".join(lines)


def check(
    mesh: Mesh | None = None,
    schedule="1f1b",
    microbatches: int = 4,
    batch: int | None = None,
    *,
    dtype: str = "float64",
    sabotage=None,
    **more,
) -> Report:
    """Train three steps of SGD over a mesh and on one process, and compare everything.

    sabotage  a function called on every rank before the first step, to prove that the check can fail
    more      as in `train.loop.Task`
    raises    ValueError in one sentence for arguments that do not fit; RankError when a rank fails
    """
    mesh = mesh or Mesh(pp=4)
    job = task(mesh, schedule, microbatches, batch, dtype=dtype, **more)
    with ranks(mesh) as pool:
        parts = pool.run(_on_rank, job, sabotage)
    with ranks(1) as pool:
        (alone,) = pool.run(_alone if job.flushes else _replayed, job)
    gaps = {"loss": _gap([parts[0]["losses"]], [alone["losses"]])}
    if job.flushes:  # else there is no one gradient: every update has its own
        gaps |= {"norm": _gap([parts[0]["norm"]], [alone["norm"]])} | _gaps("gradient", parts, alone)
    gaps |= _gaps("weight", parts, alone)
    losses = tuple(parts[0]["losses"].tolist())
    reference = "one device" if job.flushes else "a replay of its weight versions on one device"
    return Report(_describe(job, mesh), gaps, _bytes(job, parts), TOLERANCE[dtype], losses, reference)


def _on_rank(comm, job, sabotage):
    if sabotage:
        sabotage()
    trainer = loop.Trainer(comm, job)
    losses = trainer.gradients(0)[0]
    home = {}
    if job.flushes:
        home = {"gradient": {name: weight.grad.clone() for name, weight in trainer.parameters.items()}}
        home["norm"] = trainer.gradient_norm()
        trainer.update()
    for step in range(1, job.steps):
        losses += trainer.step(step)[0]
    return home | {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "weight": {name: weight.detach() for name, weight in trainer.parameters.items()},
        "sent": _bytes_from(comm, "message_driven.py" if job.driven else "pipeline.py"),
        "reduced": _bytes_from(comm, "data_parallel.py"),
    }


def _bytes_from(comm, file):
    """What one mode's file sent or reduced; a message counts where it leaves."""
    ops = ("isend", "all_reduce")
    return sum(row["bytes"] for row in comm.ledger.rows() if row["source"].startswith(file) and row["op"] in ops)


def _alone(comm, job):
    text, model = Text.of(job.data), GPT(job.shape, job.seed, getattr(torch, job.dtype))
    optimizer = loop.OPTIMIZERS[job.optimizer](model.parameters(), lr=job.rate)
    losses, home = [], {}
    for step in range(job.steps):
        losses.append(loop.alone_gradients(model, text, job, step))
        if not home:
            home = {"gradient": {name: weight.grad.clone() for name, weight in model.named_parameters()}}
            home["norm"] = loop.alone_norm(model)
        loop.alone_update(model, optimizer, job)
    return home | _result(losses, model.named_parameters())


def _replayed(comm, job):
    losses, weights = replay(job)
    return _result(losses, weights.items())


def _result(losses, weights):
    return {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "weight": {name: weight.detach() for name, weight in weights},
    }


def _gap(mine, reference, scale=None):
    a, b = (torch.stack([torch.as_tensor(x, dtype=torch.float64) for x in side]) for side in (mine, reference))
    return float((a - b).abs().max() / (scale or b.abs().max()))


def _gaps(kind, parts, alone):
    """One gap per parameter: the worst over all ranks that hold it, infinite where nobody does."""
    scale = max(float(tensor.abs().max()) for tensor in alone[kind].values())
    gaps = {}
    for name, reference in alone[kind].items():
        held = [part[kind][name] for part in parts if name in part[kind]]
        gaps[f"{kind} {name}"] = max((_gap([one], [reference], scale) for one in held), default=float("inf"))
    return gaps


def _bytes(job, parts):
    """What the ledgers counted against what formulas say, over all steps and ranks."""
    width, boundary = getattr(torch, job.dtype).itemsize, job.sequences * job.shape.context * job.shape.width
    schedule, links = job.schedule, Links.of(job.bounds, job.shape.skipping)
    there = [
        len(layers)
        for (a, b), layers in links.crossing.items()
        for replica in schedule.replica_of
        if schedule.place[a, replica] != schedule.place[b, replica]
    ]
    crossings = 2 * job.accumulate * sum(there)  # an activation and a gradient for every tensor that crosses a cut
    sent = job.steps * crossings * (boundary * width + (NUMBER if job.driven else 0))
    table = {"messages 2·M·(p-1)·b·s·h": (sum(part["sent"] for part in parts), sent)}
    model = GPT(job.shape)
    holds = holders(schedule, names_of(model, stages_of(model, job.bounds)))
    copies = sum(len(holds[name]) * weight.numel() for name, weight in model.named_parameters() if len(holds[name]) > 1)
    if copies and job.flushes:
        table["all-reduces d·Ψ"] = (sum(part["reduced"] for part in parts), job.steps * copies * width)
    return table


def _describe(job, mesh):
    return f"{job.schedule.name} on {' × '.join(f'{axis}={n}' for axis, n in mesh.axes.items())}, {job.dtype}"
