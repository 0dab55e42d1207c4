"""Notebook 42, the SC'21 paper: table 1, row by row and live (`rows`), as a picture (`table`), the figures (`figures`),
and what this machine reaches (`measured`).

Its exercises are in `tasks`, their solutions in `solutions`; what students write, formulas and a step by hand, in
`build_tasks` and `build_solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "TABLE_2": "rows",
    "anatomy": "rows",
    "live": "rows",
    "unseen": "rows",
    "with_size": "rows",
    "off": "table",
    "signed": "table",
    "the_errors": "table",
}
_MODULES = {"figures": "figures", "measured": "measured"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
