"""The transfers of a training step by formula, mode by mode.

The check compares it with the ledgers of real runs, purpose by purpose and axis by axis; the labs draw it. Each mode
lists its own (`Mode.transfers`). Relatives: `predict.bytes`, `training.check`, notebook 40.
"""

from hybridlab.predict.bytes.transfer import Transfer


def transfers(job) -> dict[str, list[Transfer]]:
    """All transfers of one step of a job, by their purpose."""
    return {mode.purpose: list(mode.transfers(job)) for mode in job.modes}
