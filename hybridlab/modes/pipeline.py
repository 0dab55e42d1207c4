"""Pipeline parallelism: every rank owns some stages of the model, and sends activations and gradients between stages.

A rank executes the same list of actions that was drawn and simulated; `runtime.player` executes it.

On a mesh with axes other than dp and pp, there is one pipeline for each coordinate along these, and all run in
parallel: the ranks that shard a stage (tp) run one program.

Relatives: schedules in `scheduling/`, prediction in `predict.time.simulate`, the picture in `show.timelines.draw`;
notebooks 10 to 15.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from hybridlab.core.when.along import lines
from hybridlab.modes.mode import Mode
from hybridlab.predict.bytes.transfer import Transfer, transfer
from hybridlab.runtime.message_driven import NUMBER
from hybridlab.runtime.player import Player as Player  # where students' notebooks may still import it from
from hybridlab.scheduling.norms import repeated

NORM = 8  # bytes of a norm, or of squares: one number in float64


class Pipeline(Mode):
    """The runtime part of this mode; a rank executes it with a `runtime.player.Player`."""

    name, axis, purpose = "pipeline parallelism", "pp", "messages"

    def takes_part(self, mesh, chosen):
        return True

    def title(self, job):
        return "messages between stages"

    def transfers(self, job) -> Iterator[Transfer]:
        """Each group of ranks that run the schedule together sends the activations and gradients of its cuts: the full
        tensors, or a part of them.
        """
        number = NUMBER if job.driven else 0
        for line in sorted({job.mesh.line(rank) for rank in range(job.mesh.size)}):
            rooms = job.rooms(line[0])
            for (edge, one, other), times in _crossings(job).items():
                tensors = rooms[edge]
                back = [x for x in tensors if x.is_floating_point()]  # only these can have a gradient
                for what, sender, receiver, sent in (
                    ("activations", one, other, tensors),
                    ("gradients", other, one, back),
                ):
                    size = job.accumulate * times * (sum(x.nbytes for x in sent) + number)
                    yield transfer(job.mesh, what, "isend", (line[sender], line[receiver]), size)
            for a, b in (pair for ranks in lines(job.schedule) * job.norms for pair in pairwise(ranks)):
                for sender, receiver in ((a, b), (b, a)):  # the squares, and the norm
                    yield transfer(job.mesh, "norm", "isend", (line[sender], line[receiver]), NORM)
            for (stage, one, other), times in _loans(job.schedule).items():
                size = job.accumulate * times * int(job.room.keeps[stage])
                yield transfer(job.mesh, "saved activations", "isend", (line[one], line[other]), size)

    def again(self, job) -> Iterator[Transfer]:
        """The activations sent by the forwards that are repeated."""
        for line in sorted({job.mesh.line(rank) for rank in range(job.mesh.size)}):
            rooms = job.rooms(line[0])
            for one, program in enumerate(repeated(job.schedule).program):
                for action in (action for action in program if action.kind == "SEND_F"):
                    other = job.schedule.place[action.edge[1], action.replica]
                    size = sum(x.nbytes for x in rooms[job.schedule.edges.index(action.edge)])
                    yield transfer(job.mesh, "activations", "isend", (line[one], line[other]), size)


def _crossings(job) -> Counter:
    """{(edge, a rank of the group, another rank): messages in the forward of one run}."""
    schedule, times = job.schedule, Counter()
    for edge, (a, b) in enumerate(schedule.edges):
        for replica in schedule.replica_of if (a, b) in job.links.crossing else ():
            one, other = schedule.place[a, replica], schedule.place[b, replica]
            times[edge, one, other] += one != other
    return +times


def _loans(schedule) -> Counter:
    """{(stage, rank of the group that sends, rank that receives): moves of loans in one run}."""
    found = Counter()
    for rank, program in enumerate(schedule.program):
        for action in program:
            if action.lent and action.kind == "SWAP_OUT":
                ends = {schedule.place[stage, action.replica] for stage in (action.stage, action.peer)}
                found[action.stage, rank, (ends - {rank}).pop()] += 1
    return found


MODE = Pipeline()
