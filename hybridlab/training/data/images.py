"""The images: real handwritten digits, the same on every machine, without a network.

The file `digits.npz` in this folder contains the 1 797 images of 8×8 pixels that are the test part of "Optical
Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning Repository,
doi.org/10.24432/C50P49), licence CC BY 4.0 (creativecommons.org/licenses/by/4.0). They are packed as bytes, not
changed. Thirteen people wrote them. Each digit was scanned to 32×32 black or white points, and a pixel counts the black
points among 4×4, from 0 to 16.

Shape suffixes
    B batch · C channels (1: grey) · Y rows of pixels, X columns
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("digits.npz")
BLACK = 16  # the largest value of a pixel


@dataclass(frozen=True)
class Digits:
    """Digits for training, and others for validation.

    train, validation  (images, labels), uint8 arrays: (number, 8, 8), each pixel from 0 to 16; (number,), 0 to 9
    source             the origin of the images, in words
    """

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    source: str

    @classmethod
    @functools.cache
    def load(cls) -> "Digits":
        """All digits of the package, the last tenth for validation."""
        with np.load(FILE) as file:
            images, labels = file["images"], file["labels"]
        cut = len(labels) - len(labels) // 10
        source = f"Optical Recognition of Handwritten Digits (Alpaydin, Kaynak 1998), {len(labels)} images"
        return cls((images[:cut], labels[:cut]), (images[cut:], labels[cut:]), source)

    @property
    def unseen(self) -> "Digits":
        """The digits that are never used in training, as a source of batches."""
        return Digits(self.validation, self.train, self.source)

    def batch(self, step: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The global batch of one step: images (rows, 1, 8, 8) as float64 from 0 to 1, and labels (rows,) as int64.

        It depends only on seed and step, never on the number of ranks.

        >>> image_BCYX, label_B = Digits.load().batch(step=0, rows=2)
        >>> image_BCYX.shape, label_B
        ((2, 1, 8, 8), array([3, 1]))
        """
        images, labels = self.train
        chosen = np.random.default_rng((seed, step)).integers(0, len(labels), rows)
        return images[chosen, None] / BLACK, labels[chosen].astype(np.int64)

    def noisy(self, step: int, rows: int, seed: int = 0, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
        """The same batch for denoising: images with noise and images without, both (rows, 1, 8, 8) as float64.

        noise  the standard deviation of the noise of every pixel, which depends on seed, step and place in the batch
        """
        clean_BCYX, _ = self.batch(step, rows, seed)
        drawn_BCYX = np.random.default_rng((seed, step, 1)).standard_normal(clean_BCYX.shape)
        return clean_BCYX + noise * drawn_BCYX, clean_BCYX
