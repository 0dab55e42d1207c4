"""Notebook 21, data parallelism: gradients and all-reduces of real ranks on one clock (`on_ranks`); its `pictures`.

What students build there, DDP with buckets, is run in the cases of `trial`, which
judges it; `rank` is what one rank does there. `clinic` is a program to be mended: its symptoms, its cause.

Its exercises are in `tasks` (what is built: `build_tasks`), their solutions in `solutions` (`build_solutions`).
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "on_ranks": "RATE SMALL beside counted gradients in_groups job launched_inside mean_for_sum "
        "measured one_use_forgotten sent sweep train",
        "clinic": "symptoms",
        "tasks": "best_exposed tied_part",
    },
    "pictures",
)
