"""Rows of tokens for a language model of any vocabulary, from the course's text; `text` has its bytes."""

from dataclasses import dataclass

import torch

from hybridlab.training.data.text import Spread, Text

BYTES = 256


@dataclass(frozen=True)
class Tokens:
    """Rows of tokens for a language model, and the next tokens as targets: the bytes of the course's text.

    If the vocabulary is too small for all bytes, and in a proof, letters are mapped to tokens of the full vocabulary.

    >>> tokens, targets = Tokens(vocabulary=64, length=8).batch(step=0, rows=2)
    >>> tokens.shape, bool(tokens.max() < 64)
    (torch.Size([2, 8]), True)
    """

    vocabulary: int
    length: int
    spread: bool = False
    seen: bool = True

    @property
    def unseen(self) -> "Tokens":
        """Other text, for evaluation."""
        return Tokens(self.vocabulary, self.length, self.spread, seen=False)

    @property
    def for_proof(self) -> "Tokens":
        """The number of tokens in the full vocabulary."""
        return Tokens(self.vocabulary, self.length, spread=True)

    def batch(self, step: int, rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """(tokens, targets) of one step, (rows, length) each."""
        text = Text.of() if self.seen else Text.of().unseen
        source = Spread(text, self.vocabulary) if self.spread or self.vocabulary < BYTES else text
        return tuple(torch.from_numpy(array.copy()) for array in source.batch(step, rows, self.length, seed))
