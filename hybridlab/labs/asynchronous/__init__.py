"""Notebook 15, PipeDream: pipelines with and without a flush (`updates`), trained and replayed (`on_ranks`); stages
with `copies`; its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`. The pipeline that students build there is judged
by `trial`; `rank` is what one rank does.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "flushed": "updates",
    "from_replays": "on_ranks",
    "in_words": "copies",
    "trained": "on_ranks",
    "vgg16": "copies",
    "ways": "updates",
    "learned": "pictures",
    "versions_met": "pictures",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
