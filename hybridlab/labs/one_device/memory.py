"""Notebook 02: the computed memory of training. `counting`, which loads torch, counts it.

Relatives: `predict.bytes.saved`, `predict.bytes.memory`.
"""

import hybridlab as hl
from hybridlab.core.where.layout import Layout, Param
from hybridlab.labs.zero.plan import PRINTED
from hybridlab.predict.bytes import saved
from hybridlab.predict.bytes.memory import SINGLE, Widths, model_states
from hybridlab.predict.plans.footprint import Footprint


def states(parameters: int, widths: Widths = SINGLE) -> Footprint:
    """The bytes of the model's state in training on one device, without activations.

    >>> sum(states(1000)) / 1000
    16.0
    """
    kept = model_states(Layout(hl.Mesh(dp=1), (Param("all", (parameters,)),)), 0, widths)
    return Footprint(kept["value"], kept["gradient"], kept["optimizer"], 0)


def computed(shape: hl.Shape, batch: int) -> Footprint:
    """The bytes of a step of AdamW in single precision, by formula."""
    return states(shape.parameters)._replace(activations=sum(saved.layers(shape, batch)))


def placing(parameters: float, cards: int) -> Footprint:
    """Only the weights, in half precision, with an equal part on each card."""
    return Footprint(PRINTED["value"] * parameters / cards, 0, 0, 0)


def training(parameters: float, cards: int) -> Footprint:
    """The complete model state of mixed-precision training, with an equal part on each card.

    >>> training(175e9, 8).total / 1e9
    350.0
    """
    return Footprint(*(PRINTED[what] * parameters / cards for what in ("value", "gradient", "optimizer")), 0)
