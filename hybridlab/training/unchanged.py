"""Buffers that no step may change: a first batch shows what a forward does with it, but not with a later one.

Each microbatch and each replica would write other numbers, and a new tensor in a buffer's place is in no checkpoint.
The examination before the first step (`training.models.borrowed`) sees most of it; this watch sees the rest.
"""

from torch import nn

from hybridlab.training.models.left_behind import tallies_of


class Unchanged:
    """A context for one step. At its end, every buffer of a module is the same tensor, in which nothing was written.

    Layers may change what they declare as tallies.

    raises  ValueError that names a layer and its buffer
    """

    def __init__(self, module: nn.Module):
        counted = tallies_of(module)
        self.places = [
            (layer, name)
            for of, layer in module.named_modules()
            for name, buffer in layer._buffers.items()
            if buffer is not None and not buffer.is_meta and f"{of}.{name}".lstrip(".") not in counted
        ]

    def __enter__(self):
        self.before = [(layer._buffers.get(name), layer._buffers[name]._version) for layer, name in self.places]

    def __exit__(self, kind, error, _):
        if kind is not None and not issubclass(kind, RuntimeError):  # autograd's error may come from such a write
            return
        for (layer, name), (buffer, version) in zip(self.places, self.before):
            if layer._buffers.get(name) is not buffer or buffer._version != version:
                raise ValueError(
                    f"{type(layer).__name__} changed its buffer {name} in this step, and each microbatch and replica "
                    "would write other numbers: compute it in each forward, or once where the model is made"
                ) from error
