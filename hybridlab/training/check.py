"""The proof: a layout trains as one device does. Loss, every gradient, their norm, the weights after some steps.

Gradients and norm are compared before the optimizer runs: Adam hides a constant factor. A *gap* is the largest
difference of a tensor, divided by the largest entry among all tensors of its kind, so that a gradient that is truly
zero does not count its rounding noise as an error.

A proof sees only what its data touch. So a transformer reads tokens of the whole vocabulary, and no weight begins with
numbers that are all alike (`Model.for_proof`); what had no gradient in all these steps is told as *untouched*.

After steps of Adam weights are compared with a bound of their own: it divides a gradient by that gradient's size, and
so blows up rounding noise where the true gradient is small. One step moves an element by rate·m/√v, and noise δ in the
gradient changes that by at most about rate·4δ/√v, and never by more than 2·rate. See `alone.adam_moves`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hybridlab.core.operations import RECEIVES
from hybridlab.predict.bytes.transfer import by_axis
from hybridlab.signatures import spelled
from hybridlab.training import asked, loop
from hybridlab.training.affordable import affordable
from hybridlab.training.job import Job
from hybridlab.training.out_of_core import copied
from hybridlab.training.reference import alone_on_rank, noise
from hybridlab.training.replay import replayed_on_rank
from hybridlab.world.processes.launch import foresee, ranks

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2}
UNCOUNTED = ("report", "checkpoint")  # losses, norms, fingerprints, what is saved: no part of a step


@dataclass(frozen=True)
class Report:
    """How far a layout is from one device.

    gaps    {"loss", "norm", "gradient <name>", "weight <name>": relative gap};  largest_gap  the worst of them
    adam    {"weight <name>": difference over its bound}, in place of gaps, where Adam made the weights
    excepted  parameters whose gradient is rounding noise alone: Adam moves them at random
    untouched {parameter: the share of its elements that no step gave a gradient}: mistakes there would not show
    bytes   {"what": (counted in the ledgers, by the formula)};  axes  {(purpose, axis, operation): the same}
    ok      all gaps within tolerance and all bytes equal, axis by axis
    reference  what it was compared with, in words
    """

    layout: str
    gaps: dict[str, float]
    bytes: dict[str, tuple[int, int]]
    axes: dict[tuple[str, str, str], tuple[int, int]] = field(repr=False)
    tolerance: float
    losses: tuple[float, ...] = field(repr=False, default=())
    reference: str = "one device"
    adam: dict[str, float] = field(default_factory=dict)
    excepted: tuple[str, ...] = ()
    untouched: dict[str, float] = field(default_factory=dict)

    @property
    def largest_gap(self) -> float:
        """The worst gap; not a number where anything was not one."""
        return max(self.gaps.values(), key=lambda gap: (gap != gap, gap))

    @property
    def ok(self) -> bool:
        """Equal within tolerance, and every byte accounted for."""
        return (
            self.largest_gap <= self.tolerance
            and all(share <= 1 for share in self.adam.values())
            and all(counted == formula for table in (self.bytes, self.axes) for counted, formula in table.values())
        )

    def __str__(self):
        worst = max(self.gaps, key=lambda name: (self.gaps[name] != self.gaps[name], self.gaps[name]))
        lines = [
            f"{self.layout}: {'equal to' if self.ok else 'NOT equal to'} {self.reference}",
            f"  largest gap {self.largest_gap:.2g} ({worst}), allowed {self.tolerance:g}; {len(self.gaps)} compared",
        ]
        if self.adam:
            worst = max(self.adam, key=self.adam.get)
            lines.append(f"  Adam: at most {self.adam[worst]:.2g} of the bound ({worst}); {len(self.adam)} compared")
        if self.excepted:
            lines.append(f"  no gradient but rounding noise: {', '.join(self.excepted)}")
        if self.untouched:
            told = ", ".join(f"{share:.0%} of {name}" for name, share in self.untouched.items())
            lines.append(f"  no gradient in these steps, so not proved: {told}")
        for what, (counted, formula) in self.bytes.items():
            lines.append(f"  {what}: {counted:,} bytes counted, {formula:,} by the formula")
        for (what, axis, op), (counted, formula) in self.axes.items():
            if counted != formula:
                said = f"{what or 'claimed by no mode'}, along {axis}, {op}"
                lines.append(f"  {said}: {counted:,} bytes counted, {formula:,} by the formula")
        return "\n".join(lines)


@spelled(asked.arguments, positional=asked.FIRST, dtype="float64")
def check(*, sabotage: Callable | None = None, **given) -> Report:
    """The proof that a layout trains as one device does: both train some steps, and everything is compared.

    Loss, every gradient, their norm, the weights and the buffers are compared; and of every byte that was sent a mode
    must say what for.

    {arguments}
    sabotage       a function that is called on every rank before the first step, to show that the check can fail

    raises  ValueError in one sentence for arguments that do not fit; RankError when a rank fails

    >>> import hybridlab as hl
    >>> report = hl.check(hl.Mesh(dp=2, pp=2), "1f1b", zero=1)  # starts ranks
    >>> report.ok, report.largest_gap < 1e-12
    (True, True)
    """
    job = affordable(**given)
    job = job.with_(model=job.model.for_proof())
    foresee(__name__)
    with ranks(job.mesh) as pool:
        parts = pool.run(_on_rank, job, sabotage)
    alone = _reference(job)
    gaps, adam, excepted = {"loss": _gap(parts[0]["losses"], alone["losses"])}, {}, ()
    if job.flushes:  # else there is no one gradient: every update has its own
        gaps |= {"norm": _gap(parts[0]["norm"], alone["norm"])} | _gaps("gradient", parts, alone, job)
    if job.optimizer == "adamw" and job.flushes:
        adam, excepted = _adam_shares(parts, alone, job)
    else:
        gaps |= _gaps("weight", parts, alone, job)
    gaps |= _buffer_gaps(parts, alone)
    losses, untouched = tuple(parts[0]["losses"].tolist()), _untouched(alone["touched"], job)
    reference = "one device" if job.flushes else "a replay of its weight versions on one device"
    tolerance = max(TOLERANCE[one] for one in (job.dtype, job["sum_dtype"], job["master_dtype"]))
    return Report(_describe(job), gaps, *_bytes(job, parts), tolerance, losses, reference, adam, excepted, untouched)


def _reference(job: Job) -> dict:
    """What one device makes of a job."""
    with ranks(1) as pool:
        (alone,) = pool.run(alone_on_rank if job.flushes else replayed_on_rank, job)
    return alone


def _on_rank(comm, job, sabotage):
    if sabotage:
        sabotage()
    trainer = loop.Trainer(comm, job)
    losses = trainer.gradients(0)[0]
    home = {}
    if job.flushes:
        home = {"gradient": {name: weight.grad.cpu().clone() for name, weight in trainer.parameters.items()}}
        home["norm"] = torch.tensor(trainer.gradient_norm())
        trainer.update()
    for step in range(1, job.steps):
        losses += trainer.step(step)[0]
    return home | {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "weight": {name: weight.detach().cpu() for name, weight in trainer.parameters.items()},
        "buffer": {name: buffer.cpu() for name, buffer in trainer.buffers.items()},
        "moved": sum(trainer.weights.moved.values()) if job.flushes else 0,
        "copied": sum(trainer.work.carried.values()) if job.room else 0,
        "bytes": sent(comm.ledger.rows()),
    }


def sent(rows) -> Counter:
    """{(purpose, axis, operation): bytes} of a ledger's rows; "" is the purpose of those that nobody claims."""
    table = Counter()
    for row in rows:
        if row["bytes"] and row["purpose"] not in UNCOUNTED and row["op"] not in RECEIVES:
            table[row["purpose"], row["axis"], row["op"]] += row["bytes"]
    return table


def _gap(mine, reference, scale=None):
    a, b = mine.double(), reference.double()
    return float((a - b).abs().max() / (scale or b.abs().max())) if b.numel() else 0.0


def _held(kind, name, parts, reference, job):
    """(what a rank has of a parameter, the same elements of the reference), for every rank that has some."""
    for rank, part in enumerate(parts):
        if name in part[kind]:
            whole = job.layout[name].owners == 1
            box = reference[job.layout.box(name, rank)]
            yield part[kind][name], box if whole else box.flatten()[job.layout.share(name, rank)]


def _gaps(kind, parts, alone, job):
    """One gap per parameter: the worst over all ranks that hold it, infinite where nobody does."""
    scale = max(float(tensor.abs().max()) for tensor in alone[kind].values())
    gaps = {}
    for name, reference in alone[kind].items():
        held = [_gap(mine, its, scale) for mine, its in _held(kind, name, parts, reference, job)]
        gaps[f"{kind} {name}"] = max(held, key=lambda gap: (gap != gap, gap), default=float("inf"))
    return gaps


def _buffer_gaps(parts, alone) -> dict[str, float]:
    """One gap per buffer that layers keep beside their weights: every rank that has it has all of it."""
    held = lambda name: [part["buffer"][name] for part in parts if name in part["buffer"]]
    worst = lambda name, reference: max((_gap(mine, reference) for mine in held(name)), default=float("inf"))
    return {f"buffer {name}": worst(name, reference) for name, reference in alone["buffer"].items() if reference.any()}


def _untouched(touched: dict, job: Job) -> dict[str, float]:
    """{trained parameter: the share of its elements that never had a gradient}, where there are some."""
    shares = {name: 1 - float(x.double().mean()) for name, x in touched.items() if name not in job.frozen and x.numel()}
    return {name: share for name, share in shares.items() if share}


def _adam_shares(parts, alone, job):
    """({"weight <name>": the worst difference over its bound}, the parameters whose gradients are noise alone)."""
    shares, excepted = {}, []
    least = noise(alone["gradient"])
    for name, reference in alone["weight"].items():
        if float(alone["gradient"][name].abs().max()) <= least:
            excepted.append(name)
            continue
        pairs = zip(
            _held("weight", name, parts, reference, job), _held("weight", name, parts, alone["bound"][name], job)
        )
        found = [float(((mine - its).abs() / bound).max()) for (mine, its), (_, bound) in pairs if its.numel()]
        shares[f"weight {name}"] = max(found, default=float("inf"))
    return shares, tuple(excepted)


def _bytes(job: Job, parts) -> tuple[dict, dict]:
    """({"what, by its formula": (counted in the ledgers of all ranks and steps, by the formula)}, axis by axis)."""
    counted, formula = Counter(), Counter()
    for part in parts:
        counted.update(part["bytes"])
    for mode in job.modes:
        formula.update({(mode.purpose, *key): job.steps * size for key, size in by_axis(mode.transfers(job)).items()})
    order = {mode.purpose: number for number, mode in enumerate(job.modes)}  # what nobody claims comes last
    every = sorted(counted | formula, key=lambda key: (order.get(key[0], len(order)), key))
    axes = {key: (counted[key], formula[key]) for key in every}
    titles = {mode.purpose: mode.title(job) for mode in job.modes}
    table = {titles["messages"]: (0, 0)}
    for (purpose, _, _), (one, other) in axes.items():
        title = titles.get(purpose, "claimed by no mode")
        table[title] = tuple(map(sum, zip(table.get(title, (0, 0)), (one, other))))
    if job["offload"]:
        moved = sum(part["moved"] for part in parts)
        table["to the optimizer and back"] = moved, job.steps * job.keeper.moved(job)
    if job.room:
        table["kept on the host, there and back"] = sum(part["copied"] for part in parts), job.steps * copied(job)
    return table, axes


def _describe(job: Job) -> str:
    axes = " × ".join(f"{axis}={n}" for axis, n in job.mesh.axes.items())
    said = [mode.said(job) for mode in job.modes] + ["driven" * job.driven]
    return ", ".join([f"{job.schedule.name} on {axes}", *filter(None, said), job.dtype])
