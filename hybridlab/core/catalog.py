"""The catalog: models by their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a GPT: what decides its parameters, its work and its messages.

    layers      transformer blocks;  width  of the residual stream (h in papers)
    heads       attention heads; they must divide width
    context     positions in one sequence (s in papers)
    vocabulary  256: one token per byte

    raises  ValueError when a size is not positive, or heads do not divide width

    >>> Shape(layers=4, width=32, heads=4, context=32).parameters
    68288
    """

    layers: int = 4
    width: int = 32
    heads: int = 4
    context: int = 32
    vocabulary: int = 256

    def __post_init__(self):
        for name, size in vars(self).items():
            if size < 1:
                raise ValueError(f"{name}={size} is no size: give a whole number, 1 or more")
        if self.width % self.heads:
            ways = [n for n in range(1, self.width + 1) if self.width % n == 0]
            raise ValueError(f"heads={self.heads} does not divide width={self.width}: choose heads from {ways}")

    @property
    def parameters(self) -> int:
        """The number of weights and biases: per block 12 h² + 13 h; both embeddings; final norm; an untied head."""
        h, V = self.width, self.vocabulary
        return self.layers * (12 * h * h + 13 * h) + V * h + self.context * h + 2 * h + V * h
