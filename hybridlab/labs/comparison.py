"""Cards that compare predictions with measurements, to replace a cell that prints True."""

from dataclasses import dataclass

from hybridlab.labs.rows import as_html

ABOUT = "≈"  # marks numbers that differ from run to run: tests/nbval.cfg leaves them out
COLUMNS = ("", "your guess", "predicted", "measured", "off by", "likely cause")


@dataclass(frozen=True)
class Compared:
    """One quantity: its prediction, its measurement, and the tolerance for the difference.

    form    the format of a number, with its unit: "{:.0f} ms", "{:.1%}"
    within  the tolerance, relative to the prediction; for percentages ("{:.1%}"), in points. 0: the two must
            be equal, as for counts. None: no verdict, if the result depends on the machine
    yours   your guess, if you made one
    why     the likely cause of the difference, in a few words
    """

    what: str
    predicted: float
    measured: float
    form: str = "{:g}"
    within: float | None = 0.1
    yours: float | None = None
    why: str = ""

    @property
    def off(self) -> float:
        """The difference, measured minus predicted, relative to the prediction; for percentages, absolute."""
        gap = self.measured - self.predicted
        return gap if self._share else gap / abs(self.predicted or 1)

    @property
    def verdict(self) -> str:
        """Whether the difference is within the tolerance; "" without one."""
        if self.within is None:
            return ""
        inside = abs(self.off) <= self.within
        if not self.within:
            return "equal" if inside else "not equal"
        return f"{'within' if inside else 'outside'} tolerance (±{100 * self.within:g} {self._unit})"

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of the card, in the order of its columns.

        >>> Compared("a step", 46, 50, "{:.0f} ms", why="each message costs its rank 0.1 ms").row
        ('a step', '', '46 ms', '≈50 ms', '≈+8.7 %: within tolerance (±10 %)', 'each message costs its rank 0.1 ms')
        >>> Compared("idle", 0.25, 0.31, "{:.0%}", within=0.05, yours=0.1).row[1:5]
        ('10%', '25%', '≈31%', '≈+6.0 points: outside tolerance (±5 points)')
        >>> Compared("messages", 24, 24, within=0).row[2:5], Compared("messages", 24, 25, within=0).row[3:5]
        (('24', '24', '0: equal'), ('25', '+4.2 %: not equal'))
        >>> Compared("a step", 46, 100, "{:.0f} ms", within=None).row[4]
        '≈+117.4 %'
        """
        return (
            self.what,
            "" if self.yours is None else self.form.format(self.yours),
            self.form.format(self.predicted),
            f"{self._about}{self.form.format(self.measured)}",
            ": ".join(filter(None, (self._difference, self.verdict))),
            self.why,
        )

    @property
    def _about(self) -> str:
        return "" if self.within == 0 else ABOUT

    @property
    def _difference(self) -> str:
        return f"{self._about}{100 * self.off:+.1f} {self._unit}" if self.within != 0 or self.off else "0"

    @property
    def _unit(self) -> str:
        return "points" if self._share else "%"

    @property
    def _share(self) -> bool:
        return self.form.endswith("%}")


@dataclass(frozen=True)
class Comparison:
    """Several quantities, shown as a table without empty columns."""

    rows: tuple[Compared, ...]

    def __repr__(self):
        return "\n".join(self._told(one.row) for one in self.rows)

    def _told(self, row):
        what, *cells, why = row
        told = ", ".join(f"{name} {cell}" for name, cell in zip(COLUMNS[1:], cells) if cell)
        return f"{what}: {told}" + (f"; {COLUMNS[-1]}: {why}" if why else "")

    def _repr_html_(self):
        rows = [one.row for one in self.rows]
        kept = [i for i in range(len(COLUMNS)) if i == 0 or any(row[i] for row in rows)]
        return as_html([COLUMNS[i] for i in kept], [[row[i] for i in kept] for row in rows])


def compare(*rows: Compared) -> Comparison:
    """A card of predictions and measurements, one row for each quantity.

    >>> step = Compared("a step", 46, 50, "{:.0f} ms", why="messages")
    >>> compare(step, Compared("idle", 0.25, 0.31, "{:.0%}", within=0.05))
    a step: predicted 46 ms, measured ≈50 ms, off by ≈+8.7 %: within tolerance (±10 %); likely cause: messages
    idle: predicted 25%, measured ≈31%, off by ≈+6.0 points: outside tolerance (±5 points)
    """
    return Comparison(rows)
