"""hybridlab: learn and do hybrid-parallel training. Explained, predicted, run for real, measured, proved equal.

Everything a course needs is a name of this package; each is loaded when it is first used, so that importing
hybridlab costs milliseconds and needs neither torch nor a notebook.
"""

import importlib
import sys

from hybridlab.lazily import lazily

# A package and a function share the name `schedules`, and others the name `train`: bound here, they mean the functions.
from hybridlab.schedules.registry import schedule, schedules

__version__ = "0.1.0"

_HOME = {
    "Mesh": "core.mesh",
    "Action": "core.action",
    "Room": "core.room",
    "Schedule": "core.schedule",
    "Timeline": "core.timeline",
    "validate": "schedules.validate",
    "lower": "schedules.lower",
    "Costs": "predict.time.costs",
    "simulate": "predict.time.simulate",
    "automatic": "predict.time.automatic",
    "traffic": "predict.bytes.traffic",
    "live": "predict.bytes.live",
    "plan": "predict.plans.planner",
    "memory": "predict.plans.footprint",
    "sharded": "schedules.sharded",
    "recomputed": "schedules.out_of_core",
    "swapped": "schedules.out_of_core",
    "fitted": "predict.time.out_of_core",
    "check_rendezvous": "schedules.rendezvous",
    "ranks": "world.processes.launch",
    "RankError": "world.processes.launch",
    "placement": "world.processes.placement",
    "Routing": "core.shape",
    "Shape": "core.shape",
    "Model": "train.models.model",
    "run": "train.run",
    "predicted_for": "predict.time.overlay",
    "doctor": "measuring.doctor",
    "check": "train.check",
    "dry_run": "train.dry.dry_run",
    "draw": "show.timelines.draw",
    "explore": "labs.explore",
    "play": "labs.play",
}
__all__ = ["__version__", "schedule", "schedules", "train", *_HOME]
__getattr__ = lazily(__name__, _HOME)


importlib.import_module("hybridlab.train")  # it is empty; imported later, it would take the function's name away


def train(mesh, *how, **more) -> dict:
    """Train a model over a mesh, as `python -m hybridlab train` does: see `hybridlab.train.run.train`."""
    from hybridlab.train.run import train as run  # here, because it loads torch

    return run(mesh, *how, **more)


def __dir__():
    return sorted(__all__)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()):
    from hybridlab.show.timelines import notebook
    from hybridlab.world.cells import cells

    notebook.register(_shell)
    cells.register(_shell)
