"""A rehearsal: a user's model with sharded matrices first trains one step, unsharded and sharded, for comparison.

Tensor parallelism reads the names of dims, and never a forward. What a module does with its input beside the matrices
that are cut, a residual or a softmax over hidden units, it does with a part, or its gradient is added up once for each
rank: losses look plausible, and gradients are others. Only a comparison tells; `train` makes one, of one microbatch.

Relatives: `training.check`, the whole proof; `training.models.plain`, the same for one device.
"""

import math

from hybridlab.core.where.mesh import Mesh
from hybridlab.training.check import check
from hybridlab.training.job import Job
from hybridlab.training.models.plain import strange
from hybridlab.world.processes import torchrun

CUTTING = ("tp", "x")  # axes that cut matrices
MOST = 1e8  # weights: with more, a copy in float64 and its gradients may not fit beside the job


def refuse_other_in_parts(job: Job):
    """Nothing, if one step of this model in parts along tp and x is that of the whole: loss and every gradient.

    Not asked of reference models, whose proofs are the project's tests, nor of those with more than `MOST` weights,
    nor where torchrun has started the ranks: there `check` says it.

    raises  ValueError with the tensor that differs most, and what to change
    """
    ways = {axis: job.mesh[axis] for axis in CUTTING if job.mesh[axis] > 1}
    weights = sum(math.prod(param.shape) for param in job.records)
    if not ways or not strange(job.whole) or weights > MOST or torchrun.present():
        return
    more = {"sequence": True} if "tp" in ways and job["sequence"] else {}
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
    if not report.equal:  # nothing to compare is for `check` to say
        axes = ", ".join(f"{axis}={length}" for axis, length in ways.items())
        raise ValueError(
            f"sharded along {axes}, this model differs from the unsharded one by up to {report.largest_gap:.1e}: "
            "between two sharded matrices use elementwise operations only, and move a residual, or a softmax over "
            f"hidden units, into a module around them; hl.check(hl.Mesh({axes}), model=…) compares all tensors"
        )
