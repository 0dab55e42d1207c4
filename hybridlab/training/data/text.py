"""The text: real bytes, the same on every machine, without a network.

The default is `course.txt`, the prose of the notebooks on 2026-11-26: plain ASCII, one paragraph per line. It
never changes, since stored outputs depend on its bytes. `Text.of(path)` reads any other file.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hybridlab.core.files import content
from hybridlab.core.where.layout import even

COURSE = Path(__file__).with_name("course.txt")


@dataclass(frozen=True)
class Text:
    """A text as bytes: one part for training, one for validation.

    train, validation  uint8 arrays;  source  the origin of the text, in words
    """

    train: np.ndarray
    validation: np.ndarray
    source: str

    @classmethod
    def of(cls, path=None) -> "Text":
        """The text of one file, with its last tenth for validation; without a path, the text of the course.

        raises  ValueError if the file cannot be read or is too short

        >>> Text.of().source, len(Text.of().train)
        ('the text of the course', 212454)
        """
        return _course() if path is None else cls._split(path, str(path))

    @classmethod
    def _split(cls, path, source):
        read = np.frombuffer(content(path, "the data file"), dtype=np.uint8)
        if len(read) < 1000:
            raise ValueError(f"the data file {path} has {len(read)} bytes: give one of at least 1000")
        cut = len(read) - len(read) // 10
        return cls(read[:cut], read[cut:], source)

    @property
    def unseen(self) -> "Text":
        """A `Text` that draws batches from the validation bytes."""
        return Text(self.validation, self.train, self.source)

    def batch(self, step: int, sequences: int, context: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The global batch of one step: (tokens, targets), both (sequences, context) int64, targets one byte later.

        It depends only on seed and step, never on the number of ranks.

        raises  ValueError if the text is shorter than one sequence

        >>> text = Text(np.arange(100, dtype=np.uint8), np.zeros(0, np.uint8), "0 to 99")
        >>> tokens, targets = text.batch(step=0, sequences=2, context=3)
        >>> bool((targets == tokens + 1).all())
        True
        """
        if len(self.train) <= context:
            raise ValueError(
                f"the text has {len(self.train)} bytes, but one sequence needs {context + 1}: give a smaller context"
            )
        starts = np.random.default_rng((seed, step)).integers(0, len(self.train) - context, sequences)
        windows = self.train[starts[:, None] + np.arange(context + 1)].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]

    @functools.cached_property
    def places(self) -> np.ndarray:
        """For each of the 256 bytes, its index in the order of frequency; the most frequent byte has 0."""
        return np.argsort(-np.bincount(self.train, minlength=256), kind="stable").argsort()


@functools.cache
def _course() -> Text:
    return Text._split(COURSE, "the text of the course")


MOST_PARTS = 8  # maximum number of parts of a vocabulary for which a proof tests every border


@dataclass(frozen=True)
class Spread:
    """A text whose letters are mapped to tokens of the full vocabulary, for proofs.

    English uses a third of the 256 bytes, and none of the upper half: a rank with only those tokens would contribute
    nothing, right or wrong. Here the most frequent letters are the tokens next to the borders of even cuts, into up to
    `MOST_PARTS` parts. All other sequences go through all tokens in order. (With only such sequences, the gradients
    would nearly cancel and leave noise.)
    """

    text: Text
    vocabulary: int

    @property
    def unseen(self) -> "Spread":
        """The bytes that are never used in training, mapped in the same way."""
        return Spread(self.text.unseen, self.vocabulary)

    def batch(self, step: int, sequences: int, context: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The global batch of one step, in the form of `Text.batch`; it depends only on seed and step.

        >>> tokens, targets = Spread(Text.of(), 300).batch(step=0, sequences=20, context=30)
        >>> len(set(tokens[::2].flat)), len(set(targets[::2].flat))
        (300, 300)
        """
        letters = self.text.batch(step, sequences, context, seed)
        through = np.arange(-(-sequences // 2) * context).reshape(-1, context) + step * -(-sequences // 2) * context
        return tuple(self._spread(read, through, seed, what) for what, read in enumerate(letters))

    def _spread(self, letters, through, *seed):
        """Letters of a text as tokens; in all other rows tokens in order, starting with those next to borders."""
        borders = {first for parts in range(1, MOST_PARTS + 1) for first, _ in even(self.vocabulary, parts)}
        beside = np.unique([(first + one) % self.vocabulary for first in borders for one in (-1, 0)])
        others = np.setdiff1d(np.arange(self.vocabulary), beside)
        chance = np.random.default_rng(seed)
        order = np.concatenate([chance.permutation(beside), chance.permutation(others)])
        tokens = order[self.text.places % self.vocabulary][letters]
        tokens[::2] = order[through % self.vocabulary]
        return tokens
