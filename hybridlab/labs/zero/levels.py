"""Notebook 22 on two levels: forms for slow links, by formula and on ranks, and the judge of an exercise about them."""

from typing import NamedTuple

import hybridlab as hl
from hybridlab.core.where.layout import Layout, Param
from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import Gave
from hybridlab.labs.zero import on_ranks
from hybridlab.labs.zero.plan import Plan, kept, leaving
from hybridlab.modes.zero import shared
from hybridlab.training.job import Job

GPUS, NODE = 512, 8  # ranks in the predictions, and those of them in one node; for our ranks, a node has two
CASES = (  # rank, length of the vector, owners in a group, groups
    *((rank, 32, 4, 2) for rank in range(8)),
    *((rank, 36, 2, 3) for rank in range(6)),
    *((rank, 40, 2, 2) for rank in (1, 2)),
    (13, 512, 8, 64),
)


class Form(NamedTuple):
    """One form of sharding: the number of ranks that shard the weights, whether on two levels, and the number of
    neighbours that hold a second copy."""

    owners: int
    two_levels: bool = False
    secondary: int = 0

    @property
    def options(self) -> dict:
        """The options of a form, as arguments of a job."""
        options = {"owners": self.owners, "two_levels": self.two_levels, "secondary": self.secondary}
        return {name: value for name, value in options.items() if value}


def forms(ranks: int, node: int) -> dict[str, Form]:
    """The forms of stage 3 in which nodes matter, by name.

    >>> forms(64, 8)["two levels"]
    Form(owners=8, two_levels=True, secondary=0)
    """
    return {
        "hybrid": Form(node),
        "two levels": Form(node, two_levels=True),
        "second copies": Form(ranks, secondary=node),
        "fully sharded": Form(ranks),
    }


def predicted(ranks: int = GPUS, node: int = NODE) -> list[tuple]:
    """A row for each form: its name, GB of weights, gradients and optimizer state between steps, GB that leave a node.

    >>> for row in predicted(): print(*row)
    hybrid 3.75 3.75 7.5 59.1
    two levels 1.88 0.0586 0.176 44.3
    second copies 1.93 0.0586 0.117 44.9
    fully sharded 0.0586 0.0586 0.117 59.9
    """
    plans = {
        name: Plan(ranks=ranks, policy="sums in single", **form._asdict()) for name, form in forms(ranks, node).items()
    }
    return [
        (name, *(f"{kept(plan)[part] / 1e9:.3g}" for part in ("value", "gradient", "optimizer")),
         f"{leaving(plan, node) / 1e9:.3g}")
        for name, plan in plans.items()
    ]  # fmt: skip


def jobs(ranks: int = on_ranks.RANKS, node: int = 2) -> dict[str, Job]:
    """A job in each form: the small GPT in four units, on few ranks."""
    return {name: on_ranks.job(3, ranks=ranks, **form.options) for name, form in forms(ranks, node).items()}


def crossing(job: Job, node: int = 2) -> float:
    """The bytes that rank 0 sends in a step in groups with ranks of other nodes, by the formulas."""
    away = lambda ranks: len({rank // node for rank in ranks}) > 1
    return sum(one.sent for one in job.keeper.transfers(job) if 0 in one.ranks and away(one.ranks))


# --- the exercise: the stretch that a rank updates -----------------------------------------------------------------


def stretch(rank: int, length: int, inside: int, groups: int) -> tuple[int, int]:
    """(first, end) of the numbers of a flat vector that a rank updates, on two levels.

    >>> [stretch(rank, 8, inside=2, groups=2) for rank in range(4)]
    [(0, 2), (4, 6), (2, 4), (6, 8)]
    """
    one = Layout(hl.Mesh(dp=inside * groups), (Param("all", (length,), partial=("dp",)),))
    share = shared(one, 3, inside, two_levels=True).share("all", rank)
    return share.start, share.stop


def judged(gave: list[Gave]) -> Verdict:
    """The verdict on a function (rank, length, inside, groups) -> (first, end)."""
    for case, call in zip(CASES, gave):
        rank, length, inside, groups = case
        where = f"For rank {rank} of {groups} groups of {inside}, and {length} numbers"
        if call.raised:
            return False, f"{where} it raised {call.raised}."
        if told := _wrong(call.value, case):
            return False, f"{where} {told}"
    return True, f"Right in all {len(CASES)} cases: the shards of one part are next to each other."


def _wrong(value, case) -> str:
    rank, length, inside, groups = case
    if not (isinstance(value, list | tuple) and len(value) == 2 and all(type(one) is int for one in value)):
        return f"it returns {repr(value)[:40]}; return two whole numbers, (first, end)."
    first, end = value
    size, right = length // (inside * groups), stretch(*case)
    if (first, end) == right:
        return ""
    part = length // inside
    if end - first != size:
        return f"the stretch has {end - first} numbers. All {inside * groups} ranks share the optimizer's state."
    if (first, end) == (rank * size, (rank + 1) * size):
        mine = rank % inside * part
        return (
            f"these are the numbers of rank {rank} in one flat gather over all ranks. The reduce-scatter inside the "
            f"group leaves it numbers {mine} to {mine + part - 1}: its stretch is there."
        )
    if rank % inside * part <= first < (rank % inside + 1) * part:
        return "the stretch is in the right part, but another group updates it. Which group is this rank in?"
    return "the rank has no sum of these numbers: which part does the reduce-scatter inside its group leave on it?"
