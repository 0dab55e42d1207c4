"""Notebook 16, rows in token slices: costs of slices, real runs and a sabotage (`runs`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`. `case` has the rows on which a student's cache is tested,
`rank` is the program of one rank.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "runs": "costs idle lengths of_n run drop_the_caches_gradient",
        "pictures": "triangle",
    },
)
