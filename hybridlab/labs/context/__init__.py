"""Notebook 33, context parallelism: memory and bytes of a long sequence (`sizes`); what each way sends and how long a
ring takes, on real ranks (`on_ranks`); `pictures` of who looks at whom, of a ring, and of when its messages hide.

`moments` says what meets in each step of a ring; `clinic` is the broken zigzag and its symptoms. Exercises are in
`tasks` and `build_tasks`, their solutions in `solutions`; what a student writes is tried in `trial`.
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "clinic": "positions symptoms",
        "on_ranks": "sent timed",
        "pictures": "dependence ring packed overlap",
        "sizes": "LLAMA memory ways",
    },
)
