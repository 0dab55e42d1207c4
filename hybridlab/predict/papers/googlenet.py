"""GoogLeNet's nine inception modules: the number of multiplications of their four branches.

The branches of a module could run at the same time. The speed-up follows from their sizes: the module waits for the
longest (`predict.plans.branches`).

Source: Szegedy et al. 2015, arXiv:1409.4842, table 1. Relatives: `training.models.inception`, a small net of such
modules.
"""

from hybridlab.predict.papers.published import published

MODULES = tuple(row["module"] for row in published("googlenet_modules"))


def branches(module: str) -> dict[str, int]:
    """{branch: its multiplications for one image, forward}; pooling has none.

    module  of GoogLeNet, such as "3a"

    raises  ValueError for an unknown module

    >>> branches("3a")
    {'1x1': 9633792, '3x3': 101154816, '5x5': 12443648, 'pool': 4816896}
    """
    row = next((row for row in published("googlenet_modules") if row["module"] == module), None)
    if row is None:
        raise ValueError(f"GoogLeNet has no module {module!r}: choose one of {', '.join(MODULES)}")
    enter, few_3, few_5 = row["enter"], row["few_three"], row["few_five"]
    of_pixel = {
        "1x1": enter * row["one"],
        "3x3": enter * few_3 + 9 * few_3 * row["three"],
        "5x5": enter * few_5 + 25 * few_5 * row["five"],
        "pool": enter * row["pooled"],
    }
    return {branch: row["pixels"] ** 2 * number for branch, number in of_pixel.items()}
