"""Data parallelism around a pipeline: copies of one schedule, each with its own microbatches; one all-reduce at the
end.
"""

import numpy as np

from hybridlab.core.afford import refuse_actions
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.mesh import Mesh
from hybridlab.scheduling.sums import with_sums


def replicate(schedule: Schedule, mesh: Mesh) -> Schedule:
    """A schedule for `mesh["dp"]` copies of a pipeline of `mesh["pp"]` ranks, with a reduction of gradients at the end.

    schedule  of one pipeline
    mesh      with the axes dp and pp

    Copy d runs the microbatches d·m … d·m+m-1 of the global batch. Each stage's REDUCE_GRAD comes after the last
    backward of its rank: the simplest form of data parallelism, without overlap.

    raises  ValueError if the schedule's number of ranks is not the mesh's pp, or if the schedule updates weights during
            the step

    >>> from hybridlab.scheduling.gpipe import gpipe
    >>> print(replicate(gpipe(ranks=2, microbatches=1), Mesh(dp=2, pp=2)))
    rank 0: 0F0 0B0 0REDUCE_GRAD
    rank 1: 1F0 1B0 1REDUCE_GRAD
    rank 2: 0F1@1 0B1@1 0REDUCE_GRAD@1
    rank 3: 1F1@1 1B1@1 1REDUCE_GRAD@1
    """
    copies, pipeline, replicas, m = mesh["dp"], mesh["pp"], schedule.replicas, len(schedule.replica_of)
    if pipeline != schedule.ranks or copies * pipeline != mesh.size:
        raise ValueError(
            f"{schedule.name} has {schedule.ranks} ranks, but {mesh} is not dp × pp={schedule.ranks}: make them equal"
        )
    if schedule.window and copies > 1:
        raise ValueError(f"{schedule.name} updates every stage independently and cannot have replicas: leave out dp")
    refuse_actions(copies * len(schedule.rows), dp=copies)
    programs, fused, place = [schedule.rows[:0]] * mesh.size, [[] for _ in range(mesh.size)], {}
    for d in range(copies):
        shift = np.array([0, 0, d * m, d * replicas, 0, 0])
        for r in range(pipeline):
            rows = schedule.rows[schedule.starts[r] : schedule.starts[r + 1]]
            stages = [home for home, rank in schedule.place.items() if rank == r]
            rank = mesh.rank(**{axis: {"dp": d, "pp": r}[axis] for axis in mesh.axes})
            pairs = np.array(schedule.fused, dtype=np.int64) - schedule.starts[r]
            fused[rank] = pairs[(pairs >= 0) & (pairs < len(rows))]
            programs[rank] = rows + shift * (rows >= 0)
            place |= {(stage, d * replicas + replica): rank for stage, replica in stages}
    replica_of = tuple(d * replicas + replica for d in range(copies) for replica in schedule.replica_of)
    starts = np.cumsum([0] + [len(program) for program in programs])
    joined = tuple(np.concatenate([pairs + start for pairs, start in zip(fused, starts)]).tolist())
    return with_sums(schedule.with_programs(programs, place=place, replica_of=replica_of, dp=copies, fused=joined))
