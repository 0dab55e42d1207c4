"""The report of a check: every difference, every byte sent, and each part that was not checked."""

import textwrap
from dataclasses import dataclass, field

from hybridlab.training.gaps import STILL

WIDTH = 110  # the most characters of a line that lists names
LISTED = 4  # names of one kind in the text; the report's fields have all


@dataclass(frozen=True)
class Report:
    """The differences between a layout and one device.

    gaps    {"loss", "norm", "gradient <name>", "weight <name>", "buffer <name>": relative gap, see `training.gaps`}
    tolerance  the tolerance of each gap;  noisy  {name: its tolerance}, where rounding noise allows more
    adam    {"weight <name>": difference over its bound}, instead of gaps, for weights updated by Adam
    unproved  {name: its tolerance, 1 or more}: a gradient of zero, or a weight that never moved, would pass too;
              infinite if this is so on one device
    untouched {parameter: the fraction of its elements without a gradient in any step}: mistakes there would not show
    blind   the other things that the check cannot show, in sentences
    nothing the reason why there is nothing to compare, or ""
    bytes   {"purpose": (bytes in the ledgers, bytes by the formula)};  axes  {(purpose, axis, operation): the same}
    reference  the origin of the compared numbers, in words
    """

    layout: str
    gaps: dict[str, float]
    bytes: dict[str, tuple[int, int]]
    axes: dict[tuple[str, str, str], tuple[int, int]] = field(repr=False)
    tolerance: float
    losses: tuple[float, ...] = field(repr=False, default=())
    reference: str = "one device"
    adam: dict[str, float] = field(default_factory=dict)
    noisy: dict[str, float] = field(default_factory=dict)
    unproved: dict[str, float] = field(default_factory=dict)
    untouched: dict[str, float] = field(default_factory=dict)
    blind: tuple[str, ...] = ()
    nothing: str = ""

    @property
    def largest_gap(self) -> float:
        """The largest gap, without those that noise explains; nan if any number is nan."""
        return self.gaps[self._largest]

    @property
    def _largest(self) -> str:
        """The name of the gap that the text reports."""
        wrong = self.wrong
        return self._worst([name for name in self.gaps if name not in self.noisy or name in wrong])

    def _worst(self, names) -> str:
        """The name of the largest of these gaps."""
        return max(names, key=lambda name: (self.gaps[name] != self.gaps[name], self.gaps[name]))

    @property
    def wrong(self) -> tuple[str, ...]:
        """The names of tensors that differ from one device by more than rounding explains, in the order of `gaps`."""
        gaps = (name for name, gap in self.gaps.items() if not gap <= self.noisy.get(name, self.tolerance))
        return *gaps, *(name for name, share in self.adam.items() if not share <= 1)

    @property
    def equal(self) -> bool:
        """Whether every number is within its tolerance, and every byte is accounted for."""
        return not (self.nothing or self.wrong) and all(
            counted == formula for table in (self.bytes, self.axes) for counted, formula in table.values()
        )

    @property
    def ok(self) -> bool:
        """Whether the report is `equal`, and at least one tensor of each kind is proved: gradients, weights."""
        return self.equal and all(proved for proved, _ in self.proved.values())

    @property
    def proved(self) -> dict[str, tuple[int, int]]:
        """{"gradient", "weight", …: (number of proved tensors, number of tensors)}."""
        table: dict[str, tuple[int, int]] = {}
        for name in self.gaps | self.adam:
            kind, _, of = name.partition(" ")
            if of:
                proved, every = table.get(kind, (0, 0))
                table[kind] = proved + (name not in self.unproved), every + 1
        return table

    def __str__(self):
        lines = [f"{self.layout}: {self._verdict()} {self.reference}", *self._compared()]
        if self.untouched:
            told = ", ".join(f"{_percent(share)} of {name}" for name, share in self.untouched.items())
            lines.append(f"  no gradient in these steps, so not proved: {told}")
        lines += [f"  not proved: {sentence}" for sentence in self.blind]
        for what, (counted, formula) in self.bytes.items():
            lines.append(f"  {what}: {counted:,} bytes counted, {formula:,} by the formula")
        for (what, axis, op), (counted, formula) in self.axes.items():
            if counted != formula:
                said = f"{what or 'claimed by no mode'}, along {axis}, {op}"
                lines.append(f"  {said}: {counted:,} bytes counted, {formula:,} by the formula")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.nothing:
            return "nothing to compare with"
        return ("equal to" if self.ok else "NOT PROVED equal to") if self.equal else "NOT equal to"

    def _compared(self) -> list[str]:
        """The lines about numbers."""
        if self.nothing:
            return [f"  {self.nothing}: correct the data, the loss or the rate, and check again"]
        first = self._largest
        lines = [f"  largest gap {self._told(first)}; {len(self.gaps)} compared"]
        more = [name for name in self.noisy if name not in self.unproved and self.gaps[name] > self.tolerance]
        if more and first not in more:
            lines.append(f"  rounding noise explains more in {len(more)}: {self._told(self._worst(more))}")
        if self.adam:
            first = max(self.adam, key=self.adam.get)
            lines.append(f"  Adam: at most {self.adam[first]:.2g} of the bound ({first}); {len(self.adam)} compared")
        still = [name for name, allowed in self.unproved.items() if allowed == STILL]
        noisy = [name for name in self.unproved if name not in still]
        for names, why in ((noisy, "rounding noise hides these"), (still, "all 0, or never moved, on one device too")):
            told = f"  {why}, so not proved: {_listed(names, self.proved)}" if names else ""
            lines += textwrap.wrap(told, WIDTH, subsequent_indent="    ", break_long_words=False)
        return lines

    def _told(self, name: str) -> str:
        """A gap and its tolerance, in words."""
        return f"{self.gaps[name]:.2g} ({name}), allowed {self.noisy.get(name, self.tolerance):.2g}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"


def _listed(unproved, proved) -> str:
    """Names by their kind: "2 of 69 gradients (a, b)"."""
    kinds: dict[str, list[str]] = {}
    for name in unproved:
        kind, _, of = name.partition(" ")
        kinds.setdefault(kind, []).append(of)
    some = lambda names: ", ".join(names[:LISTED]) + f", and {len(names) - LISTED} more" * (len(names) > LISTED)
    number = lambda kind, names: f"{len(names)} of {proved[kind][1]} {kind}s ({some(names)})"
    return "; ".join(number(kind, names) if kind in proved else kind for kind, names in kinds.items())
