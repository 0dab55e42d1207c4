"""The messages of a norm: the squares go down the pipeline, from rank to rank, and their total comes back up.

Each message is one number in float64. A player with NORM and VALID in its list has a `NormLine`; its work adds this
rank's squares (`squares`), and learns the total (`settled`). Relatives: `scheduling.norms`, which places the actions;
`training.validated`, the work of a model.
"""

from itertools import pairwise

import torch

from hybridlab.core.when.along import ALONG, lines, neighbours, norms
from hybridlab.core.when.schedule import Schedule
from hybridlab.world.talk.message import Message

KINDS = ("NORM", "VALID")


class NormLine:
    """This rank's place among the ranks of its pipeline, for the messages of a norm.

    above, below  the rank before and the rank after it; None at the ends
    pairs         the ranks that communicate
    """

    def __init__(self, comm, schedule: Schedule, work):
        self.comm, self.work, line = comm, work, comm.mesh.line(comm.rank)
        sides = (side[line.index(comm.rank)] for side in neighbours(schedule))
        self.above, self.below = (line[seat] if seat >= 0 else None for seat in sides)
        self.first_tag = 2 * len(schedule.edges) * len(schedule.replica_of) * work.widest  # above those of the stages
        self.pairs = set()
        if norms(schedule):
            self.pairs = {(line[a], line[b]) for ranks in lines(schedule) for a, b in pairwise(ranks)}

    def add(self) -> list[Message]:
        """Add this rank's squares to those of the ranks before, and send them on."""
        return self._tell("squares", self.work.squares(self._told("squares", self.above)), self.below)

    def learn(self) -> tuple[bool, list[Message]]:
        """Receive the total and pass it on, if an optimizer step waits for it. It also returns whether the forwards
        since that step have to be repeated.
        """
        if not self.work.unsettled:
            return False, []
        total = self._told("norm", self.below)
        total = self.work.summed if total is None else total
        sent = self._tell("norm", total, self.above)
        return self.work.settled(total), sent

    def _told(self, name, rank):
        if rank is None:
            return None
        room = torch.zeros((), dtype=torch.float64, device=self.work.device)
        return self.comm.irecv(room, rank, self.first_tag + ALONG.index(name)).wait()

    def _tell(self, name, number, rank):
        return [] if rank is None else [self.comm.isend(number, rank, self.first_tag + ALONG.index(name))]
