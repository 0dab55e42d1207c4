"""Cards that compare predictions with measurements, to replace a cell that prints True."""

from dataclasses import dataclass

from hybridlab.show.charts import strip
from hybridlab.show.charts.card import BELOW, VERDICT, Head, Line, card

ABOUT = "≈"  # marks numbers that differ from run to run: tests/nbval.cfg leaves them out
HEADS = (
    Head("your guess", "yours"),
    Head("predicted", "predicted"),
    Head("measured", "measured"),
    Head("off by", name=VERDICT),
    Head("likely cause", join="; ", name=BELOW),
)


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
        return self._off(self.measured)

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
        >>> Compared("bytes", 18956304, 18956300, "{:,.0f}", within=0).row[4]
        '-4: not equal'
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
    def drawn(self) -> str:
        """The strip: both numbers on the scale of the tolerance; without a tolerance, on one of ratios."""
        yours = None if self.yours is None else self._off(self.yours)
        if self.within is None:
            return strip.ratio(self._over(self.measured), None if yours is None else self._over(self.yours))
        return strip.within(self.off, self.within, yours) if self.within else strip.equal(self.off)

    def _off(self, number):
        gap = number - self.predicted
        return gap if self._share else gap / abs(self.predicted or 1)

    def _over(self, number):
        return number / self.predicted if self.predicted else 1 + self._off(number)

    @property
    def _about(self) -> str:
        return "" if self.within == 0 else ABOUT

    @property
    def _difference(self) -> str:
        if self.within == 0 and round(1000 * self.off) == 0:
            return f"{self.measured - self.predicted:+g}" if self.off else "0"
        return f"{self._about}{100 * self.off:+.1f} {self._unit}"

    @property
    def _unit(self) -> str:
        return "points" if self._share else "%"

    @property
    def _share(self) -> bool:
        return self.form.endswith("%}")


@dataclass(frozen=True)
class Comparison:
    """Several quantities, shown as a card of strips. A cause that several quantities share is printed once."""

    rows: tuple[Compared, ...]

    def __repr__(self):
        return "\n".join(self._told(one.row) for one in self.rows)

    def _told(self, row):
        what, *cells, why = row
        told = ", ".join(f"{head.text} {cell}" for head, cell in zip(HEADS, cells) if cell)
        return f"{what}: {told}" + (f"; {HEADS[-1].text}: {why}" if why else "")

    def _repr_html_(self):
        causes = {one.why for one in self.rows}
        shared = causes.pop() if len(causes) == 1 else ""
        lines = [Line(one.what, one.drawn, (*one.row[1:-1], "" if shared else one.why)) for one in self.rows]
        band = "tolerance" if any(one.within for one in self.rows) else ""
        return card("Predicted and measured", HEADS, lines, band, shared and f"Likely cause: {shared}.")


def compare(*rows: Compared) -> Comparison:
    """A card of predictions and measurements, one row for each quantity.

    >>> step = Compared("a step", 46, 50, "{:.0f} ms", why="messages")
    >>> compare(step, Compared("idle", 0.25, 0.31, "{:.0%}", within=0.05))
    a step: predicted 46 ms, measured ≈50 ms, off by ≈+8.7 %: within tolerance (±10 %); likely cause: messages
    idle: predicted 25%, measured ≈31%, off by ≈+6.0 points: outside tolerance (±5 points)
    """
    return Comparison(rows)
