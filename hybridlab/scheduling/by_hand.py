"""A schedule made by hand: the actions that each rank can do next, and the reason why it cannot do the others yet.

The rule of this game is the law: an action is possible when every value that it takes has been made. With a limit, a
rank may hold no more activations than that. Nothing else is forbidden, so every game can be played to its end.
"""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from hybridlab.core.when.action import MEANING, Action
from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lifetimes import lives
from hybridlab.core.when.schedule import Schedule, actions

WHOLE, SPLIT = ("F", "B"), ("F", "I", "W")  # kinds of actions: backward in one piece, or in two halves


class Choice(NamedTuple):
    """The next action of one kind on a rank; None if the rank has done all actions of this kind.

    why_not  "" where the action is possible, else a sentence that says what comes first
    """

    kind: str
    action: Action | None
    why_not: str


@dataclass(frozen=True)
class ByHand:
    """An unfinished schedule: one stage per rank, and the actions chosen so far.

    split   whether the halves of a backward, I and W, are placed separately
    limit   the most activations that a rank may hold; None: no limit
    chosen  numbers of actions, in the order in which they were chosen (see `Flow`)

    Each choice makes a new value; the one before stays as it is.

    raises  ValueError for numbers that are not possible

    >>> hand = ByHand(ranks=2, microbatches=1).choose(0, "F")
    >>> [choice.why_not for choice in hand.choices(1)]
    ['', '1B0 comes after 1F0 on rank 1: that makes the saved tensors of 1F0']
    >>> for rank, kind in [(1, "F"), (1, "B"), (0, "B")]:
    ...     hand = hand.choose(rank, kind)
    >>> print(hand.schedule)
    rank 0: 0F0 0B0
    rank 1: 1F0 1B0
    """

    ranks: int
    microbatches: int
    split: bool = False
    limit: int | None = None
    chosen: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for what in ("ranks", "microbatches") + (() if self.limit is None else ("limit",)):
            number = getattr(self, what)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{what}={number!r} is not possible: give a whole number, 1 or more")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of actions to choose from."""
        return SPLIT if self.split else WHOLE

    @property
    def everything(self) -> Flow:
        """All actions of the schedule, with their entries in the law. The order within a rank has no meaning."""
        return _everything(self.ranks, self.microbatches, self.kinds)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be chosen."""
        return len(self.chosen) == self.everything.actions

    @cached_property
    def held(self) -> list[int]:
        """held[rank]: the activations that it holds now."""
        made, freed = lives(self.everything, "input")
        chosen = list(self.chosen)
        return np.bincount(self.everything.rank[chosen], (made - freed)[chosen], self.ranks).astype(int).tolist()

    @cached_property
    def _made(self) -> np.ndarray:
        made = self.everything.given.copy()
        for action in self.chosen:
            made[self.everything.makes[action]] = True
        return made

    def choices(self, rank: int) -> list[Choice]:
        """The next actions of a rank: for each kind, the possible action of the lowest microbatch, else the next one.

        raises  ValueError for a rank that does not exist
        """
        if rank not in range(self.ranks):
            raise ValueError(f"there is no rank {rank}: choose from 0 to {self.ranks - 1}")
        return [self._choice(rank, kind) for kind in self.kinds]

    def choose(self, rank: int, kind: str) -> "ByHand":
        """The unfinished schedule, with a rank's next action of this kind added.

        raises  a ValueError that says why that is not possible, and what comes first
        """
        choice = next((one for one in self.choices(rank) if one.kind == kind), None)
        if choice is None:
            raise ValueError(f"{kind!r} is not possible here: choose one of {', '.join(self.kinds)}")
        if choice.action is None or choice.why_not:
            raise ValueError(choice.why_not)
        return replace(self, chosen=(*self.chosen, self._number(rank, kind, choice.action.microbatch)))

    def undo(self) -> "ByHand":
        """The unfinished schedule before the last choice."""
        return replace(self, chosen=self.chosen[:-1])

    @cached_property
    def schedule(self) -> Schedule:
        """The chosen actions as a schedule; a complete one when `finished`."""
        everything = self.everything
        chosen = np.array(self.chosen, dtype=np.int64)
        programs = [everything.schedule.rows[chosen[everything.rank[chosen] == r]] for r in range(self.ranks)]
        return everything.schedule.with_programs(programs)

    def _number(self, rank, kind, microbatch):
        return (rank * len(self.kinds) + self.kinds.index(kind)) * self.microbatches + microbatch

    def _choice(self, rank, kind):
        first = self._number(rank, kind, 0)
        left = [number for number in range(first, first + self.microbatches) if number not in self.chosen]
        if not left:
            return Choice(kind, None, f"rank {rank} has done {MEANING[kind]} for every microbatch")
        found = next((number for number in left if self._missing(number) is None), left[0])
        return Choice(kind, self.everything.action(found), self._why_not(found))

    def _missing(self, number):
        """The first value that an action takes and that is not made yet; None if there is none."""
        return next((value for value in self.everything.takes[number].tolist() if not self._made[value]), None)

    def _why_not(self, number):
        everything, missing = self.everything, self._missing(number)
        action, rank = everything.action(number), everything.rank[number]
        if missing is not None:
            by = int(everything.maker[missing])
            first = f"{everything.action(by)} on rank {everything.rank[by]}"
            return f"{action} comes after {first}: that makes the {everything.describe(missing)}"
        made, freed = lives(everything, "input")
        if self.limit is not None and made[number] and self.held[rank] >= self.limit:
            frees = next(kind for kind in self.kinds if freed[self._number(rank, kind, 0)])
            full = f"rank {rank} holds all the activations that it may hold ({self.limit})"
            return f"{full}: do {frees}, which frees one, before {action}"
        return ""


@cache
def _everything(ranks, microbatches, kinds):
    programs = [np.concatenate([actions(kind, r, range(microbatches)) for kind in kinds]) for r in range(ranks)]
    return Flow(Schedule.of("by hand", programs, {(r, 0): r for r in range(ranks)}, microbatches))
