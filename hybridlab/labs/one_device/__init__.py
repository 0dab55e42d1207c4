"""Notebook 02, one device: a step foreseen, and which parts of the loop may change places (`loop`); what training
keeps, computed (`memory`) and counted (`counting`); whether it fits (`explorer`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "computed": "memory",
    "counted": "counting",
    "foreseen": "loop",
    "halves_apart": "loop",
    "held": "counting",
    "states": "memory",
    "steps_apart": "loop",
    "anatomy_explorer": "explorer",
}
_MODULES = {"pictures": "pictures"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
