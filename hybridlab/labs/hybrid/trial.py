"""A grid on which a student's step is run, the result of the step on one rank, and the verdict."""

from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh

NEAR = 1e-10  # float64
NAMES = ("tensor group", "data group", "pipeline")


class Grid(NamedTuple):
    """p stages, d copies, t shards of each; in the numbers of ranks, the shard varies fastest and the stage slowest."""

    p: int
    d: int
    t: int

    @property
    def ranks(self) -> int:
        return self.p * self.d * self.t

    @property
    def mesh(self) -> Mesh:
        return Mesh(pp=self.p, dp=self.d, tp=self.t)

    def place(self, rank: int) -> tuple[int, int, int]:
        """(stage, copy, part) of a rank.

        >>> Grid(2, 2, 2).place(5)
        (1, 0, 1)
        """
        return tuple(self.mesh.coordinates(rank).values())

    def groups(self, rank: int) -> list[list[int]]:
        """The tensor group, the data group and the pipeline of a rank.

        >>> Grid(2, 2, 2).groups(5)
        [[4, 5], [5, 7], [1, 5]]
        """
        return [list(self.mesh.group(rank, axis)) for axis in ("tp", "dp", "pp")]

    def __str__(self):
        return f"p = {self.p}, d = {self.d}, t = {self.t}"


class Did(NamedTuple):
    """The result of an answer on a rank: the groups that it named; the distance of its gradients from those of one
    process, from those of only this copy's rows, from the right ones divided by d, and from the right ones times d; the
    most ranks of one collective.
    """

    groups: list
    gap: float = float("inf")
    alone: float = float("inf")
    mean: float = float("inf")
    large: float = float("inf")
    widest: int = 1


def judge(case: Grid, homes: list) -> str:
    """The mistake in a student's step, in a sentence; empty if there is none."""
    did = [Did(*home) for home in homes]
    wrong = (told for rank, one in enumerate(did) if (told := _groups(case, rank, one.groups)))
    return next(wrong, "") or _gradients(case, did) or _widest(case, did)


def explained(case, failed: str) -> str:
    """The report of a run that failed; with the probable cause if there was no gradient."""
    without = "this is None" in failed or "'NoneType' object has no attribute" in failed
    return f"{failed} Is it x.grad? Then x needs x.requires_grad_() before the forward." if without else failed


def _groups(case, rank, groups) -> str:
    if len(groups) != 3:
        return "my_groups returns three lists of ranks: tensor group, data group, pipeline."
    stage, copy, part = case.place(rank)
    for name, given, right in zip(NAMES, groups, case.groups(rank)):
        if sorted(given) == right != given:
            return f"my_groups puts the {name} of rank {rank} in another order on some ranks: list it in rank order."
        if given != right:
            return (
                f"my_groups says that the {name} of rank {rank} is {given}. Rank {rank} is stage {stage}, copy {copy}, "
                f"part {part}: which of the three numbers differs in that group?"
            )
    return ""


def _gradients(case, did) -> str:
    if all(one.gap <= NEAR for one in did):
        return ""
    if any(one.gap == float("inf") for one in did):
        return "my_step returns two tensors, the gradients of this rank's shards of A and of B."
    if case.d > 1 and all(one.alone <= NEAR for one in did):
        return "every copy has the gradients of its own rows: which ranks must add them, and along which axis?"
    if case.d > 1 and all(one.mean <= NEAR for one in did):
        twice = " Or is the 2 of the square's derivative missing?" if case.d == 2 else ""
        return f"the gradients are 1/{case.d} of the right ones: the loss already divides by all rows.{twice}"
    if case.d > 1 and all(one.large <= NEAR for one in did):
        return f"the gradients are {case.d} times the right ones: divide by rows, the rows of all copies."
    last = [one for rank, one in enumerate(did) if case.place(rank)[0] == case.p - 1]
    if case.p > 1 and all(min(one.gap, one.alone) <= NEAR for one in last):
        return (
            "the gradients of the last stage are right, those before it are not: on each rank of a tensor group x.grad "
            "is only a partial sum."
        )
    rank = max(range(len(did)), key=lambda rank: did[rank].gap)
    return (
        f"the gradients of rank {rank} are off by {did[rank].gap:.1g} of their largest entry. Is y the sum over the "
        "tensor group before it is compared or sent on, and is everything added along the right axis?"
    )


def _widest(case, did) -> str:
    most = max(one.widest for one in did)
    if most <= max(case):
        return ""
    return (
        f"the gradients are right. But a collective takes {most} ranks, and no group of this grid has more than "
        f"{max(case)}."
    )
