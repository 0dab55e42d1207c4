"""Notebook 21, data parallelism: gradients and all-reduces of real ranks on one clock (`on_ranks`); its `pictures`.

What students build there, DDP with buckets, is run in the cases of `trial`, which
judges it; `rank` is what one rank does there. `clinic` is a program to be mended: its symptoms, its cause.

Its exercises are in `tasks` (what is built: `build_tasks`), their solutions in `solutions` (`build_solutions`).
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "RATE": "on_ranks",
    "SMALL": "on_ranks",
    "beside": "on_ranks",
    "counted": "on_ranks",
    "gradients": "on_ranks",
    "in_groups": "on_ranks",
    "job": "on_ranks",
    "launched_inside": "on_ranks",
    "mean_for_sum": "on_ranks",
    "measured": "on_ranks",
    "one_use_forgotten": "on_ranks",
    "sent": "on_ranks",
    "symptoms": "clinic",
    "sweep": "on_ranks",
    "train": "on_ranks",
    "best_exposed": "tasks",
    "tied_part": "tasks",
}
_MODULES = {"pictures": "pictures"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
