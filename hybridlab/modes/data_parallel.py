"""Data parallelism: every replica holds the same weights, sees its own data, and gradients are summed.

Why a sum and no mean: each rank's loss is already divided by the tokens of the *global* batch (see `train.loop`), so
the sum over the replicas is the gradient that one device would have computed. The same sum serves every weight that
lives on several ranks, whatever the reason: a copy of the pipeline, the other direction of a bidirectional schedule,
an embedding that the last stage shares.

Relatives: the schedule with its REDUCE_GRAD is made by `schedules.replicate`; the cost of one all-reduce of n bytes
over d ranks is 2 n (d-1)/d bytes on each rank's wire.
"""

from hybridlab.core.schedule import Schedule


def reduce_gradients(comm, weights):
    """Sum every weight's gradient over the ranks that hold it, one all-reduce each, after the backward has ended.

    weights  pairs (parameter, ranks). The plainest of the three lecture forms: wait for all, one message per weight.
    """
    for weight, ranks in weights:
        comm.all_reduce(weight.grad, ranks)


def holders(schedule: Schedule, names: list[list[str]]) -> dict[str, tuple[int, ...]]:
    """The ranks that hold each weight; `names[stage]` lists the weights of a stage, a tied one in several stages."""
    ranks = {}
    for (stage, _), rank in schedule.place.items():
        for name in names[stage]:
            ranks.setdefault(name, set()).add(rank)
    return {name: tuple(sorted(found)) for name, found in ranks.items()}


def due(schedule: Schedule, rank: int, names: list[list[str]]) -> dict[int, list[str]]:
    """Which weights a rank sums in which stage's REDUCE_GRAD: those of several stages in the last one."""
    stage_of = {}
    for action in schedule.program[rank]:
        if action.kind == "REDUCE_GRAD":
            stage_of |= dict.fromkeys(names[action.stage], action.stage)
    return {stage: [name for name, at in stage_of.items() if at == stage] for stage in set(stage_of.values())}
