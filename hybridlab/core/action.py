"""An action: one thing that one rank does, and its spelling.

`2F0` is stage 2, forward, microbatch 0. The spelling is PyTorch's, with three suffixes: `@1` names a model
replica, `#3` a weight version, `>5` the other stage of a message that skips stages. Two actions that run as one
are written `(0F7;7B3)OVERLAP_F_B`.
"""

import re
from typing import NamedTuple

COMPUTE = ("F", "B", "I", "W", "C", "R", "OPT")
MESSAGES = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
COLLECTIVES = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
KINDS = COMPUTE + MESSAGES + COLLECTIVES
CODE = {kind: code for code, kind in enumerate(KINDS)}
WITHOUT_MICROBATCH = ("OPT", *COLLECTIVES)

MEANING = {
    "F": "forward",
    "B": "whole backward",
    "I": "input half of the backward (zero-bubble papers call it B)",
    "W": "weight half of the backward",
    "C": "forward that keeps nothing (checkpointed)",
    "R": "recomputation of a checkpointed forward",
    "OPT": "optimizer step",
    "SEND_F": "send an activation",
    "RECV_F": "receive an activation",
    "SEND_B": "send a gradient",
    "RECV_B": "receive a gradient",
    "UNSHARD": "gather the weights of a stage",
    "RESHARD": "let the gathered weights go",
    "REDUCE_GRAD": "sum the weight gradients over the copies of a stage",
}

_SPELLING = re.compile(
    rf"(?P<stage>\d+)(?P<kind>{'|'.join(sorted(KINDS, key=len, reverse=True))})(?P<microbatch>\d+)?"
    r"(?:>(?P<peer>\d+))?(?:@(?P<replica>\d+))?(?:#(?P<version>\d+))?"
)


class Action(NamedTuple):
    """One thing that one rank does.

    stage, microbatch, replica and version count from 0; -1 means that the action has none. `peer` is the other
    stage of a message when it is not the neighbour. `parts` holds the two actions of a fused pair.

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

    def __str__(self):
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

    @classmethod
    def parse(cls, text: str) -> "Action":
        """The action spelled by `text`.

        raises  ValueError that shows the text and two right spellings

        >>> Action.parse("1SEND_F0>5").peer
        5
        >>> [part.stage for part in Action.parse("(0F7;7B3)OVERLAP_F_B").parts]
        [0, 7]
        """
        text = text.strip()
        if text.startswith("(") and text.endswith(")OVERLAP_F_B"):
            parts = tuple(cls.parse(part) for part in text[1 : text.rindex(")")].split(";"))
            return cls("OVERLAP_F_B", parts[0].stage, parts[0].microbatch, parts[0].replica, parts=parts)
        spelled = _SPELLING.fullmatch(text)
        has_microbatch = spelled and spelled["microbatch"] is not None
        if not spelled or has_microbatch == (spelled["kind"] in WITHOUT_MICROBATCH):
            shown = text if len(text) <= 40 else text[:40] + "…"
            raise ValueError(
                f"{shown!r} is no action: write stage, kind, microbatch, as in 2F0 or 0B3 (kinds: {', '.join(KINDS)})"
            )
        number = {name: int(value) for name, value in spelled.groupdict().items() if value and name != "kind"}
        return cls(spelled["kind"], **number)
