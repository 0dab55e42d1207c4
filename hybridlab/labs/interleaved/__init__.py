"""Notebook 13, interleaved pipelines: several thin stages per rank, predicted and run (`thin_stages`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "LATENCIES": "thin_stages",
    "UNIT": "thin_stages",
    "costs": "thin_stages",
    "length": "thin_stages",
    "loses_from": "thin_stages",
    "sent": "thin_stages",
    "speed_up": "thin_stages",
    "sweep": "thin_stages",
    "thinned": "thin_stages",
    "gain_and_loss": "pictures",
    "valleys": "pictures",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
