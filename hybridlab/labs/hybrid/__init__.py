"""Notebook 40, all modes at once: the grid of ranks, curves, a mutant (`grid`); bytes along each axis (`traffic`);
steps without some ranks, goodput, and how often to save (`lost`); a rank killed in the middle of a step
(`killed_rank`); the axes in a table, from one layer's messages (`axes_of_a_layer`).

Its exercises are in `tasks`, their solutions in `solutions`. Students build a step on a grid of ranks (`build_tasks`,
`build_solutions`); `trial` has its grids and the verdict, `rank` is the program of one rank. In `moving` they list the
messages from one layout to another. `in_torch` has layers that PyTorch shards.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "axes_of_a_layer": "axes",
        "grid": "SHAPE curves explorer forget_the_tensor_sum job picture proof",
        "in_torch": "furthest two_layers",
        "killed_rank": "killed",
        "lost": "BETWEEN gone goodputs length saving without",
        "traffic": "between_nodes by_axis counted",
    },
)
