"""The check that a layout gives the results of one device: loss, every gradient, their norm, weights after some steps.

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
from hybridlab.modes.full_matrices import blocks_of
from hybridlab.modes.local_steps import rounds_of
from hybridlab.predict.bytes.transfer import by_axis
from hybridlab.signatures import spelled
from hybridlab.training import asked, loop
from hybridlab.training.affordable import affordable
from hybridlab.training.compare import compare, hides_decay
from hybridlab.training.elsewhere import refuse_elsewhere
from hybridlab.training.job import Job
from hybridlab.training.models.plain import mixes_by_design, strange
from hybridlab.training.models.trees import flat
from hybridlab.training.out_of_core import copied
from hybridlab.training.reference import alone_on_rank, owner_on_rank
from hybridlab.training.replay import replayed_on_rank
from hybridlab.training.replay_copies import copies_on_rank
from hybridlab.training.report import Report
from hybridlab.world.processes.launch import foresee, lone_rank, training_ranks

Claims = Mapping[tuple[str, str, str, str], float]
HIDDEN_DECAY = ("the weight decay: it moves every weight by less than rounding in this dtype may",)
UNCOUNTED = ("report", "checkpoint")  # losses, norms, fingerprints, checkpoints: not part of a step


@spelled(asked.arguments, positional=asked.FIRST, dtype="float64")
def check(*, hang_s: float | None = None, sabotage: Callable | None = None, **given) -> Report:
    """Check that a layout gives the results of one device: both train a few steps, and the results are compared.

    The check compares the loss, every gradient, their norm, the weights and the buffers. A mode must account for
    every byte sent.

    {arguments}
    hang_s         seconds that one layer, or one wait for another rank, may take; None: 60
    sabotage       a function called on every rank before the first step, to show that the check can fail

    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> report = hl.check(hl.Mesh(dp=2, pp=2), "1f1b", zero=1)  # starts ranks
    >>> report.ok, report.largest_gap < 1e-11
    (True, True)
    """
    job = affordable(DAY, **given)
    job = job.with_(model=job.model.for_proof())
    return compared({job: job.steps}, _on_rank, job, sabotage, hang_s=hang_s)


def compared(
    jobs: dict[Job, int],
    on_rank: Callable,
    *args,
    between: Claims = MappingProxyType({}),
    hang_s: float | None = None,
) -> Report:
    """Compare ranks with one device: both do some steps of each job, one job after another.

    jobs     {job: its steps}, of one model, in order
    on_rank  on_rank(comm, *args), which trains and returns `first_step(trainer)` with what `at_end(trainer)` adds
    between  {(title, purpose, axis, operation): bytes sent between two jobs, by the formula}
    hang_s   seconds that one layer may take; None: `training_ranks` chooses
    """
    (job, *_), (*_, last) = jobs, jobs
    foresee(__name__)
    if said := _refused(job, hang_s):
        raise ValueError(said)
    with training_ranks(job.mesh, hang_s) as pool:
        parts = pool.run(on_rank, *args)
    alone = _reference(job)
    losses, untouched = tuple(parts[0]["losses"]), _untouched(alone["touched"], job)
    gaps, adam, hidden = compare(parts, alone, job, last)
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
        _blind(job) + HIDDEN_DECAY * hides_decay(gaps, alone, last),
        alone["nothing"],
    )


def _refused(job: Job, hang_s: float | None) -> str:
    """The reason why a user's model cannot be checked: a plain run of a batch, as its owner would do it, gives another
    result.
    """
    if not strange(job.whole):
        return ""
    with lone_rank(hang_s) as pool:
        refuse_elsewhere(job, pool)
        return pool.run(owner_on_rank, job)[0]


def _reference(job: Job) -> dict:
    """The results of a job on one device. It may be silent for any time: the ranks have shown that training this model
    ends.
    """
    with lone_rank(DAY) as pool:
        (alone,) = pool.run(_origin(job)[1], job)
    return alone


def _origin(job: Job) -> tuple[str, Callable]:
    """(the reference in words, the function that computes it)."""
    if not job.flushes:
        return "a replay of its weight versions on one device", replayed_on_rank
    if job["sums"] == LOCAL:
        return "a replay of its copies on one device", copies_on_rank
    if blocks := blocks_of(job):
        return f"one device that updates the same blocks of matrices ({blocks})", alone_on_rank
    return "one device", alone_on_rank


def _blind(job: Job) -> tuple[str, ...]:
    """The mistakes that no comparison can show, for any layout."""
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
    """Do the first step of a training run, and return its losses, with its gradients and their norm."""
    home = {"losses": trainer.gradients(0)[0]}
    if trainer.job.flushes:
        home["gradient"] = {name: weight.grad.cpu().clone() for name, weight in trainer.parameters.items()}
        home["norm"] = trainer.gradient_norm()
        trainer.update()
    return home


def at_end(trainer) -> dict:
    """The weights and buffers of a rank at the end, and the bytes that this rank has copied and sent."""
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
    """The bytes that a rank has copied to and from its host, for the optimizer and for activations."""
    moved = sum(trainer.weights.moved.values()) if trainer.job.flushes else 0
    return {"moved": moved, "copied": sum(trainer.work.carried.values()) if trainer.job.room else 0}


def sent(rows) -> Counter:
    """{(purpose, axis, operation): bytes} of a ledger's rows; "" is the purpose of rows that belong to no mode."""
    table = Counter()
    for row in rows:
        if row["bytes"] and row["purpose"] not in UNCOUNTED and row["op"] not in RECEIVES:
            table[row["purpose"], row["axis"], row["op"]] += row["bytes"]
    return table


def _untouched(touched: dict, job: Job) -> dict[str, float]:
    """{trained parameter: the fraction of its elements that never had a gradient}, if there are any."""
    shares = {name: 1 - float(x.double().mean()) for name, x in touched.items() if name not in job.frozen and x.numel()}
    return {name: share for name, share in shares.items() if share}


def _bytes(jobs: dict[Job, int], parts, between: Claims) -> tuple[dict, dict]:
    """({"purpose": (bytes in all ledgers, bytes by its formula)}, the same by axis)."""
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
