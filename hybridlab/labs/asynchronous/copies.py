"""Notebook 15: stages with copies; the network that PipeDream's authors cut and copied, and the text of a plan."""

from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.replicated import Layer, Plan


def vgg16() -> list[Layer]:
    """The layers of VGG-16 as PipeDream's authors profiled them on one GPU, with mini-batches of 128 images.

    >>> len(vgg16()), f"{sum(layer.weights for layer in vgg16()) / 1e6:.0f} MB"
    (38, '553 MB')
    """
    took = lambda row: (row["forward_ms"] + row["backward_ms"]) / 1e3
    return [Layer(took(row), row["output_bytes"], row["weight_bytes"]) for row in published("pipedream_vgg16")]


def in_words(plan: Plan) -> str:
    """The stages of a plan, and the number of ranks of each.

    >>> from hybridlab.predict.plans.replicated import Stage
    >>> in_words(Plan(1.0, (Stage(range(31), 15), Stage(range(31, 38), 1))))
    '31 layers on 15, 7 layers on 1'
    """
    return ", ".join(f"{len(stage.layers)} layers on {stage.replicas}" for stage in plan.stages)
