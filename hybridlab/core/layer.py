"""One transformer layer in one training step: its parts in forward order, and the messages of a rank.

See also `training.dry.dry_layer` (makes it), `show.layouts.one_layer` (its picture) and notebook 40.
"""

from dataclasses import dataclass
from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh

ATTENTION = "attention"  # the part that has no weights
PHASES = {  # when a message is sent, in the order of a step
    "gather": "before the layer, for its weights",
    "forward": "in the forward of each microbatch",
    "backward": "in the backward of each microbatch",
    "reduce": "after the last backward, for its gradients",
    "publish": "after the update, for its weights",
}
ONCE = ("gather", "reduce", "publish")  # phases that occur once in a step: their messages carry weights or gradients


class Travel(NamedTuple):
    """The messages of one kind at one place in the layer.

    place  the number of a part, n; or n - 0.5 for the place before it. None for messages that carry weights
    count, bytes  the number of operations in one microbatch, or in the step if they carry weights; the bytes of their
                  tensors
    """

    phase: str
    place: float | None
    op: str
    axis: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Layer:
    """One layer on one rank of a job.

    job      its options and its dtype, in words;  rank  its rank in the mesh
    parts    the names of its parts, in forward order
    weights  bytes of its weights that this rank computes with
    travels  its messages
    """

    job: str
    mesh: Mesh
    rank: int
    parts: tuple[str, ...]
    weights: int
    travels: tuple[Travel, ...]

    def along(self, axis: str) -> tuple[Travel, ...]:
        """The messages along an axis of the mesh, alone or together with others."""
        return tuple(one for one in self.travels if axis in one.axis.split("+"))

    def where(self, place: float | None) -> str:
        """A place in words.

        >>> layer = Layer("", Mesh(tp=2), 0, ("norm", "q·k·v"), 0, ())
        >>> layer.where(0.5), layer.where(1), layer.where(-0.5), layer.where(1.5)
        ('norm → q·k·v', 'q·k·v', 'input', 'output')
        """
        if place is None:
            return "weights"
        if place == int(place):
            return self.parts[int(place)]
        before, after = int(place + 0.5) - 1, int(place + 0.5)
        if before < 0:
            return "input"
        return "output" if after == len(self.parts) else f"{self.parts[before]} → {self.parts[after]}"

    def __str__(self) -> str:
        place = " ".join(f"{axis}={at}" for axis, at in self.mesh.coordinates(self.rank).items())
        lines = [f"one layer on rank {self.rank} ({place}), {self.job}: {' → '.join(self.parts)}"]
        for phase in PHASES:
            for one in (one for one in self.travels if one.phase == phase):
                times = f"{one.count} × " if one.count > 1 else ""
                lines.append(
                    f"  {phase:8}  {self.where(one.place):18}  {times}{one.op} {one.axis}: {one.bytes:,} bytes"
                )
        return "\n".join(lines)
