"""Notebook 33, context parallelism: memory and bytes of a long sequence (`sizes`); what each way sends and how long a
ring takes, on real ranks (`on_ranks`); `pictures` of who looks at whom, of a ring, and of when its messages hide.

`moments` says what meets in each step of a ring; `clinic` is the broken zigzag and its symptoms. Exercises are in
`tasks` and `build_tasks`, their solutions in `solutions`; what a student writes is tried in `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "positions": "clinic",
    "symptoms": "clinic",
    "sent": "on_ranks",
    "timed": "on_ranks",
    "dependence": "pictures",
    "ring": "pictures",
    "packed": "pictures",
    "LLAMA": "sizes",
    "memory": "sizes",
    "overlap": "pictures",
    "ways": "sizes",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
