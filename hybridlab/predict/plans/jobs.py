"""Turn a plan into a job: the arguments of `check`, `train`, `run` and `dry_run`.

See also `predict.plans.plan`, `predict.plans.replicated`, `training.make_job.job_of` (which takes these arguments) and
notebooks 15, 41 and 50.
"""

from collections.abc import Sequence
from math import lcm
from typing import TYPE_CHECKING

from hybridlab.core.added import added
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.bytes.context import ATTEND
from hybridlab.predict.bytes.experts import DISPATCH
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.plan import OPTIMIZERS, Plan, check_plan

if TYPE_CHECKING:
    from hybridlab.predict.plans.replicated import Stage

AXES = {"pp": "p", "dp": "d", "ep": "ep", "cp": "cp", "x": "x", "tp": "t"}  # outside in


def mesh_of(plan: Plan) -> Mesh:
    """The mesh of a plan: ranks along tp are neighbours, then come x, cp, ep, the copies, the stages.

    >>> mesh_of(Plan(p=2, t=4, d=3))
    Mesh(pp=2, dp=3, tp=4)
    """
    lengths = {axis: getattr(plan, field) for axis, field in AXES.items()}
    return Mesh(**{axis: length for axis, length in lengths.items() if length > 1} or {"pp": 1})


def job_of_stages(stages: "Sequence[Stage]", rounds: int = 2) -> dict:
    """The arguments of `check`, `train` and `dry_run`, except the model, for replicated stages (PipeDream's partition).

    stages  each with its `layers` (a range), its `replicas` and the stages `inside` it
    rounds  mini-batches of a step, in rounds: in a round, all copies of a stage get the same number of mini-batches

    raises  ValueError for stages with further stages inside

    >>> from hybridlab.predict.plans.replicated import Stage
    >>> job_of_stages([Stage(range(3), 3), Stage(range(3, 6), 1)])
    {'mesh': Mesh(pp=4), 'schedule': 'pipedream', 'copies': (3, 1), 'cut': [range(0, 3), range(3, 6)], \
'microbatches': 6}
    """
    copies = tuple(map(_copies, stages))
    return {
        "mesh": Mesh(pp=added(copies)),
        "schedule": "pipedream",
        "copies": copies,
        "cut": [stage.layers for stage in stages],
        "microbatches": rounds * lcm(*copies),
    }


def _copies(stage) -> int:
    """The number of ranks of a stage: its replicas, times those of the level below."""
    if len(stage.inside) > 1:
        raise ValueError("nested stages cannot be run: plan for machines on one level of the network")
    return stage.replicas * (_copies(stage.inside[0]) if stage.inside else 1)


def schedule_name(plan: Plan) -> str:
    """The schedule of a plan's pipeline.

    >>> schedule_name(Plan(p=4, v=2)), schedule_name(Plan(p=4, n=2))
    ('interleaved', 'seq1f1b')
    """
    if plan.spread_head:
        return "vocabulary_1f1b"
    return "seq1f1b" if plan.n > 1 else "interleaved" if plan.v > 1 else "1f1b"


def job_of_plan(plan: Plan, shape: Shape, batch: int) -> dict:
    """The arguments of `check`, `train`, `run` and `dry_run` for a plan and its batch.

    The precision is that of the plans: bfloat16, with Adam in single precision. To use another one, replace it:
    `check(**job | {"dtype": "float64"})`. The popularity of experts and fused attention are not options (`CONDITIONS`).

    raises  ValueError when the plan does not divide the model or the batch

    >>> job = job_of_plan(Plan(p=2, t=2, b=2, recompute=2, sequence=True), Shape(layers=4), batch=8)
    >>> job["mesh"], job["schedule"], job["microbatches"], job["recompute"], job["sequence"]
    (Mesh(pp=2, tp=2), '1f1b', 4, 'full', True)
    """
    check_plan(plan, shape, batch)
    if plan.offload or plan.redone != 1:
        raise ValueError(
            "a job recomputes all layers or none, and does not offload activations: leave out offload and redone"
        )
    if plan.further:
        raise ValueError(
            "a job of a reference model predicts the next token only: leave out further=, or train "
            "`training.models.multi_token`"
        )
    interleaved = {"chunks": plan.v} if plan.v > 1 else {}
    sliced = {"slices": plan.n, "slicing": "cost"} if plan.n > 1 else {}
    return {
        "mesh": mesh_of(plan),
        "schedule": schedule_name(plan),
        "microbatches": plan.microbatches(batch),
        "batch": batch,
        "model": shape,
        "optimizer": OPTIMIZERS[plan.optimizer],
        "dtype": "bfloat16",
        **({"sums": "local", "sync_every": plan.sync_every} if plan.sync_every else {"sums": "buckets"}),
        **({"fragments": plan.fragments} if plan.fragments > 1 else {}),
        **({"sync_delay": plan.sync_delay} if plan.sync_delay else {}),
        "recompute": RECOMPUTE[plan.recompute],
        "zero": plan.zero,
        **interleaved,
        **sliced,
        **({"cut": [shape.pieces * blocks for blocks in dealt(shape.layers, plan.p * plan.v)]} if plan.uneven else {}),
        **({"owners": plan.z} if plan.z else {}),
        **({"two_levels": True} if plan.two_levels else {}),
        **({"secondary": plan.secondary} if plan.secondary else {}),
        **({"sequence": True} if plan.sequence else {}),
        **({"overlap": True} if plan.overlap else {}),
        **({"directions": plan.directions} if plan.directions > 1 else {}),
        **({"scatter": True} if plan.scatter else {}),
        **({"attend": ATTEND[plan.attend], "zigzag": bool(plan.zigzag)} if plan.cp > 1 else {}),
        **({"ulysses": plan.ulysses} if plan.ulysses > 1 else {}),
        **({"dispatch": DISPATCH[plan.dispatch]} if plan.ep > 1 else {}),
        **({"fold": True} if plan.fold else {}),
    }
