"""Data parallelism: every replica holds the same weights, sees its own data, and gradients are summed.

Why a sum and no mean: each rank's loss is already divided by the tokens of the *global* batch (see `train.loop`), so
the sum over the replicas is the gradient that one device would have computed.

Relatives: the schedule with its REDUCE_GRAD is made by `schedules.replicate`; the cost of one all-reduce of n bytes
over d ranks is 2 n (d-1)/d bytes on each rank's wire.
"""


def reduce_gradients(comm, parameters, axis: str = "dp"):
    """Sum every parameter's gradient over the replicas, one all-reduce each, after the backward has ended.

    The plainest of the three lecture forms: wait for all, one message per parameter.
    """
    for parameter in parameters:
        comm.all_reduce(parameter.grad, axis)
