"""The reference transformers: the GPT of SC'21, or its modern relative, of any `Shape`, on a text."""

from dataclasses import asdict
from functools import partial

import numpy as np
import torch

from hybridlab.core.afford import refuse
from hybridlab.core.what.shape import Shape
from hybridlab.training.data.text import Spread, Text
from hybridlab.training.models.gpt import GPT, token_loss
from hybridlab.training.models.model import Model
from hybridlab.training.models.modern import Modern
from hybridlab.training.models.parallel import PIECES
from hybridlab.training.models.parts import between_parts, in_parts

STYLES = {"gpt": GPT, "llama": Modern}
BYTES = 256
PART_BYTES, PART_SECONDS = 20_000, 2e-3  # for each module of a layer, without its numbers
LONGEST = 60.0  # maximum seconds to create a model


class Transformer(Model):
    """The reference model of a shape, on the bytes of a text.

    data   a text file, or None for the text of the course
    parts  whether a block with experts is three layers, see `parts`
    proving  set by `for_proof`; without a file the data then covers the full vocabulary

    raises  ValueError if the text cannot be read
    """

    enters = targets = "B T"
    scores, ends = "V", (1, 1)

    def __init__(self, shape: Shape, data: str | None = None, parts: bool = False, proving: bool = False):
        whole = partial(STYLES[shape.style], shape)
        source = Text.of(data)
        source = Spread(source, shape.vocabulary) if proving and data is None else source
        super().__init__(whole, token_loss, source, sizes=shape.sizes, terms=shape.context)
        self.shape, self.file, self.parts, self.proving = shape, data, parts, proving

    def refuse(self):
        if self.shape.vocabulary < BYTES:
            few = self.shape.vocabulary
            raise ValueError(f"vocabulary={few} is less than the number of byte values: give {BYTES} or more")
        layers, mlps = self.shape.layers, self.shape.mlps
        parts = layers * (1 + mlps)
        most = {"experts": mlps} if mlps > layers else {"layers": layers}
        refuse(f"{layers} layers of {mlps + 1} parts", PART_BYTES * parts, PART_SECONDS * parts, LONGEST, **most)

    def __reduce__(self):
        return Transformer, (self.shape, self.file, self.parts, self.proving)  # a rank reads the text itself

    def in_parts(self):
        shape = self.shape
        if shape.experts == 1 or shape.skips or shape.parallel or shape.plain or shape.routing.capacity is not None:
            raise ValueError(
                "this schedule has all-to-alls between stages: give a shape with experts=2 or more, without "
                "skips, parallel blocks or a capacity"
            )
        return Transformer(shape, self.file, parts=True)

    def for_proof(self):
        return Transformer(self.shape, self.file, self.parts, proving=True)

    def layers(self, module):
        if not self.parts:
            return super().layers(module)
        return [module.embed, *(part for block in module.blocks for part in in_parts(block)), module.head]

    def batch(self, step, rows, seed=0, unseen=False):
        text, documents = self.data.unseen if unseen else self.data, self.shape.documents or (self.shape.context,)
        both = text.batch(step, rows * len(documents), max(documents), seed)
        return tuple(torch.from_numpy(packed(array, documents)) for array in both)

    def dims_of(self, parameters):
        return {name: self.shape.dims(name) for name in parameters}

    def between(self, rows, dtype, batch=None, sent=()):
        """x_BTD after every layer, and scores_BTV after the last."""
        shape = self.shape
        x_BTD = torch.empty((rows, shape.context, shape.width), dtype=dtype, device="meta")
        scores_BTV = torch.empty((rows, shape.context, shape.vocabulary), dtype=dtype, device="meta")
        block = (
            [*between_parts(shape, rows, dtype), x_BTD] if self.parts else [x_BTD] * (PIECES if shape.parallel else 1)
        )
        return [x_BTD, *block * shape.layers, scores_BTV]

    def notes(self, module):
        return {"shape": asdict(self.shape)}


def packed(windows: np.ndarray, documents) -> np.ndarray:
    """Rows of several documents each: from every window, the length of its document.

    >>> packed(np.array([[1, 2, 3], [4, 5, 6]]), documents=(1, 3))
    array([[1, 4, 5, 6]])
    """
    by_row = windows.reshape(-1, len(documents), windows.shape[1])
    return np.concatenate([by_row[:, number, :length] for number, length in enumerate(documents)], axis=1)
