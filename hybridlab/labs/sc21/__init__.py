"""Notebook 42, the SC'21 paper: table 1, row by row and live (`rows`), as a picture (`table`), the figures (`figures`),
and the speed that this machine reaches (`measured`).

Its exercises are in `tasks`, their solutions in `solutions`. Those in which students write formulas and compute a step
by hand are in `build_tasks` and `build_solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__, {"rows": "TABLE_2 anatomy live unseen with_size", "table": "off signed the_errors"}, "figures measured"
)
