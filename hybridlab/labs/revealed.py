"""A reader's guesses at the beginning of a notebook, next to the results, which are shown only after a guess."""

import math
from dataclasses import dataclass

from hybridlab.show.charts import strip
from hybridlab.show.charts.card import VERDICT, Head, Line, card

HEADS = (
    Head("you said", "yours"),
    Head("it is", "measured"),
    Head("your guess is", name=VERDICT),
)
RIGHT = 0.01  # relative


@dataclass(frozen=True)
class Guess:
    """One number: the guess, and the right value.

    yours  the guess; None if there is none yet
    form   how to write the numbers: a Python format, such as ".0%"
    """

    what: str
    yours: float | None
    right: float
    form: str = "g"

    @property
    def row(self) -> tuple[str, str, str, str]:
        """(name, guess, number, comparison); without a guess the number is hidden.

        >>> Guess("busy", 0.9, 0.25, ".0%").row
        ('busy', '90%', '25%', '3.6 times too large')
        >>> Guess("busy", None, 0.25, ".0%").row
        ('busy', 'guess first', '', '')
        """
        if self.yours is None:
            return self.what, "guess first", "", ""
        yours = self._number
        if math.isnan(yours) or (self.form.endswith("%") and abs(yours) > 1.5 * max(1, abs(self.right))):
            return self.what, "a fraction, 0 to 1, please" if self.form.endswith("%") else "a number, please", "", ""
        return self.what, format(yours, self.form), format(self.right, self.form), _compared(yours, self.right)

    @property
    def line(self) -> Line:
        """The line of a card; its strip is empty as long as the number is hidden."""
        what, said, right, off = self.row
        if not right:
            return Line(what, strip.hidden(), said=said)
        marks = [("yours", self._number), ("measured", self.right)]
        return Line(what, strip.on_scale(marks, lambda value: format(value, self.form)), (said, right, off))

    @property
    def _number(self) -> float:
        """The guess as a number; nan if it is not a number."""
        try:
            return math.nan if self.yours is None else float(self.yours)
        except (TypeError, ValueError):
            return math.nan


@dataclass(frozen=True)
class Revealed:
    """Guesses and the right values; shown as a card of strips."""

    guesses: tuple[Guess, ...]

    def __repr__(self):
        return "\n".join(": ".join((what, ", ".join(filter(None, (_said(yours), right and f"it is {right}", off)))))
                         for what, yours, right, off in (one.row for one in self.guesses))  # fmt: skip

    def _repr_html_(self):
        return card("Your guesses and the results", HEADS, [one.line for one in self.guesses])


def reveal(*guesses: Guess) -> Revealed:
    """Guesses next to the results. A result without a guess stays hidden.

    >>> reveal(Guess("busy", 0.3, 0.25, ".0%"), Guess("speed-up", None, 1))
    busy: you said 30%, it is 25%, 20% too large
    speed-up: guess first
    """
    return Revealed(guesses)


def _said(yours: str) -> str:
    return yours if yours == "guess first" or yours.endswith("please") else f"you said {yours}"


def _compared(yours: float, right: float) -> str:
    """
    >>> _compared(30, math.inf)
    'too small'
    >>> _compared(1, 1), _compared(0, 5), _compared(2, 5), _compared(4, 5), _compared(-1, 5)
    ('right', 'too small', '2.5 times too small', '20% too small', 'too small')
    >>> _compared(12, 2390)
    '199 times too small'
    """
    if math.isinf(right):
        return "right" if yours == right else "too small"
    if abs(yours - right) <= RIGHT * abs(right):
        return "right"
    much = "large" if yours > right else "small"
    if yours * right <= 0:
        return f"too {much}"
    ratio = yours / right
    if 0.5 < ratio < 2:
        return f"{abs(ratio - 1):.0%} too {much}"
    many = max(ratio, 1 / ratio)
    return f"{many:,.0f} times too {much}" if many >= 10 else f"{many:.2g} times too {much}"
