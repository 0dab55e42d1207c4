"""Shape: the sizes of a model, and the number of weights that follows from them."""

from dataclasses import dataclass
from typing import NamedTuple

from hybridlab.core.what.routing import Routing
from hybridlab.signatures import refuse_types

STYLES = ("gpt", "llama")
PIECES = 3  # layers that a parallel block is: two branches and their sum
# Of the matrices, by the name of their module: outputs, inputs; all else has the width D. Latents of queries have R
# features, those of keys and values L.
DIMS = {
    "token": "V D",
    "position": "T D",
    "q": "NH D",
    "k": "KH D",
    "v": "KH D",
    "out": "D NH",
    "router": ". D",  # not E: every rank has all of it
    "up": "F D",
    "gate": "F D",
    "down": "D F",
    "scores": "V D",
    "q_latent": "R D",
    "q_norm": "R",
    "latent": "L D",
    "latent_norm": "L",
    "turned": ". D",
}


MOST, MOST_BYTES, WIDEST = 10**9, 2**62, 8  # of one size; of all weights, of this many bytes each


def divisors(n: int) -> list[int]:
    """The integers that divide n, in rising order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


class Block(NamedTuple):
    """The weights and biases of one block, by their sharding in tensor parallelism.

    attention  of one block, sharded;  mlp  of one expert, sharded too;  whole  norms, routing, the matrices that make
    latents, and the biases that are added after an all-reduce: every rank holds them
    heads, norms  the same of those that have no dim of the stream's width: from latents to heads, cut; norms of latents
    """

    attention: int
    mlp: int
    whole: int
    heads: int = 0
    norms: int = 0


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, which determine its parameters, FLOPs and messages. A GPT, or with heads=0 an MLP.

    layers      blocks;  width  the width of the residual stream (h in papers)
    heads       attention heads; they must divide width; 0: blocks without attention
    context     positions in one sequence (s in papers)
    vocabulary  256: one token per byte
    kv_heads    heads of keys and values, each used by an equal number of query heads; None: the same number as heads
    dropout     the fraction of a residual branch's elements that is dropped in training: at least 0, less than 1
    tied        the head uses the weights of the token embedding
    skips       U-shaped: the output of block i is also added to the input of block layers-1-i
    parallel    attention and MLP of a block both take the block's input, instead of running one after another
    inner       hidden width of the MLP; None: four times width
    per_head    width of one head; None: width divided by heads
    latent      width of the latent from which keys and values are projected; 0: they are projected from the residual
                stream
    query_latent  the same for queries, if there is a latent;  rotary  extra features of a head, rotated by position:
                  with a latent only these are rotated, and all heads share those of the keys
    style       "gpt": biases, layer norms, learned positions; "llama": no biases, RMS norms, rotary positions, and an
                MLP of three matrices, one of them a gate
    experts     expert MLPs in a block;  chosen  experts per token
    shared      additional MLPs of the same size, through which every token passes
    routing     how tokens choose their experts
    documents   lengths of the documents that are packed into each sequence, in order: positions begin again in each,
                and attention does not cross a boundary; empty: a sequence is one document. FLOPs and bytes are
                predicted as for one document

    raises  ValueError when a size is not positive, or heads do not divide width, or kv_heads not heads, or documents do
            not fill the context

    >>> Shape(layers=4, width=32, heads=4, context=32).parameters
    68288
    >>> Shape(layers=4, width=32, heads=4, context=32, kv_heads=1).parameters
    61952
    >>> Shape(style="llama", latent=12, rotary=4).parameters < Shape(style="llama").parameters
    True
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
    inner: int | None = None
    style: str = "gpt"
    experts: int = 1
    chosen: int = 1
    shared: int = 0
    routing: Routing = Routing()
    documents: tuple[int, ...] = ()
    parallel: bool = False
    per_head: int | None = None
    latent: int = 0
    query_latent: int = 0
    rotary: int = 0

    def __post_init__(self) -> None:
        refuse_types(self)
        sizes = {"layers": 1, "width": 1, "heads": 0, "context": 1, "vocabulary": 1, "experts": 1, "chosen": 1}
        sizes |= dict.fromkeys(("shared", "latent", "query_latent", "rotary"), 0)
        sizes |= {} if self.inner is None else {"inner": 1}
        for name, least in sizes.items():
            if not least <= getattr(self, name) <= MOST:
                span = f"from {least} to {MOST:.0e}"
                raise ValueError(f"{name}={getattr(self, name)} is not a valid size: give a whole number {span}")
        if self.parameters * WIDEST > MOST_BYTES:
            raise ValueError(f"{self.parameters:.3g} parameters are too many for any memory: give smaller sizes")
        if self.heads and self.per_head is None and self.width % self.heads:
            ways = divisors(self.width)
            raise ValueError(f"heads={self.heads} does not divide width={self.width}: choose heads from {ways}")
        if self.per_head is not None and self.per_head < 1:
            raise ValueError(f"per_head={self.per_head} is not a valid width of a head: give a whole number, 1 or more")
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            ways = divisors(self.heads)
            raise ValueError(f"kv_heads={self.kv_heads} does not divide heads={self.heads}: choose it from {ways}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} is not a probability below 1: give 0 or more, and less than 1")
        if self.style not in STYLES:
            raise ValueError(f"style={self.style!r} is not known: choose one of {', '.join(STYLES)}")
        if self.chosen > self.experts:
            raise ValueError(
                f"chosen={self.chosen} is more than the {self.experts} experts: give at most {self.experts}"
            )
        if self.shared and self.experts == 1:
            raise ValueError(f"shared={self.shared} needs routed experts too: give experts=2 or more")
        if self.routing != Routing() and self.experts == 1:
            raise ValueError("capacity, balance, pace and scores need several experts: give experts=2 or more")
        if self.parallel and (not self.heads or self.skips):
            raise ValueError("parallel=True needs attention next to the MLP: give heads=1 or more, and no skips")
        self._refuse_latents()
        if self.documents and (min(self.documents) < 1 or sum(self.documents) != self.context):
            raise ValueError(
                f"documents={self.documents} have {sum(self.documents)} positions, but a sequence has "
                f"{self.context}: give lengths, 1 or more, that add up to the context"
            )

    def _refuse_latents(self):
        for name in ("query_latent", "rotary"):
            if getattr(self, name) and not self.latent:
                raise ValueError(f"{name}={getattr(self, name)} applies only with a latent: give latent=1 or more")
        if not self.latent:
            return
        if self.style != "llama" or not self.heads or self.kv_heads not in (None, self.heads):
            raise ValueError(
                f"latent={self.latent} makes the keys and values of all heads, without biases: give style='llama', "
                "heads=1 or more, and no kv_heads"
            )
        if self.rotary < 2 or self.rotary % 2:
            raise ValueError(
                f"rotary={self.rotary} is not even, and features are rotated in pairs: give an even number, 2 or more"
            )

    @property
    def pieces(self) -> int:
        """The number of layers in a block."""
        return PIECES if self.parallel else 1

    @property
    def key_heads(self) -> int:
        """The number of heads of keys, and of values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_width(self) -> int:
        """The width of one head."""
        return self.width // self.heads if self.per_head is None else self.per_head

    @property
    def query_width(self) -> int:
        """The width of all queries of a position: that of the residual stream, unless `per_head` is given."""
        return self.heads * (self.head_width + self.rotary) if self.heads else 0

    @property
    def key_width(self) -> int:
        """The width of all keys of a position."""
        return self.key_heads * (self.head_width + self.rotary) if self.heads else 0

    @property
    def value_width(self) -> int:
        """The width of all values of a position: that of its keys without their rotary features."""
        return self.key_heads * self.head_width if self.heads else 0

    @property
    def found_width(self) -> int:
        """The width of the attention outputs of all heads of a position."""
        return self.heads * self.head_width if self.heads else 0

    @property
    def latents(self) -> int:
        """The features that all heads share: the latents of a position, and the rotary features of its keys."""
        return self.query_latent + self.latent + self.rotary

    @property
    def projected(self) -> tuple[int, int]:
        """(features of queries, keys and values projected from the residual stream, weights that project from
        latents).
        """
        keys = 2 * self.value_width
        if not self.latent:
            return self.query_width + keys, 0
        if not self.query_latent:
            return self.query_width, keys * self.latent
        return 0, keys * self.latent + self.query_width * self.query_latent

    @property
    def inside(self) -> int:
        """The hidden width of the MLP (4 h, unless `inner` is given)."""
        return 4 * self.width if self.inner is None else self.inner

    @property
    def multiplied(self) -> int:
        """The weights of a block that multiply one token's activations: 12 h² in a GPT; with experts, only the chosen
        and the shared experts count.
        """
        h, matrices = self.width, 3 if self.style == "llama" else 2
        made, from_latents = self.projected
        attention = h * (made + self.found_width + self.latents) + from_latents
        mlps = (self.chosen + self.shared) * matrices * h * self.inside
        return attention + mlps + (h * self.experts if self.experts > 1 else 0)

    @property
    def mlps(self) -> int:
        """The number of MLPs of a block: experts and shared experts."""
        return self.experts + self.shared

    @property
    def block(self) -> Block:
        """The number of weights and biases of one block."""
        h, f, biased = self.width, self.inside, self.style == "gpt"
        made, from_latents = self.projected
        attention = h * (made + self.found_width) + biased * made
        mlp = 2 * h * f + f if biased else 3 * h * f
        norms = (2 if self.heads else 1) * h * (2 if biased else 1)
        behind = biased * h * (self.mlps + (1 if self.heads else 0))
        router = h * self.experts if self.experts > 1 else 0
        whole = norms + behind + router + h * self.latents
        return Block(attention, mlp, whole, from_latents, self.query_latent + self.latent)

    @property
    def embedding(self) -> int:
        """The number of weights of the embeddings of tokens and, in a GPT, of positions."""
        return (self.vocabulary + (self.context if self.style == "gpt" else 0)) * self.width

    @property
    def head(self) -> int:
        """The number of weights of the last norm, and of the head unless it is tied."""
        return self.width * ((2 if self.style == "gpt" else 1) + (0 if self.tied else self.vocabulary))

    @property
    def parameters(self) -> int:
        """The number of weights and biases: in a GPT 12 h² + 13 h per block (8 h² + 7 h without attention, less where
        heads of keys and values are shared); both embeddings; final norm; a head, unless it is tied."""
        one = self.block
        block = one.attention + self.mlps * one.mlp + one.whole + one.heads + one.norms
        return self.layers * block + self.embedding + self.head

    @property
    def sizes(self) -> dict[str, int]:
        """The length of every named dim, by its letter; see `dims`.

        >>> Shape(experts=4).sizes["E"], "E" in Shape().sizes
        (4, False)
        """
        every = {"T": self.context, "D": self.width, "N": self.heads, "K": self.key_heads if self.heads else 0,
                 "F": self.inside, "V": self.vocabulary}  # fmt: skip
        if self.experts > 1:
            every |= {"E": self.experts}
        every |= {"R": self.query_latent, "L": self.latent}
        return {letter: length for letter, length in every.items() if length}

    def dims(self, name: str) -> str:
        """The names of the dims of a parameter of the reference model, by the parameter's name.

        >>> Shape().dims("blocks.0.attention.q.weight"), Shape().dims("blocks.0.mlp.up.bias")
        ('NH D', 'F')
        >>> Shape(experts=4).dims("blocks.0.mlp.experts.up.weight")
        'E F D'
        """
        module, kind = name.split(".")[-2:]
        from_latents = {"k": "KH L", "v": "KH L"} if self.latent else {}
        from_latents |= {"q": "NH R"} if self.query_latent else {}
        both = (DIMS | from_latents).get(module, "D D")
        dims = both if kind == "weight" and module in DIMS else both.split()[0]
        return "E " + dims if ".experts." in name else dims

    @property
    def skipping(self) -> dict[int, int]:
        """{layer: the earlier layer whose output it adds to its input}; layer 0 is the embedding, the blocks follow.

        >>> Shape(layers=5, skips=True).skipping
        {5: 1, 4: 2}
        """
        across = range(1, (self.layers + 1) // 2) if self.skips else ()
        return {self.layers + 1 - layer: layer for layer in across}
