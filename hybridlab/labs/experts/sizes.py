"""Notebook 32: DeepSeek-V3 as two shapes, as far as a Shape can say it: 58 layers with experts, and three without.

Sizes: its report, arXiv:2412.19437, section 4.2; the width of the first layers' MLP and the vocabulary: `config.json`.
What a Shape cannot say: its attention keeps queries, keys and values in a narrow form (*multi-head latent attention*),
and so has fewer weights than an ordinary one of this width.
"""

from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.shape import Routing, Shape

DEEP = Shape(
    layers=58,
    width=7168,
    heads=128,
    context=4096,
    vocabulary=129280,
    inner=2048,
    style="llama",
    experts=256,
    chosen=8,
    shared=1,
    routing=Routing(scores="sigmoid", balance="bias"),
)
FIRST = replace(DEEP, layers=3, inner=18432, experts=1, chosen=1, shared=0)


class Weights(NamedTuple):
    """Weights of a part of a model: all of them, and those that one token meets."""

    all: float
    met: float


PUBLISHED = Weights(671e9, 37e9)  # arXiv:2412.19437, abstract


def weights() -> dict[str, Weights]:
    """DeepSeek-V3's weights by part, as the two shapes have them.

    >>> {part: f"{its.met / its.all:.0%}" for part, its in weights().items()}
    {'experts of 58 layers': '4%', 'attention, norms, routers': '100%', 'MLPs of 3 layers': '100%', 'both ends': '100%'}
    """
    one, mlps = DEEP.block, DEEP.layers * DEEP.block.mlp
    rest = (DEEP.layers + FIRST.layers) * one.attention + DEEP.layers * one.whole + FIRST.layers * FIRST.block.whole
    first, ends = FIRST.layers * FIRST.block.mlp, DEEP.embedding + DEEP.head
    return {
        "experts of 58 layers": Weights(mlps * DEEP.mlps, mlps * (DEEP.chosen + DEEP.shared)),
        "attention, norms, routers": Weights(rest, rest),
        "MLPs of 3 layers": Weights(first, first),
        "both ends": Weights(ends, ends),
    }
