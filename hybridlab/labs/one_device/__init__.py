"""Notebook 02, one device: the predicted step, and the parts of the loop that may be exchanged (`loop`); the memory of
training, computed (`memory`) and counted (`counting`); whether it fits (`explorer`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "memory": "computed states",
        "counting": "counted held",
        "loop": "foreseen halves_apart steps_apart",
        "explorer": "anatomy_explorer",
    },
    "pictures",
)
