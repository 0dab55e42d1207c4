"""Notebook 36, AxoNN's layer: on real ranks, every word counted and every message timed (`on_ranks`); a whole GPT on
every grid of 8 ranks (`factorisations`); `pictures` of who holds what, and of products and messages.

Its exercises are in `tasks`, their solutions in `solutions`; what a student writes is tried in `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "SMALL": "factorisations",
    "picture": "factorisations",
    "table": "factorisations",
    "twice": "factorisations",
    "counted": "on_ranks",
    "timed": "on_ranks",
    "homes": "pictures",
    "step": "pictures",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
