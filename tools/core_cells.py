"""A pytest plugin for `tools.against_stored --core`: run only the cells of the cores of notebooks.

The cells under *Further* depend on the core, but the core does not depend on them, so they can be omitted.
"""

from nbval.plugin import IPyNbCell

from tools.course import split


def pytest_collection_modifyitems(config, items):
    """Remove the cells under *Further* from the cells to run."""
    further = {}
    for item in items:
        if isinstance(item, IPyNbCell) and item.parent not in further:
            further[item.parent] = [id(cell) for cell in split(item.parent.nb.cells)["Further"]]
    left_out = [item for item in items if isinstance(item, IPyNbCell) and id(item.cell) in further[item.parent]]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
