"""Notebook 20, collectives: done on ranks, drawn and timed (`on_ranks`); one moment of a ring (`ring_picture`); a
student's ring, run and judged (`trial`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "chart": "on_ranks",
    "fitted": "on_ranks",
    "pictured": "on_ranks",
    "ring": "on_ranks",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
