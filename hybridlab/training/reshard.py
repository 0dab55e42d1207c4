"""Reshard: from one layout to another in memory, while the ranks keep running.

Two jobs train the same model with the same data. The plan lists the elements that each rank has to take from another
when the second follows the first: all that it needs and does not have yet. It compares two kinds of pieces: weights as
ranks compute with them, and the optimizer's state as ZeRO shards it.

Source: the resharding of RL systems, which train under one layout and generate text under another (Sheng et al. 2024,
HybridFlow, arXiv:2409.19256, section 5); Megatron-LM, `core/resharding`. Relatives: `training.resharded`, which makes
the moves; `training.resume`, the same through a checkpoint; notebook 40.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from hybridlab.core.afford import DAY
from hybridlab.core.where.layout import Layout
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.moves import Move, moves
from hybridlab.core.where.passage import PARTS, Passage
from hybridlab.modes import full_matrices
from hybridlab.predict.bytes import sharing
from hybridlab.predict.bytes.transfer import Transfer, by_axis, transfer
from hybridlab.signatures import checked, nearest, spelled, typed
from hybridlab.training import asked
from hybridlab.training.affordable import affordable
from hybridlab.training.check import Claims, at_end, compared, copies_of, first_step, repeated
from hybridlab.training.elsewhere import refuse_elsewhere
from hybridlab.training.job import Job
from hybridlab.training.loop import Trainer
from hybridlab.training.models.draws import buffers_of
from hybridlab.training.models.vocabulary_pieces import pieces_in
from hybridlab.training.rehearsal import refuse_other_in_parts
from hybridlab.training.report import Report
from hybridlab.training.resharded import PURPOSE, goes_over
from hybridlab.training.resume import refuse_other_notes, refuse_other_pieces, same, stored_layout
from hybridlab.training.run import LEARNING
from hybridlab.training.trained import Trained, comes_home, shares_of
from hybridlab.world.processes.launch import foresee, training_ranks

TITLE = "pieces that other ranks have"
OF_VERSIONS = {"predict_weights": False, "stash": True}  # how a schedule without flush uses versions of weights


@dataclass(frozen=True, eq=False)
class Resharding(Passage):
    """The messages that move a training run from one layout to another, and their bytes.

    before, after  the jobs of the two layouts
    """

    before: Job
    after: Job

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """The old layout and the new one, with the buffers of layers."""
        return stored_layout(self.before), stored_layout(self.after)

    @property
    def used(self) -> bool:
        """Whether weights move in the form that ranks compute with. Otherwise the optimizer has copies in another dtype
        or on the host, or shares of the part that a rank keeps: these move, and ranks gather the weights from them, as
        after a step."""
        copies = any(job.dtype != job["master_dtype"] or job["offload"] for job in (self.before, self.after))
        return not (copies or self.after["two_levels"])

    @cached_property
    def moves(self) -> dict[str, list[Move]]:
        sent: Counter = Counter()
        widths = {part: partial(self.width, part) for part in PARTS}
        return {part: moves(*self.layouts, self.used and part == "weights", widths[part], sent) for part in PARTS}

    def width(self, part: str, name: str) -> int:
        job = self.before
        if name not in job.layout.named:
            return buffers_of(job.whole)[name].element_size() * (part == "weights")
        numbers = 1 if part == "weights" else 0 if name in job.frozen else job.widths.states
        if numbers > 1 and name in job.once(full_matrices.of_muon):
            numbers = job.widths.matrix
        return numbers * job.widths.master

    def transfers(self) -> list[Transfer]:
        """The messages as transfers, for the ledgers."""
        return [transfer(self.before.mesh, "pieces", "isend", *one) for one in self.sent.items()]

    @typed
    def train(
        self, at: int, evaluate: bool = False, on_event: Callable | None = None, hang_s: float | None = None
    ) -> dict:
        """Train under the first layout, switch to the second on the same ranks without writing a file, and continue to
        train.

        at        steps under the first layout, of the `steps` of both
        evaluate  whether to compute the loss on validation data before and after the change
        on_event  on_event(rank, event) after every step, with its number and loss
        hang_s    seconds that one layer, or one wait for another rank, may take; None: 60

        returns {"losses": one per step, "bytes": {(sender, receiver): bytes counted}, "validation": the two losses, if
                 asked, "end": the number of steps, "model": the module with the trained weights}
        raises  ValueError for an impossible step; RankError if a rank fails

        >>> import hybridlab as hl
        >>> plan = hl.reshard(hl.Mesh(pp=2), to=hl.Mesh(tp=2), steps=2)
        >>> sum(plan.train(at=1)["bytes"].values()) == plan.total  # starts ranks
        True
        """
        _refuse_step(at, self.before.steps)
        for job in (self.before, self.after):
            refuse_other_in_parts(job, hang_s)
        foresee(__name__)
        with training_ranks(self.before.mesh, hang_s) as pool:
            refuse_elsewhere(self.before, pool)
            homes = pool.run(_train_on_rank, self, at, evaluate, comes_home(self.after), on_event=on_event)
        counted = {(rank, to): size for rank, home in enumerate(homes) for to, size in home["sent"].items()}
        facts = {"losses": homes[0]["losses"], "bytes": counted, "end": self.after.steps}
        facts |= {"validation": homes[0]["validation"]} if evaluate else {}
        return Trained(facts, self.after, [home["shares"] for home in homes], None)

    @typed
    def check(self, at: int = 1, sabotage: Callable | None = None, hang_s: float | None = None) -> Report:
        """`hl.check` for a training run that switches to the second layout: it must equal one device, and its messages
        must have the bytes in this plan.

        at        steps under the first layout
        sabotage  a function called on every rank before the first step
        hang_s    seconds that one layer, or one wait for another rank, may take; None: 60

        raises  as `hl.check`

        >>> import hybridlab as hl
        >>> report = hl.reshard(hl.Mesh(pp=2), to=hl.Mesh(tp=2), optimizer="adamw", dtype="float64").check()
        >>> report.ok, report.largest_gap < 1e-10  # starts ranks
        (True, True)
        """
        _refuse_step(at, self.before.steps - 1)
        for job in (self.before, self.after):
            if not job.flushes:
                raise ValueError(f"{job.schedule.name} keeps several versions of weights: give a synchronous schedule")
        before, after = (job.with_(model=job.model.for_proof()) for job in (self.before, self.after))
        steps = {before: at, after: before.steps - at}
        ranks = _check_on_rank, Resharding(before, after), at, sabotage
        return compared(steps, *ranks, between=self._claims(), hang_s=hang_s)

    def _claims(self) -> Claims:
        """The bytes that ranks send to change the layout, by purpose, axis and operation."""
        found = {(TITLE, PURPOSE, *key): size for key, size in by_axis(self.transfers()).items()}
        if self.used:
            return found
        job, gathers = self.after, []
        for pack, names in job.layout.packs.items():
            published = int(job.layout[names[0]].rest < 3)
            for rank in range(job.mesh.size):
                its = sharing.transfers(job.layout, pack, rank, job.widths, gathers=published)
                gathers += [one for one in its if one.op == "all_gather" and one.ranks[0] == rank]
        more = by_axis(gathers)
        return found | {(TITLE, job.keeper.purpose, *key): size for key, size in more.items()}


@spelled(asked.arguments, positional=asked.FIRST, optimizer="adamw", rate=LEARNING["rate"])
def reshard(*, to: Mesh | dict, **given) -> Resharding:
    """The messages that move a training run from one layout to another while its ranks keep running, and their bytes.

    Each rank takes from the others what it needs under the second layout and does not have yet: weights, and the state
    of the optimizer, ZeRO's shards included. If several ranks have a piece, they send in turn. The plan can be drawn,
    run (`train`) and checked (`check`). A common use is reinforcement learning: training under one layout, evaluation
    or generation of text under another. For a schedule without a flush, the newest version of the weights is used.

    {arguments}
    to             the second layout: a mesh, or a dict of the arguments above that differ, such as {"mesh":
                   hl.Mesh(tp=4), "zero": 1}; with another schedule, predict_weights and stash take their defaults
                   unless they are given here

    returns a `Resharding`: `moves`, `bytes` and `there` (both by weights and state), `total`, `pairs`
    raises  ValueError for invalid arguments, or if the second job cannot continue the first

    >>> import hybridlab as hl
    >>> plan = hl.reshard(hl.Mesh(pp=2), to=hl.Mesh(tp=2), shape=hl.Shape(layers=2, width=8, heads=2))
    >>> print(plan)
    Mesh(pp=2) → Mesh(tp=2): 2 messages, 38,880 bytes
      weights: 12,960 bytes sent, 12,960 there already
      state: 25,920 bytes sent, 25,920 there already
    """
    more = {"mesh": to} if isinstance(to, Mesh) else dict(to)
    every = asked.LAYOUT.keys() | asked.of_modes().keys() | {"rows", "accumulate", "validated"} | OF_VERSIONS.keys()
    for name in more:
        if name not in every:
            raise ValueError(f"to={{{name!r}: …}} does not change the layout: {nearest(name, sorted(every))}")
    more = checked(reshard, more)
    before = affordable(DAY, **given)
    batch = {} if {"rows", "batch"} & more.keys() else {"rows": None, "batch": before.microbatches * before.rows}
    usual = OF_VERSIONS if "schedule" in more else {}
    after = affordable(DAY, **given | usual | batch | more)
    if "local" in (before["sums"], after["sums"]):
        raise ValueError("sums='local' keeps a different model in every copy: leave out sums to reshard")
    if full_matrices.blocks_of(before) != full_matrices.blocks_of(after):
        raise ValueError(
            "muon='blockwise' updates different blocks after the change: choose 'gather' or 'gram' to reshard"
        )
    if after.mesh.size != before.mesh.size:
        raise ValueError(
            f"{before.mesh} has {before.mesh.size} ranks, but {after.mesh} has {after.mesh.size}: give two meshes "
            "with the same number of ranks"
        )
    refuse_other_pieces("the first layout has", pieces_in(before.layout.named), pieces_in(after.layout.named))
    refuse_other_notes("the first layout has", same(before), after)
    return Resharding(before, after)


def _refuse_step(at: int, most: int):
    """Raise ValueError unless ranks can change to the second layout after this number of steps."""
    if not 1 <= at <= most:
        raise ValueError(f"at={at} is not a step after which the layout can change: give 1 to {most}, or a longer run")


def _train_on_rank(comm, plan: Resharding, at: int, evaluate: bool, bring: bool) -> dict:
    trainer, losses, told, sent = Trainer(comm, plan.before), [], [], Counter()
    for step in range(plan.before.steps):
        losses += _told_step(comm, trainer, step)
        if step + 1 == at:
            told += [trainer.evaluate(at)] if evaluate else []
            first = comm.ledger.forgotten + len(comm.ledger)
            trainer = goes_over(trainer, plan)
            sent = _sent(comm.ledger.rows()[first - comm.ledger.forgotten :])
            told += [trainer.evaluate(at)] if evaluate else []
        comm.ledger.forget(comm.ledger.forgotten + len(comm.ledger))
    shares = shares_of(trainer) if bring else {}
    return {"losses": losses, "sent": sent, "validation": told, "shares": shares}


def _told_step(comm, trainer: Trainer, step: int) -> list[float]:
    losses = trainer.step(step)[0]
    if comm.rank == 0:
        comm.emit(step=step, loss=losses[-1])
    return losses


def _sent(rows) -> Counter:
    """{receiver: bytes} of the messages, among these rows of a ledger, that change the layout."""
    found: Counter = Counter()
    for row in rows:
        if row["purpose"] == PURPOSE and row["op"] == "isend":
            found[row["peer"]] += row["bytes"]
    return found


def _check_on_rank(comm, plan: Resharding, at: int, sabotage) -> dict:
    if sabotage:
        sabotage()
    trainer = Trainer(comm, plan.before)
    home = first_step(trainer)
    for step in range(1, at):
        home["losses"] += trainer.step(step)[0]
    before, again = copies_of(trainer), repeated(trainer)
    trainer = goes_over(trainer, plan)
    on_the_way = copies_of(trainer)  # copies by publishing: no step has made them
    for step in range(at, plan.after.steps):
        home["losses"] += trainer.step(step)[0]
    copies = {name: before[name] + size - on_the_way[name] for name, size in copies_of(trainer).items()}
    end = at_end(trainer)
    return home | end | copies | {"repeated": [again, *end["repeated"]]}
