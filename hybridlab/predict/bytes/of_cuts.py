"""Count the bytes that the busiest device sends in a step, for each way to cut a stack of layers.

p stages cut between layers, t parts cut the width of each layer, and d copies cut the batch. A microbatch is one
sequence. Embedding and head are left out.

Relatives: `predict.bytes.traffic`, `predict.bytes.collectives`, notebook 40.
"""

from collections import Counter
from functools import cache
from itertools import product
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.traffic import boundary, tensor_of_layer, traffic
from hybridlab.scheduling.registry import schedule

SHAPE = Shape(layers=6, width=4096, heads=32, context=2048)
STAGES, PARTS, COPIES, BATCHES = (1, 2, 3, 6), (1, 2, 4), (1, 2, 4), (8, 32, 128)  # sequences in a batch
WIDTH = 2  # bytes of a weight, of a gradient and of an activation


class Messages(NamedTuple):
    """The messages of one kind in a step: bytes of the tensor, how often, and the bytes that the device sends."""

    size: float
    times: int
    sent: float


class Cut(NamedTuple):
    """A model of `SHAPE` in p stages, t parts and d copies, for a batch of sequences.

    >>> one = Cut(p=3, t=1, d=4, batch=32)
    >>> one.devices, one.microbatches, f"{one.weights / 1e6:.0f} MB", f"{one.sent / 1e9:.2f} GB"
    (12, 8, '806 MB', '1.48 GB')
    """

    p: int
    t: int
    d: int
    batch: int

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.p * self.t * self.d

    @property
    def microbatches(self) -> int:
        """Microbatches of each copy."""
        return self.batch // self.d

    @property
    def layers(self) -> int:
        """Layers of a stage."""
        return SHAPE.layers // self.p

    @property
    def weights(self) -> float:
        """Bytes of weights on a device."""
        block = SHAPE.block
        return WIDTH * self.layers * (block.whole + (block.attention + block.mlp) / self.t)

    @property
    def between_stages(self) -> Messages:
        """The activations and gradients that a stage in the middle sends: it sends in both directions."""
        size, count = WIDTH * boundary(SHAPE, 1, 1), 0
        if self.p > 1:
            count = _sends(self.p, self.microbatches)
        return Messages(size, count, count * size)

    @property
    def inside_layers(self) -> Messages:
        """All-reduces of the parts of each layer, forward and backward."""
        stream = SHAPE.context * SHAPE.width
        elements = added(tensor_of_layer(SHAPE, 1, 1, self.t).values()) * self.layers * self.microbatches
        times = elements // stream if self.t > 1 else 0
        return Messages(WIDTH * stream, times, times * cost("all_reduce", self.t, WIDTH * stream).bytes)

    @property
    def between_copies(self) -> Messages:
        """The all-reduce of gradients, once in a step."""
        return Messages(self.weights, int(self.d > 1), cost("all_reduce", self.d, self.weights).bytes)

    @property
    def sent(self) -> float:
        """All bytes that the busiest device sends in a step."""
        return self.between_stages.sent + self.inside_layers.sent + self.between_copies.sent


def fewest(devices: int, batch: int) -> Cut:
    """The cut for this number of devices whose busiest device sends the fewest bytes.

    >>> fewest(devices=12, batch=32)[:3], fewest(devices=12, batch=128)[:3]
    ((6, 1, 2), (3, 1, 4))
    """
    every = (Cut(*one, batch) for one in product(STAGES, PARTS, COPIES))
    return min((one for one in every if one.devices == devices), key=lambda one: one.sent)


@cache
def _sends(stages: int, microbatches: int) -> int:
    """The messages of the rank of a pipeline that sends the most."""
    sends = Counter()
    for (sender, _), (count, _) in traffic(schedule("1f1b", stages, microbatches)).items():
        sends[sender] += count
    return max(sends.values())
