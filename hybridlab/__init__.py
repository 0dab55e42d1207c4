"""hybridlab: learn and use hybrid-parallel training: explain, predict, run on real processes, measure, check.

The names of this package are all that the course uses; each is loaded when it is first used, so importing hybridlab
takes milliseconds and needs neither torch nor a notebook.
"""

import sys

from hybridlab.lazily import lazily as _lazily  # the module keeps its name
from hybridlab.moved import install as _install

__version__ = "0.1.0"

_HOME = {  # as a reader meets them: the reference lists them in this order
    "Mesh": "core.where.mesh",
    "Schedule": "core.when.schedule",
    "Timeline": "core.when.timeline",
    "Action": "core.when.action",
    "Room": "core.when.room",
    "schedule": "scheduling.registry",
    "schedules": "scheduling.registry",
    "simulate": "predict.time.simulate",
    "run": "training.run",
    "draw": "show.timelines.draw",
    "explore": "labs.explore",
    "check": "training.check",
    "train": "training.run",
    "reshard": "training.reshard",
    "weights": "training.checkpoints.stored",
    "export": "training.checkpoints.export",
    "dry_run": "training.dry.dry_run",
    "dry_layer": "training.dry.dry_layer",
    "plan": "predict.plans.planner",
    "memory": "predict.plans.memory_of_plan",
    "validate": "scheduling.validate",
    "lower": "scheduling.lower",
    "Costs": "predict.time.costs",
    "automatic": "predict.time.automatic",
    "traffic": "predict.bytes.traffic",
    "live": "predict.bytes.live",
    "sharded": "scheduling.sharded",
    "rerouted": "scheduling.rerouted",
    "recomputed": "scheduling.out_of_core",
    "swapped": "scheduling.out_of_core",
    "fitted": "predict.time.out_of_core",
    "check_rendezvous": "scheduling.rendezvous",
    "ranks": "world.processes.launch",
    "RankError": "world.processes.launch",
    "placement": "world.devices.placement",
    "Routing": "core.what.routing",
    "Shape": "core.what.shape",
    "Model": "training.models.model",
    "predicted_for": "predict.time.overlay",
    "doctor": "measuring.doctor",
    "play": "labs.play",
}
_NAMESPACES = {  # modules of `front`, whose docstrings describe them
    one: f"front.{one}"
    for one in (
        "bytes", "catalog", "engine", "layouts", "measure", "models", "orders", "papers", "parallel", "pictures",
        "plans", "ring", "seams", "search", "spans", "times", "typed",
    )
}  # fmt: skip
__all__ = ["__version__", *_HOME, *_NAMESPACES]
__getattr__ = _lazily(__name__, _HOME, _NAMESPACES)
_install()


def __dir__():
    return sorted(__all__)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()):
    from hybridlab.show.timelines import notebook
    from hybridlab.world.cells import cells

    notebook.register(_shell)
    cells.register(_shell)
