"""Notebook 23, out of core: a chain of blocks on a device that is too small for it (`chains`), `pictures` of copies
during the computation and of the memory held, real devices and links (`links`), and runs on real ranks (`on_ranks`).

Its exercises are in `tasks`, their solutions in `solutions`. `planned` judges a student's plan, `lent` loans to other
ranks, `trial` an engine.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "chains": "best chain costs length step table early",
        "lent": "lending",
        "links": "what_fits for_free",
        "on_ranks": "capped emulated held without_arrows",
        "pictures": "pipelines picture ways",
    },
)
