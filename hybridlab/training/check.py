"""The check that a layout trains as one device does: loss, every gradient, their norm, the weights after some steps.

Gradients and norm are compared before the optimizer runs: Adam hides a constant factor. Each tensor is compared
relative to its own size, on every rank that holds it. A difference that rounding noise could hide is reported as *not
proved* (`training.gaps`).

The check covers only parameters that its data use. So a transformer reads tokens of the full vocabulary, and no weight
starts with all elements equal (`Model.for_proof`). Parameters without a gradient in all these steps are reported as
*untouched*.

After steps of Adam, weights are compared with a separate bound: Adam divides a gradient by that gradient's size, which
amplifies rounding noise if the true gradient is small. See `reference.adam_moves`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from hybridlab.core.afford import DAY
from hybridlab.core.operations import RECEIVES
from hybridlab.modes.data_parallel import LOCAL
from hybridlab.modes.local_steps import rounds_of
from hybridlab.predict.bytes.transfer import by_axis
from hybridlab.signatures import spelled
from hybridlab.training import asked, loop
from hybridlab.training.affordable import affordable
from hybridlab.training.gaps import FACTOR, NEAR, Gaps, difference, largest, nearer, tolerance_of, worst
from hybridlab.training.job import Job
from hybridlab.training.models.plain import mixes_by_design, strange
from hybridlab.training.models.trees import flat
from hybridlab.training.out_of_core import copied
from hybridlab.training.reference import alone_on_rank, owner_on_rank
from hybridlab.training.replay import replayed_on_rank
from hybridlab.training.replay_copies import copies_on_rank
from hybridlab.training.report import Report
from hybridlab.world.processes.launch import foresee, ranks

Claims = Mapping[tuple[str, str, str, str], float]
UNCOUNTED = ("report", "checkpoint")  # losses, norms, fingerprints, checkpoints: not part of a step


@spelled(asked.arguments, positional=asked.FIRST, dtype="float64")
def check(*, sabotage: Callable | None = None, **given) -> Report:
    """Check that a layout trains as one device does: both train a few steps, and the results are compared.

    The check compares the loss, every gradient, their norm, the weights and the buffers. A mode must account for
    every byte sent.

    {arguments}
    sabotage       a function called on every rank before the first step, to show that the check can fail

    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> report = hl.check(hl.Mesh(dp=2, pp=2), "1f1b", zero=1)  # starts ranks
    >>> report.ok, report.largest_gap < 1e-11
    (True, True)
    """
    job = affordable(DAY, **given)
    job = job.with_(model=job.model.for_proof())
    return compared({job: job.steps}, _on_rank, job, sabotage)


def compared(jobs: dict[Job, int], on_rank: Callable, *args, between: Claims = MappingProxyType({})) -> Report:
    """Compare ranks with one device: they do some steps of each job, one job after another.

    jobs     {job: its steps}, of one model, in their order
    on_rank  on_rank(comm, *args), which trains and returns `first_step(trainer)` with what `at_end(trainer)` adds
    between  {(title, purpose, axis, operation): bytes sent between two jobs, by the formula}
    """
    (job, *_), (*_, last) = jobs, jobs
    foresee(__name__)
    if said := _refused(job):
        raise ValueError(said)
    with ranks(job.mesh) as pool:
        parts = pool.run(on_rank, *args)
    alone = _reference(job)
    losses, untouched = tuple(parts[0]["losses"]), _untouched(alone["touched"], job)
    gaps, adam, hidden = _compared(parts, alone, job, last)
    return Report(
        "; then ".join(map(_describe, jobs)),
        gaps.found,
        *_bytes(jobs, parts, between),
        gaps.tolerance,
        losses,
        _origin(job)[0],
        adam,
        gaps.allowed,
        gaps.unproved | hidden,
        untouched,
        _blind(job),
        alone["nothing"],
    )


def _refused(job: Job) -> str:
    """The reason why a user's model cannot be checked: its owner's run of a batch gives another result."""
    if not strange(job.whole):
        return ""
    with ranks(1) as pool:
        return pool.run(owner_on_rank, job)[0]


def _reference(job: Job) -> dict:
    """The results of a job on one device."""
    with ranks(1) as pool:
        (alone,) = pool.run(_origin(job)[1], job)
    return alone


def _origin(job: Job) -> tuple[str, Callable]:
    """(the reference in words, the function that computes it)."""
    if not job.flushes:
        return "a replay of its weight versions on one device", replayed_on_rank
    if job["sums"] == LOCAL:
        return "a replay of its copies on one device", copies_on_rank
    return "one device", alone_on_rank


def _blind(job: Job) -> tuple[str, ...]:
    """The things that no comparison can show, with any layout."""
    rows = [
        torch.cat([flat(one)[0] for one in microbatches])
        for step in range(job.steps)
        for microbatches in job.batch(step)
    ]
    alike = all(bool((x == x[:1]).all()) for x in rows)
    told = ("which rank reads which rows: all rows of these batches are alike",) * alike
    if mixes_by_design(job.whole) and strange(job.whole):
        told += ("the whole batch at once: layers count, or give places, among the rows of one microbatch",)
    if job["sums"] == LOCAL and not any(rounds_of(job).used(step) for step in range(job.steps - 1)):
        told += (f"the outer step: no step follows one, of these {job.steps}",)
    return told


def _on_rank(comm, job, sabotage):
    if sabotage:
        sabotage()
    trainer = loop.Trainer(comm, job)
    home = first_step(trainer)
    for step in range(1, job.steps):
        home["losses"] += trainer.step(step)[0]
    return home | at_end(trainer)


def first_step(trainer) -> dict:
    """Do the first step of a training, and return its losses, with its gradients and their norm."""
    home = {"losses": trainer.gradients(0)[0]}
    if trainer.job.flushes:
        home["gradient"] = {name: weight.grad.cpu().clone() for name, weight in trainer.parameters.items()}
        home["norm"] = trainer.gradient_norm()
        trainer.update()
    return home


def at_end(trainer) -> dict:
    """The weights and buffers of a rank at the end, and the bytes that it has copied and sent."""
    trainer.settle()
    return {
        "weight": {name: weight.detach().cpu() for name, weight in trainer.parameters.items()},
        "buffer": {name: buffer.cpu() for name, buffer in trainer.buffers.items()},
        "repeated": [repeated(trainer)],
        **copies_of(trainer),
        "bytes": sent(trainer.comm.ledger.rows()),
    }


def repeated(trainer) -> int:
    """The number of steps whose first forwards were repeated."""
    return trainer.work.step.repeated if trainer.job.norms else 0


def copies_of(trainer) -> dict[str, int]:
    """The bytes that a rank has copied to and from the optimizer on its host, and those of activations."""
    moved = sum(trainer.weights.moved.values()) if trainer.job.flushes else 0
    return {"moved": moved, "copied": sum(trainer.work.carried.values()) if trainer.job.room else 0}


def sent(rows) -> Counter:
    """{(purpose, axis, operation): bytes} of a ledger's rows; "" is the purpose of rows that belong to no mode."""
    table = Counter()
    for row in rows:
        if row["bytes"] and row["purpose"] not in UNCOUNTED and row["op"] not in RECEIVES:
            table[row["purpose"], row["axis"], row["op"]] += row["bytes"]
    return table


def _compared(parts, alone, job, last) -> tuple[Gaps, dict[str, float], dict[str, float]]:
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


def _copy(rank: int, job: Job) -> tuple[int, ...]:
    """The index of a rank's copy in a tensor of the reference: if copies step alone, they are its first dim."""
    return (job.mesh.place(rank, "dp"),) if job["sums"] == LOCAL else ()


def _held(kind, name, parts, reference, job):
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
        off = worst(difference(mine, its) for mine, its in _held(kind, name, parts, reference, job))
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


def _untouched(touched: dict, job: Job) -> dict[str, float]:
    """{trained parameter: the fraction of its elements that never had a gradient}, if there are any."""
    shares = {name: 1 - float(x.double().mean()) for name, x in touched.items() if name not in job.frozen and x.numel()}
    return {name: share for name, share in shares.items() if share}


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
    every = (_held("weight", name, parts, alone[kind][name], job) for kind in ("weight", "bound", "moves"))
    pieces = [((mine - its).double().abs(), bound, move.abs()) for (mine, its), (_, bound), (_, move) in zip(*every)]
    share = worst(largest(off / bound) for off, bound, _ in pieces)
    return share, min((nearer(off, move) for off, _, move in pieces), default=0.0)


def _bytes(jobs: dict[Job, int], parts, between: Claims) -> tuple[dict, dict]:
    """({"purpose, by its formula": (bytes in all ledgers, by the formula)}, the same by axis)."""
    counted, formula = Counter(), Counter()
    for part in parts:
        counted.update(part["bytes"])
    for (job, steps), times in zip(jobs.items(), parts[0]["repeated"]):
        for mode in job.modes:
            formula.update({(mode.purpose, *key): steps * size for key, size in by_axis(mode.transfers(job)).items()})
            formula.update({(mode.purpose, *key): size for key, size in by_axis(mode.seldom(job)).items()})
            if times:
                formula.update({(mode.purpose, *key): times * size for key, size in by_axis(mode.again(job)).items()})
    formula.update({key[1:]: size for key, size in between.items()})
    purposes = dict.fromkeys(mode.purpose for job in jobs for mode in job.modes)
    order = {purpose: number for number, purpose in enumerate(purposes)}  # rows without a mode come last
    every = sorted(counted | formula, key=lambda key: (order.get(key[0], len(order)), key))
    axes = {key: (counted[key], formula[key]) for key in every}
    titles = {purpose: title for title, purpose, *_ in between}
    titles |= {mode.purpose: mode.title(job) for job in jobs for mode in job.modes}
    table = {titles["messages"]: (0, 0)}
    for (purpose, _, _), (one, other) in axes.items():
        title = titles.get(purpose, "claimed by no mode")
        table[title] = tuple(map(sum, zip(table.get(title, (0, 0)), (one, other))))
    if any(job["offload"] for job in jobs):
        moved = sum(steps * job.keeper.moved(job) for job, steps in jobs.items() if job["offload"])
        table["to the optimizer and back"] = sum(part["moved"] for part in parts), moved
    if any(job.room and (job["device_memory"] is not None or copied(job)) for job in jobs):
        there = sum(steps * copied(job) for job, steps in jobs.items() if job.room)
        table["kept on the host, there and back"] = sum(part["copied"] for part in parts), there
    return table, axes


def _describe(job: Job) -> str:
    axes = " × ".join(f"{axis}={n}" for axis, n in job.mesh.axes.items())
    return f"{job.schedule.name} on {axes}, {job.choices}"
