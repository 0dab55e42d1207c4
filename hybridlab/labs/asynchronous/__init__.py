"""Notebook 15, PipeDream: pipelines with and without a flush, trained and replayed (`updates`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "flushed": "updates",
    "from_replays": "updates",
    "trained": "updates",
    "ways": "updates",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
