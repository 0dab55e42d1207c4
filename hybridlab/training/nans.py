"""Training ends at the first nan, with its rank, step and tensor.

It ends before this step is saved, so earlier checkpoints stay. Every rank records sums of its stages' outputs, of its
messages, of gradients and of updated weights (`world.talk.nans`). After each step the ranks agree with one number that
their losses, gradients and weights contain no nan. The records are read only if one of them does. The culprit is a rank
that computed a nan without having received one; if there are several, the first.
"""

import math

import torch

from hybridlab.training.checkpoints import folder
from hybridlab.world.talk.nans import FirstNan

MADE, CAME, NEITHER = range(3)


def watched(trainer):
    """Watch every tensor that a trainer's rank computes, for the rest of this run."""
    nans = FirstNan()
    for one in (trainer, trainer.work, trainer.weights, trainer.comm.ledger):
        one.nans = nans


def turned_nan(trainer, step: int, losses: list[float], saver) -> bool:
    """Whether a step has produced a nan on any rank; all ranks call this, and must then end.

    raises  FloatingPointError on the rank that computed the first one
    """
    well = trainer.nans.well() and all(map(math.isfinite, losses))
    if not any(_told(trainer, [int(not well)])):
        return False
    first = trainer.nans.first()
    mine = [CAME if first.came else MADE, first.at] if first else [NEITHER, 0]
    told = _told(trainer, mine)
    if saver:
        saver.finish()  # the previous checkpoint has no nan
    every = list(zip(told[::2], told[1::2]))
    if every.index(min(every)) == trainer.comm.rank:
        what = first.what if first else "the loss"
        how = ", though all that ranks had put into it was," if first and first.came else ""
        raise FloatingPointError(
            f"step {step}: {what}{how} is not a number (the first such tensor); {_kept(saver, step)}"
        )
    return True


def _told(trainer, mine: list[int]) -> list[int]:
    """The values of all ranks, in rank order."""
    return trainer.report.all_gather(torch.tensor(mine, device=trainer.comm.device)).tolist()


def _kept(saver, step: int) -> str:
    """The checkpoint to resume from, in words. One of this same step contains the weights that led to the nan."""
    if saver is None:
        return "nothing was saved, since no folder of checkpoints was given"
    runs = saver.saving.folder
    here, good = folder.steps_of(runs).get(step), next(iter(folder.before(runs, step)), None)
    if here:
        instead = f": delete it to go on from {good}, the last good one" if good else ", and there is none before it"
        return f"{here} holds the weights that led to it{instead}"
    return f"the last good checkpoint is {good}" if good else f"no checkpoint is in {runs} yet"
