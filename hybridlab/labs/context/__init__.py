"""Notebook 33, context parallelism: memory and bytes of a long sequence (`sizes`); the traffic of each way and the time
of a ring on real ranks (`on_ranks`); `pictures` of attention between positions, of a ring, and of hidden messages.

`moments` lists the chunks that meet in each step of a ring; `clinic` is the broken zigzag and its symptoms. Exercises
are in `tasks` and `build_tasks`, their solutions in `solutions`; `trial` runs the code of students.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "clinic": "positions symptoms",
        "on_ranks": "sent timed",
        "pictures": "dependence ring packed balance overlap",
        "sizes": "LLAMA memory ways groups",
    },
)
