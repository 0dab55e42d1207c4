"""In a notebook, a timeline that stands last in a cell is drawn."""


def register(shell) -> None:
    """Tell an IPython shell how to show a timeline; plotly is loaded when the first one is shown."""
    formatter = shell.display_formatter.mimebundle_formatter
    formatter.for_type_by_name("hybridlab.core.timeline", "Timeline", _drawn)


def _drawn(timeline):
    from hybridlab.show.timelines.draw import draw

    return draw(timeline)._repr_mimebundle_()
