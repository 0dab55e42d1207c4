"""The result of a dry run: the bytes that one rank of a job holds and sends in one training step.

See also `training.dry` (makes it), `predict.plans.footprint` (the same as a formula), `show.charts.memory_over_time`
(its picture) and notebook 41.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from hybridlab.core.operations import RECEIVES
from hybridlab.core.where.mesh import Mesh

KINDS = {  # the kinds of memory, and their meaning
    "weights": "what stages compute with",
    "optimizer": "what the optimizer keeps: averages, and a master copy of the weights",
    "gradients": "what the optimizer reads, and partial sums of it",
    "activations": "saved by forwards for their backwards; of a backward in halves, by one half for the other",
    "in flight": "sent, received or summed tensors: from their allocation until they have been used or sent",
    "data": "the batch",
    "working": "what an action needs while it runs",
}
SENT = ("op", "axis", "group", "bytes", "peer", "tag", "purpose")  # the columns of a message
GB = 1e9


@dataclass(frozen=True, eq=False)
class DryRun:
    """One rank in one training step.

    job       in words;  rank  its rank in the mesh
    actions   in order: compute actions, then "sums" (the remaining reductions) and "update"
    held      (actions, kinds) bytes at the peak of each action, by `KINDS`; receives, sends and reductions after an
              action belong to the next one
    kept      (actions, kinds) bytes held at the end of each
    messages  {column: one value for each operation}, see `SENT`; peer is a rank, or None for a collective of the group
    begin, end  (actions,) predicted, in `unit`;  length  of the step, without the all-reduce over dp and the optimizer
    seconds   the seconds of the dry run itself;  room  bytes of a device, or None
    """

    job: str
    mesh: Mesh
    rank: int
    actions: tuple[str, ...]
    held: np.ndarray = field(repr=False)
    kept: np.ndarray = field(repr=False)
    messages: dict[str, list] = field(repr=False)
    begin: np.ndarray = field(repr=False)
    end: np.ndarray = field(repr=False)
    length: float
    unit: str
    seconds: float
    room: float | None = None

    @property
    def total(self) -> np.ndarray:
        """(actions,) bytes at the peak of each action."""
        return self.held.sum(axis=1)

    @property
    def peak_bytes(self) -> int:
        """The largest number of bytes that the rank holds at any time."""
        return int(self.total.max())

    @property
    def at(self) -> str:
        """The action during which the rank holds the most bytes."""
        return self.actions[int(self.total.argmax())]

    @property
    def peak(self) -> dict[str, int]:
        """{kind: bytes} at the peak."""
        return dict(zip(KINDS, self.held[int(self.total.argmax())].tolist()))

    @property
    def bytes(self) -> dict[str, int]:
        """{purpose: bytes that the rank sends in the step}; a collective counts its full tensor."""
        return dict(self._summed("purpose"))

    @property
    def axes(self) -> dict[tuple[str, str, str], int]:
        """{(purpose, axis, operation): bytes}."""
        return dict(self._summed("purpose", "axis", "op"))

    def _summed(self, *columns) -> Counter:
        table, keys = Counter(), zip(*(self.messages[column] for column in columns))
        for key, op, size in zip(keys, self.messages["op"], self.messages["bytes"]):
            if op not in RECEIVES:
                table[key if len(columns) > 1 else key[0]] += size
        return table

    @property
    def fits(self) -> bool:
        """Whether the rank's memory fits on the device; true if no device size was given."""
        return self.room is None or self.peak_bytes <= self.room

    @property
    def verdict(self) -> str:
        """A sentence that says whether the rank fits; if not, it names the first action that exceeds the memory, and
        the largest kind of memory there. "" if no size was given."""
        if self.room is None:
            return ""
        if self.fits:
            return f"fits into {self.room / GB:.4g} GB, with {(self.room - self.peak_bytes) / GB:.3g} GB to spare"
        first = int(np.argmax(self.total > self.room))
        held = dict(zip(KINDS, self.held[first].tolist()))
        most = max(held, key=held.__getitem__)
        return (
            f"does not fit into {self.room / GB:.4g} GB: {self.actions[first]} is the first action that needs more, "
            f"{self.total[first] / GB:.4g} GB; the largest part, {held[most] / GB:.4g} GB, is for {most}"
        )

    def __str__(self) -> str:
        place = " ".join(f"{axis}={at}" for axis, at in self.mesh.coordinates(self.rank).items())
        held = ", ".join(f"{kind} {size / GB:.4g}" for kind, size in self.peak.items() if size)
        sent = "; ".join(f"{what} {size / GB:.4g}" for what, size in self.bytes.items())
        lines = [
            f"rank {self.rank} of {self.mesh.size:,} ({place}), {self.job}",
            f"  peak {self.peak_bytes / GB:.4g} GB in {self.at}: {held} GB",
            f"  sends {sent or 'nothing'} GB",
            f"  at work from {self.begin[0]:.4g} to {self.end[-1]:.4g} of {self.length:.4g} {self.unit}, predicted",
        ]
        return "\n".join(lines + [f"  {self.verdict}"] * bool(self.verdict))

    def facts(self) -> dict:
        """The dry run as plain values, as the command line prints them."""
        return {
            "rank": self.rank,
            "peak_bytes": self.peak_bytes,
            "peak": self.peak,
            "at": self.at,
            "bytes": self.bytes,
            "messages": self.messages,
            "memory": {"actions": list(self.actions), "held": self.total.tolist()},
            "predicted": {"begin": self.begin.tolist(), "end": self.end.tolist(), "unit": self.unit},
            "fits": self.fits,
            "verdict": self.verdict,
            "seconds": self.seconds,
        }
