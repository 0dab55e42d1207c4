"""Notebook 34, convolutions cut in space, in channels and over branches: memory and words (`sizes`); halos, statistics
and times on real ranks (`on_ranks`); `pictures` of what strips see, of a step on tracks, of one more strip.

Exercises are in `tasks` and `build_tasks`, their solutions in `solutions`; what a student writes is tried in `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "forms": "sizes",
    "halos": "sizes",
    "memory": "sizes",
    "shapes": "sizes",
    "ways": "sizes",
    "counted": "on_ranks",
    "statistics": "on_ranks",
    "timed": "on_ranks",
    "more": "pictures",
    "spans": "pictures",
    "step": "pictures",
    "rows": "on_ranks",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
