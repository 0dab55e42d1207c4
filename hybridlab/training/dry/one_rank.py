"""A trainer for one rank without the other ranks, on torch's meta device, which computes nothing.

Code that would read a number (losses, norms, comparisons of ranks) is skipped; the rest is the real training code.
A model may read integers that follow from its batch (`known`).
"""

from hybridlab.runtime.arena import Arena
from hybridlab.training.dry.alive import Alive
from hybridlab.training.dry.counted import Counted, CountedWork
from hybridlab.training.dry.known import Known
from hybridlab.training.dry.moving import MovingWork
from hybridlab.training.fused_attention import fused_attention
from hybridlab.world.talk.dry import META, DryComm


class Dry(Counted):
    """The trainer of a single rank that computes nothing."""

    def works(self, *about) -> CountedWork:
        if room := self.job.room:
            return MovingWork(self.alive, Arena(room.capacity, self.comm.rank), *about, sizes=room.keeps)
        return super().works(*about)

    def _numbers(self, x) -> list[float]:
        return [0.0] * x.numel()


def played(job, rank: int) -> tuple[Dry, int]:
    """The trainer of a rank after one full step, and the number of the last operation before it."""
    with Known(), Alive(META.type) as alive, fused_attention():
        trainer = Dry(DryComm(job.mesh, rank), job, alive)
        return trainer, trainer.whole_step()
