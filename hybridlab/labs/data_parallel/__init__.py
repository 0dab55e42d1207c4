"""Notebook 21, data parallelism: gradients and all-reduces of real ranks on one clock (`on_ranks`); its `pictures`.

Students build DDP with buckets. `trial` has the cases in which it is run, and judges it; `rank` is the program of one
rank. `clinic` has a program to be fixed, its symptoms and its cause; `far_apart` has copies that seldom exchange their
updates.

Its exercises are in `tasks` and `build_tasks`, their solutions in `solutions` and `build_solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "on_ranks": "RATE SMALL beside counted gradients in_groups job launched_inside mean_for_sum "
        "measured one_use_forgotten sent sweep train",
        "clinic": "symptoms",
        "far_apart": "train_apart",
        "tasks": "best_exposed tied_part",
    },
    "pictures",
)
