"""A training ends at the first nan, with its rank, step and tensor.

It ends before anything is saved, so what was saved before stays. Every rank notes sums of what its stages make, of what
passes its door, of gradients and of updated weights (`world.talk.nans`). After each step the ranks tell each other in
one number whether their losses, gradients and weights are all right. Only if one is not, the notes are read: the
culprit is who made a nan without having been given one; of several, the first.
"""

import math

import torch

from hybridlab.training.checkpoints import folder
from hybridlab.world.talk.nans import FirstNan

MADE, CAME, NEITHER = range(3)


def watched(trainer):
    """Have everything that a trainer's rank makes looked at, for the rest of this run."""
    nans = FirstNan()
    for one in (trainer, trainer.work, trainer.weights, trainer.comm.ledger):
        one.nans = nans


def turned_nan(trainer, step: int, losses: list[float], saver) -> bool:
    """Whether a step has brought forth what is not a number, on any rank; all ranks ask, and must then end.

    raises  FloatingPointError on the rank that made the first one
    """
    well = trainer.nans.well() and all(map(math.isfinite, losses))
    if not any(_told(trainer, [int(not well)])):
        return False
    first = trainer.nans.first()
    mine = [CAME if first.came else MADE, first.at] if first else [NEITHER, 0]
    told = _told(trainer, mine)
    if saver:
        saver.finish()  # its numbers were all right
    every = list(zip(told[::2], told[1::2]))
    if every.index(min(every)) == trainer.comm.rank:
        what = first.what if first else "the loss"
        how = ", though all that ranks had put into it was," if first and first.came else ""
        raise FloatingPointError(
            f"step {step}: {what}{how} is not a number, the first such tensor; {_kept(saver, step)}"
        )
    return True


def _told(trainer, mine: list[int]) -> list[int]:
    """What all ranks say, in their order."""
    return trainer.report.all_gather(torch.tensor(mine, device=trainer.comm.device)).tolist()


def _kept(saver, step: int) -> str:
    """What can be gone on from. A checkpoint of this very step holds the weights that made the nan, and would again."""
    if saver is None:
        return "nothing was saved, since no folder of checkpoints was given"
    runs = saver.saving.folder
    here, good = folder.steps_of(runs).get(step), next(iter(folder.before(runs, step)), None)
    if here:
        instead = f": delete it to go on from {good}, the last good one" if good else ", and there is none before it"
        return f"{here} holds the weights that led to it{instead}"
    return f"the last good checkpoint is {good}" if good else f"no checkpoint is in {runs} yet"
