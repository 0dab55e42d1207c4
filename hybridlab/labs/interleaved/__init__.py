"""Notebook 13, interleaved pipelines: several thin stages per rank, predicted and run (`thin_stages`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "thin_stages": "LATENCIES UNIT costs length loses_from sent speed_up sweep thinned",
        "pictures": "gain_and_loss valleys",
    },
)
