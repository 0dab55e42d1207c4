"""The catalog: models by their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: what decides its parameters, its work and its messages. A GPT, or with heads=0 an MLP.

    layers      blocks;  width  of the residual stream (h in papers)
    heads       attention heads; they must divide width; 0: blocks without attention
    context     positions in one sequence (s in papers)
    vocabulary  256: one token per byte
    kv_heads    heads of keys and values, each shared by as many heads of queries; None: as many as heads
    dropout     the share of a residual branch's elements that is dropped in training, from 0 to below 1
    tied        the head scores with the weights of the token embedding
    skips       U-shaped: what leaves block i is also added to what enters block layers-1-i

    raises  ValueError when a size is not positive, or heads do not divide width, or kv_heads not heads

    >>> Shape(layers=4, width=32, heads=4, context=32).parameters
    68288
    >>> Shape(layers=4, width=32, heads=4, context=32, kv_heads=1).parameters
    61952
    """

    layers: int = 4
    width: int = 32
    heads: int = 4
    context: int = 32
    vocabulary: int = 256
    tied: bool = False
    skips: bool = False
    kv_heads: int | None = None
    dropout: float = 0.0

    def __post_init__(self):
        for name, least in (("layers", 1), ("width", 1), ("heads", 0), ("context", 1), ("vocabulary", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is no size: give a whole number, {least} or more")
        if self.heads and self.width % self.heads:
            ways = [n for n in range(1, self.width + 1) if self.width % n == 0]
            raise ValueError(f"heads={self.heads} does not divide width={self.width}: choose heads from {ways}")
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            ways = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise ValueError(f"kv_heads={self.kv_heads} does not divide heads={self.heads}: choose it from {ways}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} is no share to drop: give 0 or more, and less than 1")

    @property
    def key_heads(self) -> int:
        """The number of heads of keys, and of values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_width(self) -> int:
        """The width of one head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """The number of weights and biases: per block 12 h² + 13 h (8 h² + 7 h without attention, less where heads of
        keys and values are shared); both embeddings; final norm; a head, unless it is tied."""
        h, V = self.width, self.vocabulary
        block = 8 * h * h + 7 * h
        if self.heads:
            block += 2 * h * h + 4 * h + 2 * (h + 1) * self.key_heads * self.head_width
        return self.layers * block + V * h + self.context * h + 2 * h + (0 if self.tied else V * h)

    @property
    def skipping(self) -> dict[int, int]:
        """{layer: the earlier layer whose output is added to what enters it}; 0 is the embedding, blocks follow.

        >>> Shape(layers=5, skips=True).skipping
        {5: 1, 4: 2}
        """
        across = range(1, (self.layers + 1) // 2) if self.skips else ()
        return {self.layers + 1 - layer: layer for layer in across}
