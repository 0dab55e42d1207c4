"""A picture with clickable parts, and buttons for the same choices by keyboard."""

from collections.abc import Callable

import anywidget
import traitlets

from hybridlab.show.live.module import HERE


class Pressed(anywidget.AnyWidget):
    """An SVG shown as it is; pressing a part of it that has data-press="…" calls `press` with that text.

    >>> told = []
    >>> picture = Pressed(told.append)
    >>> picture.pressed = "row 3"
    >>> picture.pressed = "row 3"
    >>> told
    ['row 3', 'row 3']
    """

    _esm = (HERE / "pressed.js").read_text("utf-8")

    svg = traitlets.Unicode().tag(sync=True)
    pressed = traitlets.Unicode().tag(sync=True)

    def __init__(self, press: Callable[[str], None]):
        super().__init__()
        self._press = press

    @traitlets.observe("pressed")
    def _tell(self, change):
        if change.new:
            self._press(change.new)
            self.pressed = ""  # so that the same part can be pressed again
