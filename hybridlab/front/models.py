"""Models in torch, their training text, and the cut of their layers into stages."""

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
