"""A picture with buttons: the chosen variant is drawn at once; without a kernel, some variants are shown."""

import re
from collections.abc import Callable
from html import escape

import ipywidgets

from hybridlab.show.paper.sheet import sheet
from hybridlab.show.paper.still import Still

SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
INNER = re.compile(r"<desc>.*?</desc>\n(.*)</svg>", re.DOTALL)


class Chooser(ipywidgets.VBox):
    """A picture that `draw(**chosen)` makes, and a row of buttons for each choice.

    choices  {name: (its label, the options, the first one chosen)}
    shown    the choices that the static twin shows, one picture for each
    If draw raises a ValueError, its sentence is shown instead of the picture.

    >>> one = Chooser(lambda n: Still("<svg/>", f"{n} boxes"), {"n": ("boxes", [1, 2], 1)}, [{}])
    >>> one.choose(n=2)
    >>> one.summary
    '2 boxes'
    """

    def __init__(self, draw: Callable[..., Still], choices: dict, shown: list[dict]):
        self._draw, self._shown = draw, [{name: one[2] for name, one in choices.items()} | more for more in shown]
        self._buttons = {name: _buttons(*one) for name, one in choices.items()}
        self._picture = ipywidgets.HTML()
        for buttons in self._buttons.values():
            buttons.observe(lambda _: self._show(), "value")
        super().__init__([*self._buttons.values(), self._picture])
        self._show()

    def choose(self, **values):
        """Make these choices, as the buttons do."""
        for name, value in values.items():
            self._buttons[name].value = value

    def _show(self):
        try:
            still = self._draw(**{name: buttons.value for name, buttons in self._buttons.items()})
            self.summary, self._picture.value = still.summary, still.svg
        except ValueError as error:
            self.summary, self._picture.value = str(error), f"<p>{escape(str(error))}</p>"

    @property
    def twin(self) -> str:
        """The pictures that are shown if no kernel runs, as SVG text."""
        return below_each_other([self._draw(**one) for one in self._shown])

    def _repr_mimebundle_(self, **more):
        text = "\n".join(self._draw(**one).summary for one in self._shown)
        return {**super()._repr_mimebundle_(**more), "image/svg+xml": self.twin, "text/plain": text}


def _buttons(label, options, value):
    texts = [(str(option), option) for option in options]
    return ipywidgets.ToggleButtons(options=texts, value=value, description=label, **beside("80px"))


def beside(wide: str) -> dict:
    """The style that puts toggle buttons next to their label of this width; by default they are below it."""
    style = {"button_width": "auto", "description_width": wide}
    return {"style": style, "layout": {"display": "flex", "align_items": "baseline", "margin": "2px"}}


def below_each_other(stills: list[Still]) -> str:
    """Several pictures on one sheet, as SVG text."""
    sizes = [tuple(map(float, SIZE.search(still.svg).groups())) for still in stills]
    tops = [sum(tall for _, tall in sizes[:i]) for i in range(len(sizes))]
    body = [f'<g transform="translate(0 {top:g})">{INNER.search(still.svg)[1]}</g>' for still, top in zip(stills, tops)]
    told = "; ".join(still.summary for still in stills)
    return sheet(max(wide for wide, _ in sizes), tops[-1] + sizes[-1][1], f"{len(stills)} pictures", told, body)
