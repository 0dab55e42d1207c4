"""A rehearsal: a user's model whose layers are divided first trains one step, undivided and divided.

Tensor parallelism uses the names of dims, and never reads a forward. A module may also use its input outside of the
sharded matrices, for example in a residual or in a softmax over hidden units. There it sees only a part, or its
gradient is added once for each rank: losses look plausible, but gradients are wrong. Other modes replace the attention
of a layer, its dispatch to experts or its convolution, after a look at forwards only. A comparison of gradients shows
the rest; `train` makes one, of one microbatch.

Relatives: `training.check`, the full proof; `training.models.plain`, the same for one device.
"""

import math

from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.registry import options
from hybridlab.training.check import check
from hybridlab.training.job import Job
from hybridlab.training.models.plain import strange
from hybridlab.world.explain.faults import FRESH, RankError
from hybridlab.world.processes import torchrun

SEAM = "a mode replaces what a layer declares (hl.seams), gradients included, so compute nothing else there"
CUTTING = {  # {axis that divides layers inside: the operations that a model may use there}
    "tp": "between two sharded matrices use elementwise operations without weights only, and move a residual, or a "
    "softmax over hidden units, into a module around them",
    "x": "x shards every tensor of width D, so use on it only elementwise operations, and Linear, Embedding, LayerNorm "
    "and RMSNorm with named dimensions",
    "cp": SEAM,
    "ep": SEAM,
    "h": "leave out hooks on convolutions and pools",
    "w": "leave out hooks on convolutions and pools",
}
OPTIONS = ("sequence", "overlap", "attend", "ulysses", "zigzag", "zigzag_over", "dispatch", "fold")  # of these axes
MOST = 1e8  # weights: above this, a copy in float64 and its gradients may not fit in memory together with the job


def refuse_other_in_parts(job: Job, hang_s: float | None = None):
    """Raise an error unless one step of this model divided along these axes equals the undivided one, with gradients.

    It skips reference models, whose proofs are the project's tests, models with more than `MOST` weights, and ranks
    that torchrun has started: there `check` reports it.

    raises  ValueError with the tensor that differs most, or the error on a rank, and the remedy
    """
    ways = {axis: job.mesh[axis] for axis in CUTTING if job.mesh[axis] > 1}
    weights = sum(math.prod(param.shape) for param in job.records)
    if not ways or not strange(job.whole) or weights > MOST or torchrun.present():
        return
    more = {name: job[name] for name in OPTIONS if job[name] != options()[name].usual}
    axes = ", ".join(f"{axis}={length}" for axis, length in ways.items())
    remedy = "; ".join(dict.fromkeys(CUTTING[axis] for axis in ways))
    remedy += f"; hl.check(hl.Mesh({axes}), model=…) compares all tensors"
    try:
        report = check(
            Mesh(**ways),
            model=job.model,
            weights=job.weights,
            seed=job.seed,
            batch=job.rows,
            microbatches=1,
            steps=1,
            hang_s=hang_s,
            **more,
        )
    except RankError as failed:
        why = str(failed).removesuffix(f"; {FRESH}")
        raise ValueError(f"sharded along {axes}, this model fails ({why}): {remedy}") from failed
    if report.wrong:  # `check` reports if there is nothing to compare, or bytes differ
        off = f"differs from the unsharded one by up to {report.largest_gap:.1e}"
        raise ValueError(f"sharded along {axes}, this model {off}: {remedy}")
