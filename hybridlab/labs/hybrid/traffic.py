"""The traffic of a hybrid layout in one step, as the notebook shows it: by formula, between nodes, and counted."""

from collections import Counter

from hybridlab.predict.bytes import transfer
from hybridlab.predict.bytes.transfer import Transfer
from hybridlab.training import formulas


def transfers(job) -> list[Transfer]:
    """All transfers of one step of a job, for every purpose."""
    return [one for its in formulas.transfers(job).values() for one in its]


def by_axis(job) -> dict[tuple[str, str], float]:
    """{(axis, operation): bytes of a step in the ledgers of all ranks}."""
    return transfer.by_axis(transfers(job))


def between_nodes(job, per_node: int) -> dict[str, float]:
    """{axis: bytes of a step that leave a node}, the axes in the order of the mesh."""
    table = Counter({axis: 0 for axis in job.mesh.axes})
    for one in transfers(job):
        table[one.axis] += one.between(per_node)
    return dict(table)


def counted(ledger, steps: int = 1) -> dict[tuple[str, str], float]:
    """{(axis, operation): bytes of a step} from ledger rows of training, without the messages of losses and clocks."""
    from hybridlab.training.check import sent  # here, because it loads torch

    table = Counter()
    for (_, axis, op), size in sent(ledger).items():
        table[axis, op] += size
    return {key: table[key] / steps for key in sorted(+table)}
