"""The catalog: models by their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: what decides its parameters, its work and its messages. A GPT, or with heads=0 an MLP.

    layers      blocks;  width  of the residual stream (h in papers)
    heads       attention heads; they must divide width; 0: blocks without attention
    context     positions in one sequence (s in papers)
    vocabulary  256: one token per byte
    tied        the head scores with the weights of the token embedding
    skips       U-shaped: what leaves block i is also added to what enters block layers-1-i

    raises  ValueError when a size is not positive, or heads do not divide width

    >>> Shape(layers=4, width=32, heads=4, context=32).parameters
    68288
    """

    layers: int = 4
    width: int = 32
    heads: int = 4
    context: int = 32
    vocabulary: int = 256
    tied: bool = False
    skips: bool = False

    def __post_init__(self):
        for name, least in (("layers", 1), ("width", 1), ("heads", 0), ("context", 1), ("vocabulary", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is no size: give a whole number, {least} or more")
        if self.heads and self.width % self.heads:
            ways = [n for n in range(1, self.width + 1) if self.width % n == 0]
            raise ValueError(f"heads={self.heads} does not divide width={self.width}: choose heads from {ways}")

    @property
    def parameters(self) -> int:
        """The number of weights and biases: per block 12 h² + 13 h (8 h² + 7 h without attention); both embeddings;
        final norm; a head, unless it is tied."""
        h, V = self.width, self.vocabulary
        block = 12 * h * h + 13 * h if self.heads else 8 * h * h + 7 * h
        return self.layers * block + V * h + self.context * h + 2 * h + (0 if self.tied else V * h)

    @property
    def skipping(self) -> dict[int, int]:
        """{layer: the earlier layer whose output is added to what enters it}; 0 is the embedding, blocks follow.

        >>> Shape(layers=5, skips=True).skipping
        {5: 1, 4: 2}
        """
        across = range(1, (self.layers + 1) // 2) if self.skips else ()
        return {self.layers + 1 - layer: layer for layer in across}
