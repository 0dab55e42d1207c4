"""An interpreter of schedules in twenty lines: the package's (`runtime.player`) without memory, collectives and clocks.

Its lists have messages as actions, as `hl.lower` writes them. So it makes no decision: each action is one call.
"""

from torch import Tensor, empty, nn

from hybridlab.core.when.schedule import Schedule
from hybridlab.labs.engine import toy
from hybridlab.labs.engine.case import ROWS, WIDTH


def play(comm, stages: dict[int, nn.Module], schedule: Schedule, data: list[tuple[Tensor, Tensor]]) -> None:
    """Execute this rank's list; the gradients of the batch are then in its stages.

    stages    {number: stage}, those of this rank
    schedule  with messages and full backwards, of a chain of stages, one copy of each
    data      one (x, target) for each microbatch
    """
    x, y, gradient, sends, last = {}, {}, {}, [], schedule.stages - 1
    rank_of = {stage: rank for (stage, _), rank in schedule.place.items()}
    for kind, s, k in ((one.kind, one.stage, one.microbatch) for one in schedule.program[comm.rank]):
        match kind:
            case "F":
                given = data[k][0] if s == 0 else x.get((s, k), y.get((s - 1, k)))
                x[s, k] = given.detach().requires_grad_(s > 0)
                y[s, k] = stages[s](x[s, k])
            case "B" if s == last:
                (toy.loss(y.pop((s, k)), data[k][1]) / len(data)).backward()
            case "B":
                y.pop((s, k)).backward(gradient[s, k] if (s, k) in gradient else x[s + 1, k].grad)
            case "SEND_F":
                sends.append(comm.isend(y[s, k].detach(), to=rank_of[s + 1], tag=2 * (k * last + s)))
            case "RECV_F":
                x[s, k] = comm.recv(empty(ROWS, WIDTH), source=rank_of[s - 1], tag=2 * (k * last + s - 1))
            case "SEND_B":
                sends.append(comm.isend(x[s, k].grad, to=rank_of[s - 1], tag=2 * (k * last + s - 1) + 1))
            case "RECV_B":
                gradient[s, k] = comm.recv(empty(ROWS, WIDTH), source=rank_of[s + 1], tag=2 * (k * last + s) + 1)
    for message in sends:
        message.wait()


def difference(comm, schedule: Schedule, count: int) -> float:
    """Run a schedule with `count` microbatches of the toy; the largest difference from one device on this rank.

    It is 0.0 if gradients agree to the last bit.
    """
    here = [stage for (stage, _), rank in schedule.place.items() if rank == comm.rank]
    stages = {number: toy.stage(number, schedule.stages) for number in here}
    play(comm, stages, schedule, toy.microbatches(count))
    return max(toy.difference(stage, number, schedule.stages, count) for number, stage in stages.items())
