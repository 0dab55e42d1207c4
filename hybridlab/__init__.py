"""hybridlab: learn and do hybrid-parallel training. Explained, predicted, run for real, measured, proved equal.

Everything a course needs is a name of this package; each is loaded when it is first used, so that importing
hybridlab costs milliseconds and needs neither torch nor a notebook.
"""

import sys

from hybridlab.lazily import lazily

# A package and a function share the name `schedules`: bound here, it means the function for good.
from hybridlab.schedules.registry import schedule, schedules

__version__ = "0.1.0"

_HOME = {
    "Mesh": "core.mesh",
    "Action": "core.action",
    "Schedule": "core.schedule",
    "Timeline": "core.timeline",
    "validate": "schedules.validate",
    "lower": "schedules.lower",
    "Costs": "predict.costs",
    "simulate": "predict.simulate",
    "automatic": "predict.automatic",
    "traffic": "predict.traffic",
    "live": "predict.live",
    "plan": "predict.planner",
    "memory": "predict.footprint",
    "sharded": "schedules.sharded",
    "check_rendezvous": "schedules.rendezvous",
    "ranks": "world.launch",
    "RankError": "world.launch",
    "placement": "world.placement",
    "Shape": "core.shape",
    "run": "train.run",
    "predicted_for": "predict.overlay",
    "doctor": "measuring.doctor",
    "check": "train.check",
    "draw": "show.draw",
    "explore": "labs.explore",
    "play": "labs.play",
}
__all__ = ["__version__", "schedule", "schedules", *_HOME]
__getattr__ = lazily(__name__, _HOME)


def __dir__():
    return sorted(__all__)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()):
    from hybridlab.show import notebook
    from hybridlab.world import cells

    notebook.register(_shell)
    cells.register(_shell)
