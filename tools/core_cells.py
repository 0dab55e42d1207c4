"""A plugin of pytest, for `tools.against_stored --core`: of every notebook only the cells of its core are run.

What stands under *Further* depends on the core and nothing in the core on it, so it may be left out.
"""

from nbval.plugin import IPyNbCell

from tools.course import split


def pytest_collection_modifyitems(config, items):
    """Take the cells under *Further* out of what is to be run."""
    further = {}
    for item in items:
        if isinstance(item, IPyNbCell) and item.parent not in further:
            further[item.parent] = [id(cell) for cell in split(item.parent.nb.cells)["Further"]]
    left_out = [item for item in items if isinstance(item, IPyNbCell) and id(item.cell) in further[item.parent]]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
