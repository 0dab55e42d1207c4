"""Models in torch, their training text, and the cut of their layers into stages."""

from hybridlab.doors import COUNT, door, doors, span
from hybridlab.training.data.text import Text
from hybridlab.training.models.batch_norm import BatchNorm
from hybridlab.training.models.experts import Experts, Router
from hybridlab.training.models.gpt import GPT, Dropout, token_loss
from hybridlab.training.models.sampling import sample
from hybridlab.training.models.slices import Memory
from hybridlab.training.stages import cut, parameters_of_layers, profiled

__all__ = [
    "BatchNorm",
    "Dropout",
    "Experts",
    "GPT",
    "Memory",
    "Router",
    "Text",
    "cut",
    "parameters_of_layers",
    "profiled",
    "sample",
    "token_loss",
]

sample = door(
    sample, length=span(0, 1e6, "give 0 or more, and at most 1e+06"),
    temperature=span(1e-6, 1e6, "give a number from 1e-06 to 1e+06"),
    seed=span(0, 2**63 - 1, "give 0 or more, and less than 2**63"),
)  # fmt: skip
cut, parameters_of_layers, profiled = doors(
    cut, parameters_of_layers, profiled, stages=COUNT, upto=COUNT, rows=COUNT, repeat=COUNT
)
