"""A figure: a plotly chart together with its static twin and its description."""

import json

import plotly.graph_objects as go

from hybridlab.show.paper.themed_chart import themed

DIGITS = 12  # of a coordinate in a stored chart: the last four of sixteen differ between processors


class Figure(go.Figure):
    """A plotly figure with a static twin (SVG) and a summary (text); a notebook stores all three.

    JupyterLab shows the chart, light or dark as its theme; GitHub, nbconvert and a page without scripts show the twin.
    The twin shows the figure as it was made: later calls such as update_layout do not change it.
    """

    _twin, _summary = "", ""
    _ipython_display_ = None  # plotly's would send its chart alone, without the bundle below
    _repr_html_ = None  # else IPython adds plotly's HTML, with a random id, to our bundle

    @classmethod
    def of(cls, traces: list, layout: dict, twin: str, summary: str) -> "Figure":
        """A figure from traces and a layout, with its twin and its words."""
        figure = cls(data=traces, layout=layout)
        figure._twin, figure._summary = twin, summary
        return figure

    @property
    def twin(self) -> str:
        """The static twin, as SVG text."""
        return self._twin

    @property
    def summary(self) -> str:
        """The picture in words: caption and alternative text."""
        return self._summary

    def _repr_mimebundle_(self, include=None, exclude=None, **more) -> dict:
        chart = json.loads(self.to_json(), parse_float=_rounded)
        bundle = {"application/vnd.plotly.v1+json": themed(chart), "text/plain": self.summary}
        return bundle | ({"image/svg+xml": self.twin} if self.twin else {})

    def __repr__(self):
        return f"<figure {self.summary}>"


def _rounded(number: str) -> float:
    return float(f"{float(number):.{DIGITS}g}")
