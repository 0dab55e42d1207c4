"""A stepper: a sequence of pictures, with buttons for the first, the previous, the next and the last one.

Nothing moves by itself. Every control is a button, so it works from the keyboard: Tab, then Space or Enter. If no
kernel runs, the static twin shows all pictures, in columns or one below the other.
"""

import re
from collections.abc import Sequence

import ipywidgets

from hybridlab.show.paper.sheet import sheet
from hybridlab.show.paper.still import Still

BUTTONS = (("|◀", "first step"), ("◀", "previous step"), ("▶", "next step"), ("▶|", "last step"))
SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
INNER = re.compile(r"<desc>.*?</desc>\n(.*)</svg>", re.DOTALL)


class Stepper(ipywidgets.VBox):
    """Stills to step through; `step` is the number of the one shown, `across` the number of columns of the static twin.

    >>> steps = Stepper([Still("<svg/>", "before"), Still("<svg/>", "after")], start=1)
    >>> steps.step, steps.summary
    (1, 'after')
    """

    def __init__(self, stills: Sequence[Still], start: int = 0, across: int = 2):
        self._stills, self._across = stills, across
        self._picture = ipywidgets.HTML()
        self._where = ipywidgets.Label()
        buttons = [
            ipywidgets.Button(description=sign, tooltip=told, layout={"width": "48px"}) for sign, told in BUTTONS
        ]
        moves = (lambda: 0, lambda: self.step - 1, lambda: self.step + 1, lambda: len(stills) - 1)
        for button, move in zip(buttons, moves):
            button.on_click(lambda _, move=move: self.show(move()))
        super().__init__([ipywidgets.HBox([*buttons, self._where]), self._picture])
        self.show(start)

    def show(self, step: int):
        """Show the picture with this number, or the nearest one."""
        self.step = min(max(step, 0), len(self._stills) - 1)
        self._picture.value = self._stills[self.step].svg
        self._where.value = f"step {self.step} of {len(self._stills) - 1}"

    @property
    def summary(self) -> str:
        """The description of the current picture."""
        return self._stills[self.step].summary

    @property
    def twin(self) -> str:
        """All pictures on one sheet, as SVG text."""
        sizes = [tuple(map(float, SIZE.search(still.svg).groups())) for still in self._stills]
        wide, tall = (max(lengths) for lengths in zip(*sizes))
        across, inner = self._across, [INNER.search(still.svg)[1] for still in self._stills]
        body = [
            f'<g transform="translate({wide * (i % across):g} {tall * (i // across):g})">{drawn}</g>'
            for i, drawn in enumerate(inner)
        ]
        told = "; ".join(still.summary for still in self._stills)
        return sheet(across * wide, tall * -(-len(sizes) // across), f"{len(sizes)} steps", told, body)

    def _repr_mimebundle_(self, **more):
        bundle = super()._repr_mimebundle_(**more)
        text = "\n".join(still.summary for still in self._stills)
        return {**bundle, "image/svg+xml": self.twin, "text/plain": text}
