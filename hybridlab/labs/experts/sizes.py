"""Notebook 32: DeepSeek-V3 as two shapes: 58 layers with experts, and three without.

The sizes are those in the catalog; those of the first layers' MLP are from `config.json`. A Shape also has its latent
attention (`training.models.latent`).
"""

from dataclasses import replace
from typing import NamedTuple

from hybridlab.core.what.catalog import model

DEEP = replace(model("deepseek-v3").shape.others, layers=58)
FIRST = replace(model("deepseek-v3").shape.plain_ones, layers=3)


class Weights(NamedTuple):
    """Weights of a part of a model: all of them, and those that one token uses."""

    all: float
    met: float


PUBLISHED = Weights(671e9, 37e9)  # arXiv:2412.19437, abstract


def weights() -> dict[str, Weights]:
    """DeepSeek-V3's weights by part, as the two shapes have them.

    >>> {part: f"{its.met / its.all:.0%}" for part, its in weights().items()}
    {'experts of 58 layers': '4%', 'attention, norms, routers': '100%', 'MLPs of 3 layers': '100%', 'both ends': '100%'}
    """
    mlps = DEEP.layers * DEEP.block.mlp
    rest = sum(one.layers * (sum(one.block) - one.block.mlp) for one in (DEEP, FIRST))
    first, ends = FIRST.layers * FIRST.block.mlp, DEEP.embedding + DEEP.head
    return {
        "experts of 58 layers": Weights(mlps * DEEP.mlps, mlps * (DEEP.chosen + DEEP.shared)),
        "attention, norms, routers": Weights(rest, rest),
        "MLPs of 3 layers": Weights(first, first),
        "both ends": Weights(ends, ends),
    }
