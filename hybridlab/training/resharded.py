"""Changing to another layout on live ranks: every rank takes from the others the elements that it needs.

All elements that one rank sends to another travel in one message for each dtype. Afterwards a rank has the pieces that
it would have read from a checkpoint of the first job (`training.resume`), and the old trainer can be freed.

Relatives: `core.where.moves`, the list of moves; `training.reshard`, which makes it for two jobs.
"""

from collections import defaultdict

import torch

from hybridlab.core.where.moves import Move, piece
from hybridlab.training.checkpoints.checkpoint import Pieces, gathered
from hybridlab.training.loop import Trainer
from hybridlab.training.resume import pieces, restore

PURPOSE = "reshard"


def goes_over(trainer: Trainer, plan) -> Trainer:
    """A trainer for the plan's second job, with the weights and optimizer state of the first, on the same ranks."""
    after = Trainer(trainer.comm.on(plan.after.mesh), plan.after)
    take(after, exchanged(trainer, plan), plan)
    return after


def exchanged(trainer: Trainer, plan) -> dict[str, Pieces]:
    """{"weights", "state": this rank's new pieces by name and kind}, and the ranks send each other the elements that
    they need.

    plan  a `Resharding`
    """
    comm, layouts = trainer.comm, plan.layouts
    have = {"weights": _weights(trainer, plan), "state": pieces(trainer)}
    kinds = _kinds(trainer, have["state"], layouts[0])
    new = {part: _empty(layouts[1], comm, of, plan.used and part == "weights") for part, of in kinds.items()}
    travelling = defaultdict[tuple[int, int, str], list](list)  # by sender, receiver and dtype
    every = ((part, move, kind) for part, its in kinds.items() for move in plan.moves[part] for kind in its)
    for part, move, kind in every:
        dtype, number = kinds[part][kind].get(move.name, (None, None))
        if dtype and number is None and comm.rank in (move.source, move.to):
            travelling[move.source, move.to, dtype].append((part, move, kind))
    door, sent, came = comm.for_purpose(PURPOSE), [], []
    for (source, to, dtype), its in sorted(travelling.items(), key=lambda one: one[0]):
        if source == to:
            _put(new, its, _cut(have, its))
        elif to == comm.rank:
            length = sum(move.elements for _, move, _ in its)
            came.append((its, door.irecv(torch.empty(length, dtype=getattr(torch, dtype), device=comm.device), source)))
        else:
            sent.append(door.isend(_cut(have, its).to(comm.device), to))
    for its, message in came:
        _put(new, its, message.wait())
    for message in sent:
        message.wait()
    return new


@torch.no_grad()
def take(trainer: Trainer, new: dict[str, Pieces], plan):
    """Give a trainer its new pieces. Weights that arrive in the form used in computation need no gather."""
    layout, found = plan.layouts[1], {}
    for name, kinds in new["state"].items():
        value = new["weights"][name]["value"]
        owned, kept = piece(layout, name, trainer.comm.rank), piece(layout, name, trainer.comm.rank, plan.used)
        found[name] = kinds | {"value": value if owned == kept else value[owned.share]}
    restore(trainer, found)
    if not trainer.job.flushes:
        return
    if not plan.used:
        trainer.weights.publish()
        return
    for name, weight in trainer.weights.by_name.items():
        if layout[name].rest < 3:
            weight.copy_(new["weights"][name]["value"].view_as(weight))


def _weights(trainer, plan) -> Pieces:
    """The weights and buffers of a rank, flat: those that it computes with, if it keeps them."""
    found = {name: {"value": kinds["value"]} for name, kinds in pieces(trainer).items()}
    if plan.used and trainer.job.flushes:
        kept = {name: weight for name, weight in trainer.weights.by_name.items() if trainer.layout[name].rest < 3}
        found |= {name: {"value": weight.detach().flatten()} for name, weight in kept.items()}
    return found


def _kinds(trainer, state: Pieces, layout) -> dict[str, dict[str, dict]]:
    """{"weights", "state": {kind: {parameter: (dtype, None, or the number of a tensor without a dim)}}}, the same on
    all ranks: a rank that takes a parameter learns here which state belongs to it.
    """
    rank = trainer.comm.rank
    mine = {name: kinds for name, kinds in state.items() if layout.counts(name, rank)}
    told = {name: {kind: _about(x) for kind, x in kinds.items()} for name, kinds in mine.items()}
    found = {"weights": {"value": {}}, "state": {}}
    for name, kinds in (one for its in gathered(trainer.report, told) for one in its.items()):
        for kind, about in kinds.items():
            found["weights" if kind == "value" else "state"].setdefault(kind, {})[name] = about
    return found


def _about(x: torch.Tensor):
    return str(x.dtype).removeprefix("torch."), None if x.dim() else x.item()


def _empty(layout, comm, kinds: dict[str, dict], used: bool) -> Pieces:
    """A rank's new pieces, not filled yet; tensors without a dim have their number."""
    found = {}
    for name in layout.held(comm.rank):
        share = piece(layout, name, comm.rank, used).share
        about = {kind: (getattr(torch, its[name][0]), its[name][1]) for kind, its in kinds.items() if name in its}
        length = share.stop - share.start
        found[name] = {
            kind: torch.empty(length, dtype=dtype, device=comm.device)
            if number is None
            else torch.tensor(number, dtype=dtype)
            for kind, (dtype, number) in about.items()
        }
    return found


def _cut(have: dict[str, Pieces], every: list[tuple[str, Move, str]]) -> torch.Tensor:
    """The elements of these moves, one after another."""
    return torch.cat(
        [
            have[part][move.name][kind][begin : begin + count]
            for part, move, kind in every
            for begin, _, count in move.stretches
        ]
    )


def _put(new: dict[str, Pieces], every: list[tuple[str, Move, str]], flat: torch.Tensor):
    """Write the elements of these moves to their positions."""
    at = 0
    for part, move, kind in every:
        for _, begin, count in move.stretches:
            new[part][move.name][kind][begin : begin + count] = flat[at : at + count]
            at += count
