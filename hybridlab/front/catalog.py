"""Models and machines with their published sizes: `hl.catalog.machine("a100")`, `hl.catalog.model("gpt3-175b")`."""

from hybridlab.core.what.catalog import (
    MACHINES,
    MODELS,
    Machine,
    Model,
    machine,
    model,
    shape_of,
)
from hybridlab.core.what.frameworks import FRAMEWORKS
from hybridlab.core.what.machines import machine_of
from hybridlab.doors import doors

__all__ = ["FRAMEWORKS", "MACHINES", "MODELS", "Machine", "Model", "machine", "machine_of", "model", "shape_of"]

machine, machine_of, model, shape_of = doors(machine, machine_of, model, shape_of)
