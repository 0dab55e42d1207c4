"""Notebook 23, out of core: a chain of blocks on a device that is too small for it (`chains`), `pictures` of copies
beside the compute and of what is held, real devices and links (`links`), and runs on real ranks (`on_ranks`).

Its exercises are in `tasks`, their solutions in `solutions`. The plan that a student writes is judged by `planned`, the
engine by `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "best": "chains",
    "chain": "chains",
    "costs": "chains",
    "length": "chains",
    "step": "chains",
    "table": "chains",
    "what_fits": "links",
    "for_free": "links",
    "capped": "on_ranks",
    "emulated": "on_ranks",
    "held": "on_ranks",
    "without_arrows": "on_ranks",
    "pipelines": "pictures",
    "picture": "pictures",
    "ways": "pictures",
    "early": "chains",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
