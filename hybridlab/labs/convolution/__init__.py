"""Notebook 34, convolutions cut in space, in channels and over branches: memory and words (`sizes`); halos, statistics
and times on real ranks (`on_ranks`); `pictures` of what strips see, of a step on tracks, of one more strip.

Exercises are in `tasks` and `build_tasks`, their solutions in `solutions`; `trial` runs the code of students.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "sizes": "forms halos memory shapes ways",
        "on_ranks": "counted statistics timed rows",
        "pictures": "more spans step",
    },
)
