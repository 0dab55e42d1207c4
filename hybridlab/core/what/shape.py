"""Shape: the sizes of a model, and the number of weights that follows from them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from hybridlab.core.what.routing import Routing
from hybridlab.core.what.valid_sizes import refuse
from hybridlab.doors import MOST, guarded

STYLES = ("gpt", "llama")
PIECES = 3  # the layers of a parallel block: two branches and their sum
# The dims of weights, by the name of their module: outputs, inputs; a bias has only the outputs. Latents of queries
# have R features, those of keys and values L.
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
    "joined": "D D",
    **dict.fromkeys(("attention_norm", "mlp_norm", "next_norm", "norm"), "D"),
}


MOST_BYTES, WIDEST = 2**62, 8  # the most bytes of all weights, if each has this many


class Block(NamedTuple):
    """The weights and biases of one block, by their sharding in tensor parallelism.

    attention  of one block, sharded;  mlp  of one expert, sharded too;  whole  norms, routing, the matrices that make
    latents, and the biases that are added after an all-reduce: every rank holds them
    heads, norms  like attention and whole, but without a dim of the stream's width: from latents to heads; norms of
                  latents
    """

    attention: int
    mlp: int
    whole: int
    heads: int = 0
    norms: int = 0

    def every(self, mlps: int) -> int:
        """The number of all weights and biases, if the block has this many MLPs."""
        return self.attention + mlps * self.mlp + self.whole + self.heads + self.norms


@guarded()
@dataclass(frozen=True)
class Shape:
    """The sizes of a model, which determine its parameters, FLOPs and messages. A GPT, or with heads=0 an MLP.

    layers      blocks;  width  the width of the residual stream (h in papers)
    heads       attention heads; they must divide width; 0: blocks without attention
    context     positions in one sequence (s in papers)
    vocabulary  the number of tokens; 256: one per byte
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
    plain       the indices, from 0, of the blocks that have one MLP where the others have experts
    plain_inner  hidden width of that MLP; None: that of all experts of a token, shared ones too
    documents   lengths of the documents that are packed into each sequence, in order: positions begin again in each,
                and attention does not cross a boundary; empty: a sequence is one document. FLOPs and bytes are
                predicted as for one document

    raises  ValueError when a size is not positive, heads do not divide width, kv_heads do not divide heads, or
            documents do not fill the context

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
    plain: tuple[int, ...] = ()
    plain_inner: int | None = None

    def __post_init__(self) -> None:
        refuse(self, STYLES, MOST)
        if self.parameters * WIDEST > MOST_BYTES:
            raise ValueError(f"{self.parameters:.3g} parameters are too many for any memory: give smaller sizes")

    @property
    def others(self) -> "Shape":
        """The shape of a model whose blocks are all like those that are not in `plain`."""
        return replace(self, plain=(), plain_inner=None) if self.plain else self

    @property
    def plain_ones(self) -> "Shape":
        """The shape of a model whose blocks are all like those in `plain`.

        >>> one = Shape(layers=4, experts=8, chosen=2, plain=(0,), plain_inner=96)
        >>> one.plain_ones.inside, one.plain_ones.experts, one.others.experts
        (96, 1, 8)
        """
        inner = (self.chosen + self.shared) * self.inside if self.plain_inner is None else self.plain_inner
        return replace(self.others, experts=1, chosen=1, shared=0, routing=Routing(), inner=inner)

    def at(self, block: int) -> "Shape":
        """The shape of a model whose blocks are all like the one with this index, from 0.

        raises  ValueError if there is no such block
        """
        if block not in range(self.layers):
            raise ValueError(
                f"block={block!r} is invalid: there are {self.layers} blocks. "
                f"Give an index from 0 to {self.layers - 1}."
            )
        return self.plain_ones if block in self.plain else self.others

    @property
    def pieces(self) -> int:
        """The number of layers into which a block is divided."""
        return PIECES if self.parallel else 1

    @property
    def key_heads(self) -> int:
        """The number of KV heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_width(self) -> int:
        """The width of one head."""
        return self.width // self.heads if self.per_head is None else self.per_head

    @property
    def query_width(self) -> int:
        """The width of all queries of a position: the model's width, unless `per_head` is given."""
        return self.heads * (self.head_width + self.rotary) if self.heads else 0

    @property
    def key_width(self) -> int:
        """The width of all keys of a position."""
        return self.key_heads * (self.head_width + self.rotary) if self.heads else 0

    @property
    def value_width(self) -> int:
        """The width of all values of a position: the width of its keys, without their rotary features."""
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
        """(the number of query, key and value features that are projected from the residual stream; the number of
        weights that project from latents).
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
        and the shared experts count. Blocks in `plain` are excluded.
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
        """The number of weights and biases of one block that is not in `plain`."""
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
        """The number of weights in the token embedding and, in a GPT, the position embedding."""
        return (self.vocabulary + (self.context if self.style == "gpt" else 0)) * self.width

    @property
    def head(self) -> int:
        """The number of weights in the last norm, and in the head unless it is tied."""
        return self.width * ((2 if self.style == "gpt" else 1) + (0 if self.tied else self.vocabulary))

    @property
    def parameters(self) -> int:
        """The number of weights and biases: in a GPT 12 h² + 13 h per block (8 h² + 7 h without attention, less where
        heads of keys and values are shared); both embeddings; final norm; a head, unless it is tied."""
        plain = len(self.plain) and len(self.plain) * self.plain_ones.block.every(1)
        others = (self.layers - len(self.plain)) * self.block.every(self.mlps)
        return others + plain + self.embedding + self.head

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
        every |= {"R": self.query_latent, "L": self.latent, "W": self.plain_ones.inside if self.plain else 0}
        return {letter: length for letter, length in every.items() if length}

    def dims(self, name: str) -> str:
        """The names of the dims of a parameter of the reference model, by the parameter's name.

        >>> Shape().dims("blocks.0.attention.q.weight"), Shape().dims("blocks.0.mlp.up.bias")
        ('NH D', 'F')
        >>> Shape(experts=4).dims("blocks.0.mlp.experts.up.weight")
        'E F D'

        raises  ValueError if the reference model has no such parameter
        """
        module, kind = name.split(".")[-2:] if "." in name else ("", "")
        if module not in DIMS or kind not in ("weight", "bias"):
            raise ValueError(
                f"name={name!r} is invalid: the reference model has no such parameter. "
                "Give a name like 'blocks.0.mlp.up.weight'."
            )
        from_latents = {"k": "KH L", "v": "KH L"} if self.latent else {}
        from_latents |= {"q": "NH R"} if self.query_latent else {}
        both = (DIMS | from_latents)[module]
        dims = both if kind == "weight" else both.split()[0]
        if self.plain and name.startswith("blocks.") and int(name.split(".")[1]) in self.plain:
            dims = dims.replace("F", "W")
        return "E " + dims if ".experts." in name else dims

    @property
    def skipping(self) -> dict[int, int]:
        """{layer: the earlier layer whose output it adds to its input}; layer 0 is the embedding, the blocks follow.

        >>> Shape(layers=5, skips=True).skipping
        {5: 1, 4: 2}
        """
        across = range(1, (self.layers + 1) // 2) if self.skips else ()
        return {self.layers + 1 - layer: layer for layer in across}
