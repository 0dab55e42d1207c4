"""An action: one thing that one rank does, and its spelling.

`2F0` is stage 2, forward, microbatch 0. The spelling is PyTorch's, with three suffixes: `@1` names a model
replica, `#3` a weight version, `>5` the other stage of a message that skips stages, or of a loan. Two actions that
run as one are written `(0F7;7B3)OVERLAP_F_B`.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from hybridlab.core.when.law import KIND, makers

KINDS = tuple(KIND)
CODE = {kind: code for code, kind in enumerate(KINDS)}
MEANING = {kind: row.meaning for kind, row in KIND.items()}
WITHOUT_MICROBATCH = tuple(kind for kind, row in KIND.items() if not row.microbatch)
COMPUTE = tuple(kind for kind, row in KIND.items() if row.lane == "compute")
MESSAGES = tuple(kind for kind, row in KIND.items() if row.lane in ("send", "receive"))
COLLECTIVES = tuple(kind for kind, row in KIND.items() if row.lane == "reduce")
SWAPS = tuple(kind for kind, row in KIND.items() if row.lane in ("out", "in"))
DOWN = ("SEND_F", "RECV_B")  # at the beginning of their edge: the other stage is later in the model
MAKES_GRADIENT = makers("weight_gradient")

MOST = 100_000  # all numbers of stages, microbatches, replicas and versions are below it
LONGEST = 100  # characters of one spelling
FUSIBLE = ("F", "B", "I", "W")
PAIR_END = ")OVERLAP_F_B"
_SPELLING = re.compile(
    rf"(\d+)({'|'.join(sorted(KINDS, key=len, reverse=True))})(\d+)?(?:>(\d+))?(?:@(\d+))?(?:#(\d+))?", re.ASCII
)
_OLDER = re.compile(r"(\d+)BW(\d+)", re.ASCII)


class Action(NamedTuple):
    """One thing that one rank does.

    kind        "F", "B", "SEND_F" …, one of `core.when.action.KINDS`
    stage       its index in the model, from 0
    microbatch  its index, from 0; -1: the action has none, such as an optimizer step
    replica     its index, from 0
    version     the version of the weights, from 0; -1: not stated
    peer        the other stage of a message, -1: the neighbour; of a swap, the stage of the rank that lends memory, -1:
                the host
    parts       the two actions of a fused pair

    >>> str(Action("F", 2, 0)), str(Action("B", 2, 5, replica=1)), str(Action("OPT", 3))
    ('2F0', '2B5@1', '3OPT')
    """

    kind: str
    stage: int
    microbatch: int = -1
    replica: int = 0
    version: int = -1
    peer: int = -1
    parts: tuple["Action", ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"({';'.join(map(str, self.parts))})OVERLAP_F_B"
        return "".join(
            (
                f"{self.stage}{self.kind}",
                f"{self.microbatch}" if self.microbatch >= 0 else "",
                f">{self.peer}" if self.peer >= 0 else "",
                f"@{self.replica}" if self.replica else "",
                f"#{self.version}" if self.version >= 0 else "",
            )
        )

    @property
    def each(self) -> tuple["Action", ...]:
        """The two actions of a fused pair, or the one action.

        >>> [str(part) for part in Action.parse("(0F7;7B3)OVERLAP_F_B").each], len(Action("F", 2, 0).each)
        (['0F7', '7B3'], 1)
        """
        return self.parts or (self,)

    @property
    def row(self) -> tuple[int, ...]:
        """The action as integers, columns as in `schedule.COLUMNS`."""
        return CODE[self.kind], *self[1:6]

    @property
    def lent(self) -> bool:
        """Whether the action moves saved activations between two ranks.

        >>> Action("SWAP_OUT", 0, 2, peer=3).lent, Action("SWAP_OUT", 0, 2).lent
        (True, False)
        """
        return self.peer >= 0 and self.kind in SWAPS

    @property
    def edge(self) -> tuple[int, int]:
        """The edge (from stage, to stage) of a message, in either direction.

        >>> Action("SEND_F", 1, 0).edge, Action("RECV_B", 1, 0).edge, Action("SEND_B", 2, 0, peer=0).edge
        ((1, 2), (1, 2), (0, 2))
        """
        down = self.kind in DOWN
        other = self.peer if self.peer >= 0 else self.stage + (1 if down else -1)
        return (self.stage, other) if down else (other, self.stage)

    @classmethod
    def parse(cls, text: str) -> "Action":
        """The action spelled by `text`.

        raises  ValueError that shows the text and the valid forms

        >>> Action.parse("1SEND_F0>5").peer
        5
        >>> [part.stage for part in Action.parse("(0F7;7B3)OVERLAP_F_B").parts]
        [0, 7]
        """
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is not the text of an action: write, for example, '0F0'")
        text = text.strip()
        if text.endswith(PAIR_END) and text.startswith("("):
            return cls._pair(text)
        spelled = _SPELLING.fullmatch(text) if len(text) <= LONGEST else None
        if not spelled:
            raise ValueError(_no_action(text))
        stage, kind, microbatch, peer, replica, version = spelled.groups("-1")
        if microbatch != "-1" and kind in WITHOUT_MICROBATCH:
            raise ValueError(f"{_cut(text)} is not an action, because {kind} takes no microbatch: write {stage}{kind}")
        if microbatch == "-1" and kind not in WITHOUT_MICROBATCH:
            raise ValueError(
                f"{_cut(text)} is not an action, because {kind} needs a microbatch: write, for example, {stage}{kind}0"
            )
        if peer != "-1" and kind not in (*MESSAGES, *SWAPS):
            raise ValueError(f"{_cut(text)} is not an action: write > only with {', '.join((*MESSAGES, *SWAPS))}")
        action = cls(kind, int(stage), int(microbatch), max(int(replica), 0), int(version), int(peer))
        if max(action[1:6]) >= MOST:
            raise ValueError(f"{_cut(text)} has a number that is too large: give at most {MOST - 1}")
        return action

    @classmethod
    def _pair(cls, text):
        halves = text[1 : -len(PAIR_END)].split(";") if len(text) <= 2 * LONGEST else ()
        parts = tuple(cls.parse(half) for half in halves) if len(halves) == 2 else ()
        if not parts or any(part.kind not in FUSIBLE for part in parts):
            raise ValueError(
                f"{_cut(text)} is not a valid pair: fuse two of {', '.join(FUSIBLE)}, as in (0F7;7B3)OVERLAP_F_B"
            )
        return cls("OVERLAP_F_B", *parts[0][1:4], parts=parts)


def last_backwards(program: Iterable[Action]) -> dict[tuple[int, int], int]:
    """{(stage, replica): the number of the last action in a rank's list that computes a gradient of the stage's
    weights}.

    >>> last_backwards([Action("B", 0, 0), Action("I", 0, 1), Action("W", 0, 1), Action("F", 0, 2)])
    {(0, 0): 2}
    """
    return {
        (part.stage, part.replica): number
        for number, action in enumerate(program)
        for part in action.each
        if part.kind in MAKES_GRADIENT
    }


def _no_action(text):
    if older := len(text) <= LONGEST and _OLDER.fullmatch(text):
        stage, microbatch = older.groups()
        whole, half = f"{stage}B{microbatch}", f"{stage}I{microbatch}"
        return (
            f"{_cut(text)} is older PyTorch's spelling: write {whole}, or {half} for the input half, which PyTorch "
            "then called B"
        )
    kinds = ", ".join(KINDS)
    return f"{_cut(text)} is not an action: write stage, kind, microbatch, such as 2F0 or 0B3 (kinds: {kinds})"


def _cut(text, most=40):
    """A piece of a user's text, short enough for a message."""
    return repr(text if len(text) <= most else text[:most] + "…")


def each_of(action: Action) -> tuple[Action, ...]:
    """The two actions of a fused pair, or the one action, from a list that a user wrote."""
    if not isinstance(action, Action):
        raise ValueError(f"{action!r} is not an action: write, for example, Action.parse('0F0')")
    return action.each
