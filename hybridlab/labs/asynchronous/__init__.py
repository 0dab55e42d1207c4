"""Notebook 15, PipeDream: pipelines with and without a flush (`updates`), trained and replayed (`on_ranks`); stages
with `copies`; its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`. The pipeline that students build there is judged
by `trial`; `rank` is the program of one rank.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "updates": "flushed ways",
        "on_ranks": "from_replays trained",
        "copies": "in_words vgg16",
        "pictures": "learned versions_met",
    },
)
