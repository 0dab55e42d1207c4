"""Notebook 30, sizes: a rank's weights, saved activations and messages for a large model, computed, not allocated."""

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.traffic import tensor

STATES = 16  # bytes per parameter with Adam in mixed precision
HALF = 2  # bytes of an activation


def records(shape: Shape) -> dict[str, tuple[int, ...]]:
    """{parameter: its shape}, in model order, of a model that is too large to be made here.

    >>> sum(1 for name in records(Shape(layers=2)))
    37
    """
    h, inside = shape.width, shape.inside
    found = {"embed.token.weight": (shape.vocabulary, h), "embed.position.weight": (shape.context, h)}
    norm = lambda name: {f"{name}.weight": (h,), f"{name}.bias": (h,)}
    linear = lambda name, out, into: {f"{name}.weight": (out, into), f"{name}.bias": (out,)}
    for block in (f"blocks.{number}" for number in range(shape.layers)):
        found |= norm(f"{block}.attention_norm")
        for letter, width in (("q", h), ("k", shape.key_width), ("v", shape.key_width), ("out", h)):
            found |= linear(f"{block}.attention.{letter}", width, h)
        found |= (
            norm(f"{block}.mlp_norm") | linear(f"{block}.mlp.up", inside, h) | linear(f"{block}.mlp.down", h, inside)
        )
    scores = {} if shape.tied else {"head.scores.weight": (shape.vocabulary, h)}
    return found | norm("head.norm") | scores


def layout_of(shape: Shape, ways: int, sequence: bool = False) -> Layout:
    """The layout of all weights over tp alone; every record is that of the mode.

    raises  ValueError in one sentence when the model cannot be cut like this
    """
    from hybridlab.modes.tensor_parallel import place, refuse_misfits

    refuse_misfits(shape.sizes, ways, sequence)
    params = tuple(Param(name, lengths, pack=i) for i, (name, lengths) in enumerate(records(shape).items()))
    return Layout(Mesh(tp=ways), params).with_params(lambda param: place(param, shape, ways, sequence))


def parameters(shape: Shape, ways: int, rank: int = 0) -> int:
    """The number of parameters that a rank has; those that all ranks have count in full.

    >>> parameters(Shape(), 1) == Shape().parameters
    True
    """
    layout = layout_of(shape, ways)
    return sum(layout.size(name, rank) for name in layout.named)


def kept(shape: Shape, sequences: int, ways: int, sequence: bool = False) -> int:
    """Numbers that one block's forward saves on the first rank for its backward.

    x, the outputs of the two norms, and x after attention: 4·s·b·h, cut only with sequence parallelism. Queries, the
    outputs of the heads, and twice the hidden units: 10·s·b·h/t. Keys and values: 2·s·b·h/t if each rank has its own
    heads. Also two numbers per position for each norm, and one for each head. Attention scores are recomputed, and the
    mask of dropout is computed from positions, so neither is saved.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, 4.1, who count bytes in half precision, masks and scores.

    >>> [kept(Shape(), 1, ways) / (32 * 32) for ways in (1, 2, 4)]
    [16.25, 10.1875, 7.15625]
    """
    h, tokens, cut = shape.width, sequences * shape.context, ways if sequence else 1
    keys = layout_of(shape, ways).size("blocks.0.attention.k.bias", 0)
    return tokens * (4 * h + 4) // cut + tokens * (10 * h + shape.heads) // ways + tokens * 2 * keys


def gigabytes(shape: Shape, sequences: int, ways: int, sequence: bool = False) -> tuple[float, float]:
    """(GB of weights, gradients and Adam's state, GB of activations of one microbatch) on the first rank."""
    states = STATES * parameters(shape, ways)
    return states / 1e9, HALF * shape.layers * kept(shape, sequences, ways, sequence) / 1e9


def on_the_wire(shape: Shape, sequences: int, ways: int, sequence: bool = False) -> float:
    """The numbers that each rank sends along tp for one microbatch, forward and backward, with rings.

    >>> one = Shape(layers=1, width=12288, heads=96, context=2048)
    >>> on_the_wire(one, 1, 8) - on_the_wire(Shape(layers=1, width=12288, heads=0, context=2048), 1, 8)
    88080384.0
    """
    terms = tensor(shape, sequences, ways, sequence)
    return sum(cost(_spoken(what, when, sequence), ways, elements).bytes for (what, when), elements in terms.items())


def _spoken(what, when, sequence):
    """A sum is a gather and a reduce-scatter; with sequence parallelism these are separate, each half as long."""
    return "all_gather" if sequence and what != "loss" else "all_reduce"


def least_width(rate: float, link: float, width: int = HALF) -> float:
    """The smallest hidden size for which cutting a layer makes it faster: h > gC/(9W), for any t.

    For each token a layer computes 72 h² operations in forward and backward, and each of t ranks sends 8h(t-1)/t
    numbers.

    rate  FLOP/s of a GPU, C;  link  bytes/s that it sends, W;  width  bytes of a number, g

    >>> round(least_width(312e12, 300e9)), round(least_width(312e12, 25e9))
    (231, 2773)
    """
    return width * rate / (9 * link)


def efficiency(h: float, ways: int, rate: float, link: float, width: int = HALF) -> float:
    """The fraction of the layers' time that t ranks spend computing, if nothing overlaps: 1 / (1 + (t-1)·gC/(9Wh)).

    >>> f"{efficiency(12288, 8, 312e12, 300e9):.0%} {efficiency(12288, 8, 312e12, 25e9):.0%}"
    '88% 39%'
    """
    return 1 / (1 + (ways - 1) * least_width(rate, link, width) / h)
