"""A replay: a picture whose parts appear one after another, with controls to animate, step and scrub.

A part with data-at="7" appears at step 7; with data-until="9" it disappears at step 9. The static twin, for a reader
without a kernel, is the complete picture.
"""

import anywidget
import traitlets

from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.paper.still import Still


class Replay(anywidget.AnyWidget):
    """A picture, with each of its steps in words. It begins at the last step, where everything is visible.

    >>> replay = Replay(Still('<svg><g data-at="1"/></svg>', "two steps"), ["nothing yet", "a part"])
    >>> replay.summary
    'two steps'
    """

    _esm = module("replay.js")
    _css = stylesheet()

    svg = traitlets.Unicode().tag(sync=True)
    told = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, still: Still, told: list[str]):
        self._still = still
        super().__init__(svg=still.svg, told=told)

    @property
    def summary(self) -> str:
        """The picture in words."""
        return self._still.summary

    @property
    def twin(self) -> str:
        """The complete picture, as SVG text."""
        return self._still.svg

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self.twin, "text/plain": self.summary}, metadata
