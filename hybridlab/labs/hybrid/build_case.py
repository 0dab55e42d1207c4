"""A grid on which a student's step is tried, and what the step did on one rank."""

from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh


class Grid(NamedTuple):
    """p stages, d copies, t parts of each; ranks are numbered with the part fastest and the stage slowest."""

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
    """What an answer did on a rank: the groups it named, how far its gradients are from those of one process, from
    those of its own copy's rows, from a d-th of the right ones; and the most ranks that one collective took."""

    groups: list
    gap: float = float("inf")
    alone: float = float("inf")
    mean: float = float("inf")
    widest: int = 1
