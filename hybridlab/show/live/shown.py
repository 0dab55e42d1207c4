"""A live picture that needs no kernel: all that it can show is in its data.

A notebook, the site and the slides draw it with the same JavaScript (`shows.js`), from the same data.
"""

import json

import anywidget
import traitlets

from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.paper.still import Still

SHOWS = ("choices.js", "rank_box.js", "moving.js", "linked.js", "calculator.js", "shows.js")


class Shown(anywidget.AnyWidget):
    """A picture as data for `shows.js`, and its static twin.

    data  {"show": a name in `shows.js`, and what that picture needs, as plain values}
    """

    _esm = module(*SHOWS, "shown.js")
    _css = stylesheet("shows.css")

    data = traitlets.Dict().tag(sync=True)

    def __init__(self, data: dict, still: Still):
        self._still = still
        super().__init__(data=data)

    @property
    def summary(self) -> str:
        """The static twin in words."""
        return self._still.summary

    @property
    def twin(self) -> str:
        """The static twin, as SVG text."""
        return self._still.svg

    @property
    def as_json(self) -> str:
        """The data, for a page without a kernel."""
        return json.dumps(self.data, separators=(",", ":"))

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self.twin, "text/plain": self.summary}, metadata
