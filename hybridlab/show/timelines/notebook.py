"""In a notebook, a timeline or a dry run at the end of a cell is drawn."""


def register(shell) -> None:
    """Register timelines and dry runs with an IPython shell; plotly is loaded when the first one is shown."""
    formatter = shell.display_formatter.mimebundle_formatter
    for name, module in {"Timeline": "hybridlab.core.when.timeline", "DryRun": "hybridlab.core.dry"}.items():
        formatter.for_type_by_name(module, name, _drawn)


def _drawn(one):
    from hybridlab.show.timelines.draw import draw

    return draw(one)._repr_mimebundle_()
