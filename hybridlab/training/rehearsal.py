"""A rehearsal: a user's model with sharded matrices first trains one step, unsharded and sharded, for comparison.

Tensor parallelism uses the names of dims, and never reads a forward. A module may use its input also outside of the
sharded matrices, for example in a residual or in a softmax over hidden units. There it sees only a part, or its
gradient is added once for each rank: losses look plausible, but gradients are wrong. Only a comparison shows it;
`train` makes one, of one microbatch.

Relatives: `training.check`, the full proof; `training.models.plain`, the same for one device.
"""

import math

from hybridlab.core.where.mesh import Mesh
from hybridlab.training.check import check
from hybridlab.training.job import Job
from hybridlab.training.models.plain import strange
from hybridlab.world.processes import torchrun

CUTTING = ("tp", "x")  # axes that cut matrices
MOST = 1e8  # weights: above this, a copy in float64 and its gradients may not fit in memory together with the job


def refuse_other_in_parts(job: Job):
    """Raise an error unless one step of this model sharded along tp and x equals the unsharded one, gradients included.

    It skips reference models, whose proofs are the project's tests, models with more than `MOST` weights, and ranks
    that torchrun has started: there `check` reports it.

    raises  ValueError with the tensor that differs most, and the remedy
    """
    ways = {axis: job.mesh[axis] for axis in CUTTING if job.mesh[axis] > 1}
    weights = sum(math.prod(param.shape) for param in job.records)
    if not ways or not strange(job.whole) or weights > MOST or torchrun.present():
        return
    more = {"sequence": True, "overlap": job["overlap"]} if "tp" in ways and job["sequence"] else {}
    report = check(
        Mesh(**ways),
        model=job.model,
        weights=job.weights,
        seed=job.seed,
        batch=job.rows,
        microbatches=1,
        steps=1,
        **more,
    )
    if not report.equal:  # `check` reports if there is nothing to compare
        axes = ", ".join(f"{axis}={length}" for axis, length in ways.items())
        raise ValueError(
            f"sharded along {axes}, this model differs from the unsharded one by up to {report.largest_gap:.1e}: "
            "between two sharded matrices use elementwise operations only, and move a residual, or a softmax over "
            f"hidden units, into a module around them; hl.check(hl.Mesh({axes}), model=…) compares all tensors"
        )
